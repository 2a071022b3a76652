#include <algorithm>
#include <utility>

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

// Lost connections: operations under way there fail, and UCX's endpoints are closed when that is
// safe.

namespace {

// How long UCX may take to find out by itself that a peer has died.
constexpr std::uint64_t kDyingNs = 100'000'000;
// How long UCX may take to end the operations of a closed endpoint: over TCP one round of progress,
// otherwise until a device has flushed. After that time UCX has forgotten the operations that are
// left.
constexpr std::uint64_t kForgottenNs = 50'000'000;
constexpr std::uint32_t kForgottenRounds = 8;

}  // namespace

void Endpoints::note_lost(PeerState& peer) {
  busy_ = true;
  if (std::ranges::find(lost_, &peer) == lost_.end()) lost_.push_back(&peer);
}

void Endpoints::on_broken(void* arg, ucp_ep_h, ucs_status_t status) {
  PeerState& peer = *static_cast<PeerState*>(arg);
  if (peer.over() && peer.endpoint == nullptr) return;
  Endpoints& self = peer.port->endpoints();
  peer.has_gap = false;
  self.port_.log_lost(peer, self.port_.call().status_string(status));
  self.note_lost(peer);
}

void Endpoints::lose(std::uint32_t rank, std::uint32_t worker) {
  if (!device_.only_worker_ended(rank, worker)) device_.lose(rank);
}

void Endpoints::disconnect_all() {
  for (const auto& peer : port_.peers().all()) disconnect(state_of(*peer), Close::now);
}

// UCX may still be answering the peer's handshake, and 1.13 aborts when the answer is cut off: so
// an endpoint that is not safe to close stays, with its operations.
void Endpoints::disconnect(PeerState& peer, Close close_it) {
  const bool now = close_it == Close::now;
  const bool again = peer.disconnected || peer.stage == PeerState::Stage::broken;
  if (again && (peer.endpoint == nullptr || !now)) return;
  peer.disconnected = true;
  if (device_.only_worker_ended(peer.rank, peer.worker)) {
    port_.peers().end(peer, PeerState::Stage::closed, HEDDLE_DONE);
  } else {
    if (!port_.closed()) device_.lose(peer.rank);
    port_.peers().end(peer, PeerState::Stage::broken, HEDDLE_ERR_PEER_FAILED);
  }
  if (peer.endpoint != nullptr) {
    const bool can = device_.recovers();
    if (can && !now && peer.used && !port_.closed()) {
      // First reads everything that the dead peer has sent: UCX 1.13 aborts on an acknowledgement
      // that comes after its connection was cut (tcp_ep.c:939).
      peer.dies_at = port_.now_ns() + kDyingNs;
      dying_.push_back(&peer);
      busy_ = true;
    } else if (can && (now || peer.used)) {
      close(peer);
    } else {
      port_.transfers().orphan(peer);
    }
  }
  if (!peer.flush_flies) port_.transfers().end_flush(peer, HEDDLE_ERR_PEER_FAILED);
}

// A closed endpoint still has all its operations: a later round of progress takes the connection
// down and ends them. Until then UCX may write a reply to the caller's memory, so no transfer
// completes before.
void Endpoints::close(PeerState& peer) {
  void* request = force_close(port_.call(), std::exchange(peer.endpoint, nullptr));
  if (request == nullptr && !port_.transfers().holds_some(peer)) return;
  closing_.push_back({&peer, request, port_.now_ns() + kForgottenNs, 0});
  busy_ = true;
}

void Endpoints::go_on_disconnecting() {
  while (!lost_.empty()) {
    PeerState& peer = *lost_.back();
    lost_.pop_back();
    disconnect(peer, peer.has_gap ? Close::when_safe : Close::now);
  }
  std::erase_if(dying_, [this](PeerState* peer) {
    if (peer->endpoint != nullptr && port_.now_ns() < peer->dies_at) return false;
    if (peer->endpoint != nullptr) disconnect(*peer, Close::now);
    return true;
  });
  if (!closing_.empty()) end_closing();
  busy_ = disconnecting();
}

// Not to be called within UCX's progress.
[[gnu::cold]] void Endpoints::end_closing() {
  port_.progress();
  std::erase_if(closing_, [this](Closing& closing) {
    if (closing.request != nullptr) {
      if (port_.call().request_check_status(closing.request) == UCS_INPROGRESS) return false;
      port_.call().request_free(std::exchange(closing.request, nullptr));
    }
    if (port_.transfers().holds_some(*closing.peer)) {
      if (++closing.rounds < kForgottenRounds || port_.now_ns() < closing.until) return false;
      port_.transfers().abandon(*closing.peer);
    }
    return true;
  });
}

}  // namespace heddle::transport::ucx
