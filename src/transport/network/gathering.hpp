// Short messages to a peer that is busy: they are gathered in a packet, a bundle, and leave
// together, with one call of the library and of the kernel. A peer is busy while much of what was
// sent to it has not arrived, as far as is known; so the first messages of a burst leave at once. A
// bundle leaves when it is full, before any other message to the peer, and with the next poll, also
// one by the helper in its owner's place. So it waits for 10 ms at most, and only if its owner does
// not poll. While the helper may not serve the port (Port::owners_only()), it waits for its owner.
//
// Invariant: `peer.gathered` is not null exactly for the peers in the list; those are ready, and no
// message goes to them by value.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "transport/network/bundle.hpp"

namespace heddle::transport::network {

// PeerState: a StreamPeer with `Packet* gathered` and update_by_value(), which decides whether
// messages go by value. Outgoing: begin_bundle(peer), null if no packet is free, and send(peer,
// packet).
template <class PeerState, class Outgoing>
class Gathering {
 public:
  Gathering(Outgoing& outgoing, Undelivered& undelivered) : outgoing_(outgoing), undelivered_(undelivered) {}
  void make_room_for(std::size_t peers) { make_room(&gathering_, peers); }

  [[nodiscard]] bool empty() const { return gathering_.empty(); }
  // A message that may leave: the peer is ready, and there is credit and room for it.
  [[nodiscard]] static bool is_for(const PeerState& peer, std::uint32_t packet_bytes) {
    return packet_bytes <= kMostPart && peer.busy() && peer.ready();
  }
  // False: no packet is free.
  [[nodiscard]] bool add(PeerState& peer, Command& command) {
    const std::uint32_t bytes = part_bytes(static_cast<std::uint32_t>(command.packet_bytes()));
    if (peer.gathered != nullptr && peer.gathered->bytes + bytes > kMostBundle) leave(peer);
    if (peer.gathered == nullptr && !begin(peer)) return false;
    auto* packet = peer.gathered;
    packet->bytes += write_bundle(std::span(&command, 1), peer, undelivered_, packet->data + packet->bytes);
    return true;
  }
  // Before another message to the peer.
  void leave(PeerState& peer) {
    if (auto* packet = drop(peer); packet != nullptr) static_cast<void>(outgoing_.send(peer, packet));
  }
  void leave_all() {
    while (!gathering_.empty()) leave(*gathering_.back());
  }
  // Returns the packet, or null. The packet does not leave.
  auto* drop(PeerState& peer) {
    auto* packet = std::exchange(peer.gathered, nullptr);
    if (packet != nullptr) std::erase(gathering_, &peer);
    peer.update_by_value();
    return packet;
  }

 private:
  bool begin(PeerState& peer) {
    peer.gathered = outgoing_.begin_bundle(peer);
    if (peer.gathered == nullptr) return false;
    gathering_.push_back(&peer);
    peer.update_by_value();
    return true;
  }

  Outgoing& outgoing_;
  Undelivered& undelivered_;
  std::vector<PeerState*> gathering_;
};

}  // namespace heddle::transport::network
