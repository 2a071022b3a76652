// Large active messages arrive in parts, in any order; here they become whole again.
//
// A message is cut at equal distances: seen as one stream of its header (padded to 8 bytes) and its
// payload, all parts but the last have the same length, the unit, and begin at multiples of it. So
// one bit a part tells what is here. Whatever does not fit that, comes twice or contradicts what
// came before is refused and changes nothing: a message is complete exactly when every byte of it
// has arrived once, whatever a peer sends.
//
// Memory is bounded for all peers together and for each of them: a message that would exceed either
// bound is refused, and the sender is told by the reply. What is remembered about refused messages
// is bounded too. Nothing throws. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
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
    // more memory than allowed: answer whole->token with NO_MEMORY. Once a message, as long as it
    // is remembered
    refused,
    malformed  // this part cannot be, or was here before: drop it
  };

  // What a message in parts is counted as at least, so that bookkeeping is bounded with the
  // payload. Honest messages in parts are longer.
  static constexpr std::uint64_t kLeastCharge = 512;
  // The shortest unit, except for a message in one part: bounds the bits a message needs.
  static constexpr std::uint64_t kLeastUnit = 64;
  // Refused messages of one peer whose remaining parts are awaited quietly. Parts of further ones
  // are refused one by one.
  static constexpr std::uint32_t kMostRefused = 256;

  // A peer may use half of max_memory, or one message if that is more.
  Reassembly(std::uint64_t max_message, std::uint64_t max_memory)
      : max_message_(max_message),
        max_memory_(max_memory),
        max_peer_memory_(max_memory / 2 > max_message ? max_memory / 2 : max_message) {}

  Outcome add(heddle_peer source, const wire::Fragment& fragment, Message* whole) noexcept;

  // The peer is dead: its incomplete messages will never be whole.
  void forget(std::uint32_t rank);

  // What the messages that are not whole yet are counted as.
  [[nodiscard]] std::uint64_t memory() const { return memory_; }
  // Messages of which something is remembered, refused ones included.
  [[nodiscard]] std::size_t messages() const;

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // worker, message
  // Place of a part in the stream of header and payload.
  struct Part {
    std::uint64_t at;
    std::uint64_t bytes;
    bool last;
  };
  struct Partial {
    Message message;
    std::uint64_t stream_bytes = 0;
    // of the stream. Refused: a plain sum, since only when to answer depends on it
    std::uint64_t received = 0;
    std::uint64_t unit = 0;  // 0: not known yet, since at most the last part is here
    // where the last part begins, if it came before the unit was known
    std::uint64_t tail = 0;
    std::unique_ptr<std::uint64_t[]> here;  // a bit a part
    bool refused = false;
  };
  struct Peer {
    std::uint64_t memory = 0;
    std::uint32_t refused = 0;
    std::map<Key, Partial> partials;
    // By worker: messages up to this number were refused and forgotten. Their late parts must not
    // begin a message anew.
    std::map<std::uint32_t, std::uint64_t> forgotten;
  };

  Outcome place(heddle_peer source, const wire::Fragment& fragment, Message* whole);
  enum class Noted { yes, no, no_memory };
  void refuse(Peer& peer, Partial& partial);
  Outcome place_refused(Peer& peer, std::map<Key, Partial>::iterator it, const Part& part, Message* whole);
  // Null: refused without being remembered.
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
