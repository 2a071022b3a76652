#include "transport/ucx/endpoints.hpp"

#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {
namespace {

// How long a handshake is tried by value; after that it is sent as an ordinary message, for
// networks that cannot do that.
constexpr std::uint64_t kHandshakeNs = 200'000'000;

}  // namespace

bool Endpoints::open(PeerState& peer, const Bytes& address) {
  const ucs_status_t status = device_.connect(port_.worker(), address.data(), on_broken, &peer, &peer.endpoint);
  if (status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE) return false;
  if (status != UCS_OK) {
    device_.lose(peer.rank);
    device_.log().line(base::Level::error, "UCX finds no route to worker %u of rank %u: %s", peer.worker, peer.rank,
                       port_.call().status_string(status));
    port_.peers().end(peer, PeerState::Stage::broken, HEDDLE_ERR_PEER_FAILED);
    return true;
  }
  if (device_.recovers() && peer.rank != device_.rank()) {
    peer.stage = PeerState::Stage::handshake;
    peer.handshake_since = port_.now_ns();
    return go_on_with_handshake(peer);
  }
  become_ready(peer);
  return true;
}

// UCX 1.13 aborts if a peer dies while the answer to that peer's first request waits for a
// connection to be made. So no request that needs an answer is sent before both ends have made
// their connections: each end sends a credit, which leaves at once or not at all, and waits for the
// other's.
bool Endpoints::go_on_with_handshake(PeerState& peer) {
  if (!peer.handshake_sent) {
    const bool tries = port_.now_ns() - peer.handshake_since < kHandshakeNs;
    const ucs_status_t sent = port_.outgoing().send_credit(peer, tries ? Outgoing::As::value : Outgoing::As::packet);
    if (sent == UCS_ERR_NO_RESOURCE) return false;
    if (sent != UCS_OK) return true;
    peer.handshake_sent = true;
  }
  // To answer, the peer asks for the address of this worker, which it does not get once this worker
  // is closed.
  if (!peer.heard && !port_.closed() && !device_.directory().known_closed(peer.rank, peer.worker)) return false;
  become_ready(peer);
  return true;
}

void Endpoints::become_ready(PeerState& peer) {
  peer.stage = PeerState::Stage::ready;
  peer.update_by_value();
  port_.outgoing().send_waiting(peer);
}

}  // namespace heddle::transport::ucx
