// The formats of the data that ranks of a job send each other through a library of networks, and of
// their cards. All ranks have one byte order: otherwise their cards differ.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/agreed.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::network {

// ---- the card: this, then the address of the device worker

// The version of everything in this file, and of the transports that use it. Ranks with different
// versions do not connect.
inline constexpr std::uint32_t kWireVersion = 6;

struct CardHead {
  char tag[12] = {'h', 'e', 'd', 'd', 'l', 'e', ' ', 'n', 'e', 't'};
  std::uint32_t wire = kWireVersion;
  char transport[8] = {};  // its name, and zeros
  char version[16] = {};   // of its library, and zeros
  char provider[48] = {};  // of the library, if it has several, and zeros
  Agreed agreed;
  std::uint64_t max_workers = 0;
  std::uint64_t window = 0;
  std::uint64_t address_bytes = 0;
};

// ---- notes between device workers: questions and answers

struct Note {
  enum Kind : std::uint32_t {
    ask_worker = 1,
    worker,
    ask_key,
    key,
    handshake  // a transport's own, for the worker with that number
  };
  enum State : std::uint32_t { is_open = 1, is_closed, is_unknown };
  std::uint32_t kind = 0;
  std::uint32_t rank = 0;    // the sender
  std::uint64_t number = 0;  // of the worker, or of the region
  std::uint32_t state = 0;   // in answers
  std::uint32_t bytes = 0;   // that follow: an address, or a packed rkey
  std::uint64_t seal = 0;
};
static_assert(sizeof(Note) == 32);

template <class Record>
void seal(Record* record, const bootstrap::JobSecret& secret) {
  record->seal = seal_of_words(record, offsetof(Record, seal), secret);
}
template <class Record>
bool sealed(const Record& record, const bootstrap::JobSecret& secret) {
  return record.seal == seal_of_words(&record, offsetof(Record, seal), secret);
}

// ---- messages between workers: a head, then the packet

// The kind of data that follows a head.
enum class Kind : std::uint32_t {
  message = 2,
  credit = 3,    // nothing
  bundle = 4,    // several short messages of one stream: the first one's head, then parts
  question = 5,  // nothing: a credit that its receiver answers, with a credit or with `ended`
  // nothing: the sender has disconnected its receiver, and takes nothing from it any more
  ended = 6
};

inline constexpr std::uint32_t kMostMessage = 8192;  // header + payload

struct Head {
  std::uint32_t rank = 0;
  std::uint32_t worker = 0;  // of the sender
  std::uint32_t immediate = 0;
  std::uint32_t position = 0;  // of this message in the stream; see cost_of()
  std::uint32_t consumed = 0;  // up to where the sender has consumed the stream towards itself
  std::uint32_t arrived = 0;   // up to where that stream is in its memory
  std::uint32_t pass = 0;      // of the sender; see pass_of()
  std::uint32_t kind = 0;      // of transports that do not number their messages: see Kind
};
static_assert(sizeof(Head) == 32);
inline std::uint32_t read_word(const void* data, std::size_t offset) {
  std::uint32_t read = 0;
  std::memcpy(&read, static_cast<const std::byte*>(data) + offset, sizeof read);
  return read;
}
inline Head read_head(const void* data) {
  // word by word, so that the head stays in registers
  const auto word = [data](std::size_t i) { return read_word(data, i * sizeof(std::uint32_t)); };
  return {word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7)};
}

// A part of a bundle; the packet follows, and zeros up to a multiple of 8. The head's `position` is
// the first part's, its `immediate` is not used.
struct Part {
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;
};
static_assert(sizeof(Part) == 8);
inline constexpr std::uint32_t kMostPart = 128;     // header + payload
inline constexpr std::uint32_t kMostBundle = 2048;  // head included
constexpr std::uint32_t part_bytes(std::uint32_t packet_bytes) {
  return static_cast<std::uint32_t>(sizeof(Part)) + ((packet_bytes + 7U) & ~7U);
}
// The part at the beginning of `bytes` bytes. False: there is no whole part.
inline bool read_part(const std::byte* data, std::uint32_t bytes, Part* part) {
  if (bytes < sizeof *part) return false;
  std::memcpy(part, data, sizeof *part);
  return part->bytes <= kMostPart && part_bytes(part->bytes) <= bytes;
}

// Every message of a worker carries this, which shows that the message is of this job.
inline std::uint32_t pass_of(std::uint32_t rank, std::uint32_t worker, const bootstrap::JobSecret& secret) {
  const std::uint64_t name = std::uint64_t{rank} << 32 | worker;
  return static_cast<std::uint32_t>(seal_of_words(&name, sizeof name, secret));
}

// A stream of messages is counted in the bytes that it takes in the receiver's ring; at most a
// window of them may be on the way or wait. Counters wrap.
inline constexpr std::uint32_t kRecordHead = 16;
constexpr std::uint32_t cost_of(std::uint32_t bytes) {
  return kRecordHead + ((bytes + 7U) & ~7U);
}
// Judges the value `consumed` of a head: it concerns the stream that the receiver of the head
// sends. That receiver has sent up to `sent`, and knows that all is consumed up to `acked`. If a
// credit or a later message has overtaken the head, its value is known already, which is no fault.
// A head cannot be older than 2 GiB.
enum class News : std::uint8_t { fresh, stale, impossible };
constexpr News news_of(std::uint32_t consumed, std::uint32_t acked, std::uint32_t sent) {
  if (consumed - acked <= sent - acked) return News::fresh;
  return acked - consumed < std::uint32_t{1} << 31 ? News::stale : News::impossible;
}
// Up to where the stream has arrived at the peer. `arrived` is the value in a head, `known` the
// value known before. The head may have been overtaken. The caller has checked that consumed <=
// arrived <= sent.
constexpr std::uint32_t later_of(std::uint32_t known, std::uint32_t arrived) {
  return arrived - known < std::uint32_t{1} << 31 ? arrived : known;
}
// How many of `count` messages are not in the peer's memory yet. The messages have one cost and
// follow each other, and the first one ends at `end`. The stream has arrived up to `delivered`.
constexpr std::uint32_t unarrived_of(std::uint32_t count, std::uint32_t cost, std::uint32_t end,
                                     std::uint32_t delivered) {
  const std::uint32_t missing = end + (count - 1) * cost - delivered;
  if (missing - 1 >= (std::uint32_t{1} << 31) - 1) return 0;  // the last has arrived
  return std::min((missing - 1) / cost + 1, count);
}
// The least window: credit comes back by half windows, and half a window must hold the longest
// message.
inline constexpr std::uint32_t kLeastWindow = 24 << 10;
static_assert(kLeastWindow >= 2 * cost_of(kMostMessage));

}  // namespace heddle::transport::network
