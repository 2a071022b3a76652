// Several messages to one worker as one message of the transport, of kind `packet`. How it looks:
//
//   record   immediate (4 bytes), length (4 bytes), then header and payload as the message would
//            carry them: the header with zeros up to a multiple of 8, the payload. Zeros up to a
//            multiple of 8.
//   packet   one or more records
//
// A message thus lies 8-byte aligned in a packet that is 8-byte aligned. The receiver handles it in
// place, as if it had arrived by itself. A packet contains neither a packet nor a part of a large
// message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "wire/packet.hpp"

namespace heddle::engine {

struct PackedRecord {
  std::uint32_t immediate;
  std::uint32_t bytes;  // of header and payload, without the zeros behind the payload
};
static_assert(sizeof(PackedRecord) == 8);

constexpr bool may_be_packed(std::uint32_t immediate) {
  const wire::Kind kind = wire::kind_of(immediate);
  return kind != wire::Kind::packet && kind != wire::Kind::fragment && kind != wire::Kind::invalid;
}

// Bytes that a message takes in a packet.
constexpr std::uint64_t packed_bytes(std::uint32_t header_bytes, std::uint64_t payload_bytes) {
  const std::uint64_t header = (std::uint64_t{header_bytes} + 7) & ~std::uint64_t{7};
  return sizeof(PackedRecord) + header + ((payload_bytes + 7) & ~std::uint64_t{7});
}

// Writes the message to `room`, which must have at least packed_bytes() bytes.
void pack(std::byte* room, std::uint32_t immediate, std::span<const std::byte> header,
          std::span<const std::byte> payload);

// Reads a packet, whatever it contains. Never reads beyond its end, even if the packet changes
// meanwhile.
class PacketReader {
 public:
  struct Message {
    std::uint32_t immediate;
    std::span<const std::byte> bytes;  // lies in the packet
  };
  explicit PacketReader(std::span<const std::byte> packet) : rest_(packet) {}

  // The next message. Empty: no message is left, or the rest is not well formed (see ended()).
  [[nodiscard]] std::optional<Message> next() {
    PackedRecord record{};
    if (rest_.size() < sizeof record) return std::nullopt;
    std::memcpy(&record, rest_.data(), sizeof record);
    const std::span<const std::byte> body = rest_.subspan(sizeof record);
    const std::uint64_t padded = (std::uint64_t{record.bytes} + 7) & ~std::uint64_t{7};
    if (padded > body.size() || !may_be_packed(record.immediate)) return std::nullopt;
    rest_ = body.subspan(padded);
    return Message{record.immediate, body.first(record.bytes)};
  }
  // True: the whole packet has been read.
  [[nodiscard]] bool ended() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

// True: the packet is one or more records and nothing else. A packet that is not well formed is
// refused before any part of it is handled.
[[nodiscard]] bool well_formed_packet(std::span<const std::byte> packet);

}  // namespace heddle::engine
