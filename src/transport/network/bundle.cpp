#include "transport/network/bundle.hpp"

#include <cstring>

namespace heddle::transport::network {

std::size_t bundle_of(std::span<const Command> batch, const StreamPeer& peer, std::uint32_t window,
                      const Undelivered& undelivered) {
  std::uint32_t bytes = sizeof(Head);
  std::uint32_t cost = 0;
  std::size_t count = 0;
  for (const Command& command : batch) {
    if (command.opcode != Opcode::message || command.rank != peer.rank || command.worker != peer.worker) break;
    if (command.header_bytes > kMostPart || command.bytes > kMostPart) break;
    const auto packet = static_cast<std::uint32_t>(command.packet_bytes());
    bytes += part_bytes(packet);
    cost += cost_of(packet);
    if (packet > kMostPart || bytes > kMostBundle || peer.is_full(cost, window) ||
        !undelivered.has_room(static_cast<std::uint32_t>(count) + 1))
      break;
    ++count;
  }
  return count;
}

std::uint32_t write_bundle(std::span<Command> batch, StreamPeer& peer, Undelivered& undelivered, std::byte* to) {
  std::byte* const begin = to;
  for (Command& command : batch) {
    const Part part{static_cast<std::uint32_t>(command.packet_bytes()), command.immediate};
    const std::uint32_t room = part_bytes(part.bytes);
    std::memset(to + room - 8, 0, 8);
    std::memcpy(to, &part, sizeof part);
    write_packet(command, to + sizeof part);
    to += room;
    peer.next.position += cost_of(part.bytes);
    undelivered.remember(peer, command.token, cost_of(part.bytes));
    command.source_free = true;
  }
  return static_cast<std::uint32_t>(to - begin);
}

}  // namespace heddle::transport::network
