// Large active messages arrive in parts, in any order; Reassembly puts them together.
//
// A message is cut at equal distances. View it as one stream of its header (padded to 8 bytes) and
// its payload: all parts but the last have the same length, the unit, and begin at multiples of the
// unit. So one bit per part says whether the part is here. A part that does not fit this, arrives
// twice or contradicts earlier parts is rejected and changes nothing. So a message is complete
// exactly when every byte of it has arrived once, whatever a peer sends.
//
// Memory is bounded for all peers together and for each peer. A message that would exceed either
// bound is rejected, and the reply tells the sender. The memory for rejected messages is bounded,
// too. Nothing throws. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "heddle/heddle.h"
#include "wire/packet.hpp"

namespace heddle::protocol {

class Reassembly {
 public:
  struct Message {
    std::uint64_t token = 0;
    std::uint64_t total_bytes = 0;
    std::uint32_t handler = 0;
    std::uint32_t header_bytes = 0;
    std::array<std::byte, HEDDLE_AM_HEADER_BYTES> header alignas(8){};
    std::unique_ptr<std::byte[]> payload;
  };

  enum class Outcome {
    incomplete,
    complete,  // *whole holds the message
    // more memory than allowed: answer whole->token with NO_MEMORY. Reported once per message, as
    // long as the message is remembered
    rejected,
    malformed  // this part is impossible, or has arrived before: drop it
  };

  // The least that a message in parts is charged, so that the memory for bookkeeping is bounded
  // together with that for payload. Correct peers send only longer messages in parts.
  static constexpr std::uint64_t kLeastCharge = 512;
  // The shortest unit, except for a message in one part. It bounds the number of bits per message.
  static constexpr std::uint64_t kLeastUnit = 64;
  // How many rejected messages of one peer are remembered until their remaining parts have arrived.
  // Each part of further messages is rejected by itself.
  static constexpr std::uint32_t kMostRejected = 256;

  // A peer may use half of max_memory, or one message if that is more.
  Reassembly(std::uint64_t max_message, std::uint64_t max_memory)
      : max_message_(max_message),
        max_memory_(max_memory),
        max_peer_memory_(max_memory / 2 > max_message ? max_memory / 2 : max_message) {}

  Outcome add(heddle_peer source, const wire::Fragment& fragment, Message* whole) noexcept;

  // The peer is dead: drops its incomplete messages.
  void forget(std::uint32_t rank);

  // The sum of the charges of all incomplete messages.
  [[nodiscard]] std::uint64_t memory() const { return memory_; }
  // Messages that are remembered, including rejected ones.
  [[nodiscard]] std::size_t messages() const;

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // worker, message
  // Position of a part in the stream of header and payload.
  struct Part {
    std::uint64_t at;
    std::uint64_t bytes;
    bool last;
  };
  struct Partial {
    Message message;
    std::uint64_t stream_bytes = 0;
    // bytes of the stream that are here. For a rejected message a plain sum, which decides only
    // when to answer
    std::uint64_t received = 0;
    std::uint64_t unit = 0;  // 0: not known yet, since at most the last part is here
    // where the last part begins, if it arrived before the unit was known
    std::uint64_t tail = 0;
    std::unique_ptr<std::uint64_t[]> here;  // one bit per part
    bool rejected = false;
  };
  struct Peer {
    std::uint64_t memory = 0;
    std::uint32_t rejected = 0;
    std::map<Key, Partial> partials;
    // Per worker: messages up to this number were rejected and forgotten. Their late parts must not
    // open the message again.
    std::map<std::uint32_t, std::uint64_t> forgotten;
  };

  Outcome place(heddle_peer source, const wire::Fragment& fragment, Message* whole);
  enum class Noted { yes, no, no_memory };
  void reject(Peer& peer, Partial& partial);
  Outcome place_rejected(Peer& peer, std::map<Key, Partial>::iterator it, const Part& part, Message* whole);
  // Null: rejected and not remembered.
  Partial* open(Peer& peer, std::uint32_t worker, const wire::FragmentHeader& head);
  static bool same(const Message& message, const wire::FragmentHeader& head);
  static Noted note(Partial& partial, const Part& part);
  static Noted set_unit(Partial& partial, std::uint64_t unit);

  std::uint64_t max_message_;
  std::uint64_t max_memory_;
  std::uint64_t max_peer_memory_;
  std::uint64_t memory_ = 0;
  std::map<std::uint32_t, Peer> peers_;
};

}  // namespace heddle::protocol
