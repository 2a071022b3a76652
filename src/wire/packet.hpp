// Packets between workers, and regions packed as bytes.
//
// A message is 32 immediate bits that say what it is, and, except for a small active message, a
// packet header.
//
// Encode and decode stand side by side; decode treats every byte as hostile and never reads past
// its input. Byte order is the machine's: all processes of a job run on machines of one byte order
// (checked by the magic of the packed region, and magic and version of the transports' cards).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/error.hpp"
#include "heddle/heddle.h"

namespace heddle::wire {

// ---- immediate ----------------------------------------------------------------------------------

//   bits 29–31      kind
//   active_message  bits 0–9: handler, bits 10–16: header bytes
//   tagged          see messages.hpp
//   fragment        bit 28: not a part of a large active message but the offer of one; bit 27:
//                   for a protocol without a kind of its own, whose number is in bits 0–2
//   user            of class USER. bit 17 clear: a message, as active_message; set: a grant, a
//                   reply whose value is credit in bytes
//   the others      zero
// One more protocol takes a number: extension(). Kind 6 is free.
enum class Kind : std::uint32_t {
  invalid = 0,
  active_message = 1,
  fragment = 2,
  request = 3,
  reply = 4,
  tagged = 5,
  user = 7
};

inline constexpr std::uint32_t kKindShift = 29;
// of both classes
inline constexpr std::uint32_t kHandlerNumbers = HEDDLE_AM_USER + HEDDLE_AM_HANDLERS;
inline constexpr std::uint32_t kHandlerMask = HEDDLE_AM_HANDLERS - 1;
inline constexpr std::uint32_t kHeaderShift = 10;
inline constexpr std::uint32_t kHeaderMask = 0x7F;
static_assert((HEDDLE_AM_HANDLERS & kHandlerMask) == 0 && HEDDLE_AM_HANDLERS == 1U << kHeaderShift);
static_assert(HEDDLE_AM_HEADER_BYTES <= kHeaderMask);

constexpr Kind kind_of(std::uint32_t immediate) {
  return static_cast<Kind>(immediate >> kKindShift);
}
constexpr std::uint32_t immediate_of(Kind kind) {
  return static_cast<std::uint32_t>(kind) << kKindShift;
}
constexpr std::uint32_t encode_am(std::uint32_t handler, std::uint32_t header_bytes) {
  return immediate_of(Kind::active_message) | header_bytes << kHeaderShift | handler;
}

// Messages to a protocol that has a number and no kind of its own.
inline constexpr std::uint32_t kExtensions = 8;
constexpr std::uint32_t extension(std::uint32_t number) {
  return immediate_of(Kind::fragment) | 1U << 27 | number;
}
// The number of the room above the worker.
inline constexpr std::uint32_t kExtension = extension(0);

// Rows of the engine's table of arrivals: one for each kind, and one for each number.
inline constexpr std::uint32_t kExtensionRow = 8;
inline constexpr std::uint32_t kRows = kExtensionRow + kExtensions;
constexpr std::uint32_t row_of(std::uint32_t immediate) {
  const std::uint32_t number = immediate - kExtension;
  return number < kExtensions ? kExtensionRow + number : immediate >> kKindShift;
}
constexpr std::uint32_t row_of(Kind kind) {
  return static_cast<std::uint32_t>(kind);
}

inline constexpr std::uint32_t kGrantBit = 1U << 17;
inline constexpr std::uint32_t kGrant = immediate_of(Kind::user) | kGrantBit;
// A small message of class USER; `handler` counts from HEDDLE_AM_USER. decode_am() decodes it.
constexpr std::uint32_t encode_user(std::uint32_t handler, std::uint32_t header_bytes) {
  return immediate_of(Kind::user) | header_bytes << kHeaderShift | (handler - HEDDLE_AM_USER);
}

// A small message of either class.
constexpr std::uint32_t encode_message(std::uint32_t handler, std::uint32_t header_bytes) {
  return handler < HEDDLE_AM_USER ? encode_am(handler, header_bytes) : encode_user(handler, header_bytes);
}

constexpr std::uint32_t pad8(std::uint32_t bytes) {
  return (bytes + 7U) & ~7U;
}

// A small active message as it arrived: pointers into the packet.
struct ActiveMessage {
  std::uint32_t handler;
  std::uint32_t header_bytes;
  const std::byte* header;
  const std::byte* payload;
  std::uint32_t payload_bytes;
};

// The length of the header of a small active message of either class.
constexpr std::uint32_t header_bytes_of(std::uint32_t immediate) {
  return immediate >> kHeaderShift & kHeaderMask;
}

// Packet: header padded to 8 bytes, then payload. Empty: not well formed.
inline std::optional<ActiveMessage> decode_am(std::uint32_t immediate, std::span<const std::byte> packet) {
  const std::uint32_t header_bytes = header_bytes_of(immediate);
  const std::uint32_t padded = pad8(header_bytes);
  if (header_bytes > HEDDLE_AM_HEADER_BYTES || padded > packet.size()) return std::nullopt;
  return ActiveMessage{immediate & kHandlerMask, header_bytes, packet.data(), packet.data() + padded,
                       static_cast<std::uint32_t>(packet.size() - padded)};
}

// ---- part of a large active message -------------------------------------------------------------

// The part with offset 0 carries the message's header (padded to 8) between this and its payload.
struct FragmentHeader {
  // the sender's; returned in the reply when the whole message has arrived
  std::uint64_t token;
  std::uint64_t message;      // number of the message, per sending worker
  std::uint64_t total_bytes;  // of the whole payload
  std::uint64_t offset;       // of this part in the payload
  std::uint32_t handler;      // of either class
  std::uint32_t header_bytes;
};
static_assert(sizeof(FragmentHeader) == 40);

struct Fragment {
  FragmentHeader head;
  std::span<const std::byte> header;   // of the message; empty unless offset is 0
  std::span<const std::byte> payload;  // this part
};
std::optional<Fragment> decode_fragment(std::span<const std::byte> packet);

// ---- large active message that the receiver fetches ---------------------------------------------

inline constexpr std::uint32_t kAmOffer = immediate_of(Kind::fragment) | 1U << 28;
inline constexpr std::size_t kAmOfferKeyBytes = 48;

// Its payload stays in the sender's memory until the reply to the token. The message's header
// follows.
struct AmOfferHeader {
  std::uint64_t token;    // the sender's; returned in the reply when the payload has been fetched
  std::uint64_t bytes;    // of the payload
  std::uint64_t region;   // the sender's number for the memory
  std::uint32_t handler;  // of either class
  std::uint32_t header_bytes;
  std::uint8_t key[kAmOfferKeyBytes];
};
static_assert(sizeof(AmOfferHeader) == 80);

struct AmOffer {
  AmOfferHeader head;
  std::span<const std::byte> header;  // of the message
};
std::optional<AmOffer> decode_am_offer(std::span<const std::byte> packet);

// ---- put, get and atomics by message, where a transport lacks them ------------------------------

enum class RequestKind : std::uint32_t { put = 0, get = 1, atomic = 2 };

struct RequestHeader {
  std::uint64_t token;   // the requester's; returned in the reply
  std::uint64_t region;  // the target's region number
  std::uint64_t offset;
  std::uint64_t bytes;  // put: of the payload that follows. get: wanted. atomic: 4 or 8
  std::uint64_t operand;
  std::uint64_t compare;
  std::uint64_t piece;  // get: where the answer belongs in the requester's buffer
  RequestKind kind;
  std::uint32_t atomic_op;
};
static_assert(sizeof(RequestHeader) == 64);

struct DecodedRequest {
  RequestHeader head;
  std::span<const std::byte> payload;
};
std::optional<DecodedRequest> decode_request(std::span<const std::byte> packet);

struct ReplyHeader {
  std::uint64_t token;
  std::uint64_t value;   // atomic: the old value
  std::uint64_t offset;  // get: of this data in the requester's buffer
  std::int32_t status;   // heddle_status: DONE or an error
  std::uint32_t last;    // 1: the request is finished; 0: more data of a get follows
};
static_assert(sizeof(ReplyHeader) == 32);

struct Reply {
  ReplyHeader head;
  std::span<const std::byte> payload;
};
std::optional<Reply> decode_reply(std::span<const std::byte> packet);

// A status with which an operation may end.
constexpr bool status_known(std::int32_t status) {
  return status <= HEDDLE_DONE && status >= HEDDLE_ERR_TRUNCATED;
}

constexpr std::uint32_t atomic_bytes(std::uint32_t op) {
  return op >= HEDDLE_ADD64 ? 8 : 4;
}
constexpr bool atomic_known(std::uint32_t op) {
  return (op & 7U) <= HEDDLE_COMPARE_SWAP32 && op <= HEDDLE_COMPARE_SWAP64;
}

inline constexpr std::size_t kTransportKeyBytes = 48;   // what one rank needs
inline constexpr std::size_t kTransportKeysBytes = 80;  // what any rank needs

// A region's name as bytes, for any rank of the same job.
struct PackedRegion {
  std::uint64_t job = 0;  // digest of the job's secret, so that a region of another job is rejected
  std::uint32_t rank = 0;
  std::uint64_t region = 0;  // the owner's region number
  std::uint64_t bytes = 0;
  std::array<std::byte, kTransportKeysBytes> key{};
  bool narrow = false;  // read from a narrow one: the key is what one rank needs
};

// for a key of at most kTransportKeyBytes
inline constexpr std::size_t kNarrowRegionBytes = 96;
inline constexpr std::size_t kPackedRegionBytes = 128;
static_assert(kPackedRegionBytes <= HEDDLE_PACKED_REGION_BYTES);

// A narrow region is followed by zeros.
std::array<std::byte, kPackedRegionBytes> encode(const PackedRegion& region);
// For a key of at most kTransportKeyBytes; the bytes after these are left out.
std::array<std::byte, kNarrowRegionBytes> encode_narrow(const PackedRegion& region);
// How many bytes of encode()'s result count.
std::size_t packed_bytes(const PackedRegion& region);

// PROTOCOL: wrong length, magic or checksum. VERSION: another layout. The caller checks ranges.
base::Result<PackedRegion> decode_region(std::span<const std::byte> bytes);

// FNV-1a, for checksums against accidents and for digests; no protection against forgery.
std::uint64_t digest(std::span<const std::byte> bytes);

}  // namespace heddle::wire
