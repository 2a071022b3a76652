// Large active messages arrive in parts, in any order; here they become whole again.
//
// Memory is bounded: what would exceed the limit is refused, and the sender is told by the reply. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "heddle/heddle.h"
#include "wire/packet.hpp"

namespace heddle::protocol {

class Reassembly {
 public:
  struct Message {
    std::uint64_t token = 0;
    std::uint64_t received = 0;
    std::uint64_t total_bytes = 0;
    std::uint32_t handler = 0;
    std::uint32_t header_bytes = 0;
    bool has_first = false;
    std::array<std::byte, HEDDLE_AM_HEADER_BYTES> header alignas(8){};
    std::unique_ptr<std::byte[]> payload;
  };

  enum class Outcome {
    incomplete,
    complete,  // *whole holds the message
    refused    // more memory than allowed: answer NO_MEMORY, once per message
  };

  Reassembly(std::uint64_t max_message, std::uint64_t max_memory)
      : max_message_(max_message), max_memory_(max_memory) {}

  Outcome add(heddle_peer source, const wire::Fragment& fragment, Message* whole);

  // The peer is dead: its incomplete messages will never be whole.
  void forget(std::uint32_t rank);

  [[nodiscard]] std::uint64_t memory() const { return memory_; }

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;  // rank, worker, message
  struct Partial {
    Message message;
    bool refused = false;
  };

  std::uint64_t max_message_;
  std::uint64_t max_memory_;
  std::uint64_t memory_ = 0;
  std::map<Key, Partial> partials_;
};

}  // namespace heddle::protocol
