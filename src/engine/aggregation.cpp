#include "engine/aggregation.hpp"

namespace heddle::engine {

void pack(std::byte* room, std::uint32_t immediate, std::span<const std::byte> header,
          std::span<const std::byte> payload) {
  const auto put = [&room](std::span<const std::byte> bytes) {
    const std::size_t over = bytes.size() % 8;
    const std::size_t padded = bytes.size() + (over == 0 ? 0 : 8 - over);
    if (over != 0) std::memset(room + padded - 8, 0, 8);
    if (!bytes.empty()) std::memcpy(room, bytes.data(), bytes.size());
    room += padded;
  };
  const std::uint64_t header_room = (header.size() + 7) & ~std::uint64_t{7};
  const PackedRecord record{immediate, static_cast<std::uint32_t>(header_room + payload.size())};
  std::memcpy(room, &record, sizeof record);
  room += sizeof record;
  put(header);
  put(payload);
}

bool well_formed_packet(std::span<const std::byte> packet) {
  PacketReader reader(packet);
  bool any = false;
  while (reader.next()) any = true;
  return any && reader.ended();
}

}  // namespace heddle::engine
