// Several messages to one worker as one message of the transport, of kind `packet`. How it looks:
//
//   record   immediate (4 bytes), length (4 bytes), then header and payload as the message would
//            carry them: the header with zeros up to a multiple of 8, the payload. Zeros up to a
//            multiple of 8.
//   packet   one or more records
//
// So a message lies 8-byte aligned in its packet if that is, and the receiver handles it where it
// lies, as if it had come alone. No packet lies in a packet, nor does a part of a large message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "wire/packet.hpp"

namespace heddle::protocol {

struct PackedRecord {
  std::uint32_t immediate;
  std::uint32_t bytes;  // of header and payload, without the zeros behind
};
static_assert(sizeof(PackedRecord) == 8);

constexpr bool may_be_packed(std::uint32_t immediate) {
  const wire::Kind kind = wire::kind_of(immediate);
  return kind != wire::Kind::packet && kind != wire::Kind::fragment && kind != wire::Kind::invalid;
}

// What a message takes of a packet.
constexpr std::uint64_t packed_bytes(std::uint32_t header_bytes, std::uint64_t payload_bytes) {
  const std::uint64_t header = (std::uint64_t{header_bytes} + 7) & ~std::uint64_t{7};
  return sizeof(PackedRecord) + header + ((payload_bytes + 7) & ~std::uint64_t{7});
}

// Writes the message at `room`, which has packed_bytes() for it.
void pack(std::byte* room, std::uint32_t immediate, std::span<const std::byte> header,
          std::span<const std::byte> payload);

// Reads a packet, whatever it holds: never beyond it, even if it changes meanwhile.
class PacketReader {
 public:
  struct Message {
    std::uint32_t immediate;
    std::span<const std::byte> bytes;  // lies in the packet
  };
  explicit PacketReader(std::span<const std::byte> packet) : rest_(packet) {}

  // The next message; empty: there is none, or what follows is not well formed (see ended()).
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
  // All of it has been read.
  [[nodiscard]] bool ended() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

// One record or more, and nothing besides: what is not well formed is refused before any of it is
// handled.
[[nodiscard]] bool well_formed_packet(std::span<const std::byte> packet);

}  // namespace heddle::protocol
