// Headers of tagged messages and of partitioned ones.
//
// A tagged message:
//
//   immediate  bit 28: an offer; bit 27: no message but a word about messages, bits 0–26 say which;
//              else bits 0–26: number of the message among those of one worker to one worker, where
//              the transport does not keep their order (else zero)
//   packet     tag, then the data; or an Offer: data that the receiver fetches from the sender's
//              memory when it is wanted. Without data it names no memory: its receiver only answers
//
// Words, which are not numbered:
//   credit     from receiver to sender: bytes of memory that all messages which were received or
//              dropped so far had taken
//   pull       from receiver to sender of an offer: the data is to come through the pipe
//
// A pipe brings messages in parts, one message after the other; other messages may come between
// the parts of one.
//   piped      a message: its tag, its length, and the first of its bytes, but not all of them. It
//              counts where it stands in the order of messages
//   pulled     the data of an offered message begins
//   part       the next bytes of the message that has begun last
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "heddle/heddle.h"
#include "wire/packet.hpp"

namespace heddle::wire {

inline constexpr std::uint32_t kOfferBit = 1U << 28;
inline constexpr std::uint32_t kWordBit = 1U << 27;
inline constexpr std::uint32_t kSequenceMask = kWordBit - 1;

enum class Word : std::uint32_t { credit = 0, pull = 1, piped = 2, pulled = 3, part = 4 };

constexpr std::uint32_t encode_word(Word word) {
  return immediate_of(Kind::tagged) | kWordBit | static_cast<std::uint32_t>(word);
}
constexpr bool is_word(std::uint32_t immediate) {
  return (immediate & kWordBit) != 0;
}
// For an immediate that is_word(); the value may be none of those above.
constexpr Word word_of(std::uint32_t immediate) {
  return static_cast<Word>(immediate & (kOfferBit | kSequenceMask));
}

constexpr std::uint32_t encode_tagged(std::uint32_t sequence, bool offer) {
  return immediate_of(Kind::tagged) | (offer ? kOfferBit : 0) | (sequence & kSequenceMask);
}

// Whether it is the immediate of a message whose data is in its packet.
constexpr bool is_plain(std::uint32_t immediate) {
  return (immediate & ~kSequenceMask) == immediate_of(Kind::tagged);
}

inline constexpr std::size_t kOfferKeyBytes = 48;

struct Offer {
  std::uint64_t tag;
  std::uint64_t bytes;
  std::uint64_t token;   // the sender's; returned in the reply when the data has been fetched
  std::uint64_t region;  // the sender's number for the memory
  std::uint8_t key[kOfferKeyBytes];
};
static_assert(sizeof(Offer) == 80);

struct TaggedMessage {
  std::uint64_t tag;
  std::uint64_t bytes;                 // of the message; an offer's are not in the packet
  std::span<const std::byte> payload;  // the data, or the whole Offer
  std::uint32_t sequence;
  bool offer;
  bool begins = false;  // the rest of the data comes in parts
};

// Empty: not well formed, or a word.
inline std::optional<TaggedMessage> decode_tagged(std::uint32_t immediate, std::span<const std::byte> packet) {
  TaggedMessage message{0, 0, packet, immediate & kSequenceMask, false};
  if ((immediate & (kOfferBit | kWordBit)) == 0) [[likely]] {
    if (packet.size() < sizeof message.tag) return std::nullopt;
    std::memcpy(&message.tag, packet.data(), sizeof message.tag);
    message.payload = packet.subspan(sizeof message.tag);
    message.bytes = message.payload.size();
    return message;
  }
  if (is_word(immediate) || packet.size() != sizeof(Offer)) return std::nullopt;
  message.offer = true;
  Offer offer;
  std::memcpy(&offer, packet.data(), sizeof offer);
  message.tag = offer.tag;
  message.bytes = offer.bytes;
  return message;
}

// What precedes the data in Word::piped.
struct PipedHeader {
  std::uint64_t tag;
  std::uint64_t bytes;
};
static_assert(sizeof(PipedHeader) == 16);

// Of Word::piped.
inline std::optional<TaggedMessage> decode_piped(std::span<const std::byte> packet) {
  PipedHeader head;
  if (packet.size() <= sizeof head) return std::nullopt;
  std::memcpy(&head, packet.data(), sizeof head);
  const std::span<const std::byte> data = packet.subspan(sizeof head);
  if (data.size() >= head.bytes) return std::nullopt;
  return TaggedMessage{head.tag, head.bytes, data, 0, false, true};
}

// Word::pull.
struct Pull {
  std::uint64_t token;  // of the offer
  std::uint64_t id;     // the receiver's number for it; not 0
  std::uint64_t bytes;  // that it wants
};
static_assert(sizeof(Pull) == 24);

// What precedes the data in Word::pulled.
struct Pulled {
  std::uint64_t id;
};
static_assert(sizeof(Pulled) == 8);

inline std::optional<std::uint64_t> decode_credit(std::span<const std::byte> packet) {
  std::uint64_t freed = 0;
  if (packet.size() != sizeof freed) return std::nullopt;
  std::memcpy(&freed, packet.data(), sizeof freed);
  return freed;
}

// The body of a word other than credit; the reader has to check whether it names anything.
template <class Body>
std::optional<Body> decode_word(std::span<const std::byte> packet) {
  Body body;
  if (packet.size() != sizeof body) return std::nullopt;
  std::memcpy(&body, packet.data(), sizeof body);
  return body;
}

// How much of the receiver's memory an unexpected message takes, for payload and bookkeeping. Both
// sides count the same.
inline constexpr std::uint64_t kTaggedNode = 176;
inline constexpr std::uint64_t kTaggedLeast = 256;
constexpr std::uint64_t tagged_charge(std::uint64_t payload_bytes) {
  const std::uint64_t bytes = (kTaggedNode + payload_bytes + 63) & ~std::uint64_t{63};
  return bytes < kTaggedLeast ? kTaggedLeast : bytes;
}

// The messages between the two sides of a partitioned operation. They go to the extension of the
// peer's worker.

enum class PartitionedKind : std::uint32_t {
  // sender → worker: there is a send. `number`: its index, from 0, among this worker's sends to
  // that worker
  offer = 1,
  // receiver → sender: it is matched; the places follow. `number`: the run that the receiver is in
  accept,
  begun,  // receiver → sender: `number`: the run that it has begun
  // to either: `status` says why it cannot be; `bytes` and `partitions` are the other's
  rejected,
  freed  // to either: the other side has freed its operation
};

struct PartitionedHeader {
  PartitionedKind kind;
  std::int32_t status;   // rejected
  std::uint64_t to;      // number of the operation that it is about, at its receiver; offer: 0
  std::uint64_t from;    // number of the operation that it comes from
  std::uint64_t tag;     // offer
  std::uint64_t number;  // see above
  std::uint64_t bytes;   // offer, rejected: of all parts
  std::uint32_t partitions;
  std::uint32_t zero;
};
static_assert(sizeof(PartitionedHeader) == 56);

// Where the sender puts parts: the data goes `offset` bytes into a region (none if there are no
// bytes), and each part has a word.
struct PartitionedPlaces {
  std::uint64_t offset;
  std::array<std::byte, kNarrowRegionBytes> data;
  std::array<std::byte, kNarrowRegionBytes> words;
};
static_assert(sizeof(PartitionedPlaces) == 200);

struct PartitionedMessage {
  PartitionedHeader head;
  PartitionedPlaces places;  // accept
};

inline std::optional<PartitionedMessage> decode_partitioned(std::span<const std::byte> packet) {
  PartitionedMessage message{};
  if (packet.size() < sizeof message.head) return std::nullopt;
  std::memcpy(&message.head, packet.data(), sizeof message.head);
  const PartitionedHeader& head = message.head;
  const std::span<const std::byte> rest = packet.subspan(sizeof head);
  if (head.zero != 0 || (head.kind == PartitionedKind::offer) != (head.to == 0) || head.from == 0) return std::nullopt;
  switch (head.kind) {
    case PartitionedKind::offer:
      if (head.partitions == 0 || head.partitions > HEDDLE_MOST_PARTITIONS || head.bytes % head.partitions != 0)
        return std::nullopt;
      break;
    case PartitionedKind::accept:
      if (rest.size() != sizeof message.places) return std::nullopt;
      std::memcpy(&message.places, rest.data(), sizeof message.places);
      return message;
    case PartitionedKind::rejected:
      if (!status_known(head.status) || head.status == HEDDLE_DONE) return std::nullopt;
      break;
    case PartitionedKind::begun:
    case PartitionedKind::freed:
      break;
    default:
      return std::nullopt;
  }
  return rest.empty() ? std::optional(message) : std::nullopt;
}

}  // namespace heddle::wire
