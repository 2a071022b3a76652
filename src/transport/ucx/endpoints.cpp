#include "transport/ucx/endpoints.hpp"

#include <algorithm>
#include <new>

#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {
namespace {

// How long a greeting is tried by value; after that it is sent as an ordinary message, for networks
// that cannot do that.
constexpr std::uint64_t kGreetNs = 200'000'000;

}  // namespace

Endpoints::Endpoints(Port& port, Device& device)
    : port_(port),
      device_(device),
      size_(device.size()),
      max_workers_(device.max_workers()),
      by_worker_(std::size_t{size_} * max_workers_),
      failed_(size_) {}

PeerState* Endpoints::use(std::uint32_t rank, std::uint32_t worker, base::Status* why) {
  if (rank >= size_) {
    *why = base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %u", rank, size_ - 1);
    return nullptr;
  }
  if (worker >= max_workers_) {
    *why = base::fail(HEDDLE_ERR_RANK, "worker %u of rank %u; there are at most %u", worker, rank, max_workers_);
    return nullptr;
  }
  PeerState* peer = slot(rank, worker);
  if (peer == nullptr) {
    if (failed(rank) || device_.failed(rank)) {
      *why = HEDDLE_ERR_PEER_FAILED;
      return nullptr;
    }
    peer = new_peer(rank, worker);
    if (peer == nullptr) {
      *why = HEDDLE_AGAIN;
      return nullptr;
    }
  }
  if (peer->stage == PeerState::Stage::unopened) connect(*peer);
  if (peer->stage != PeerState::Stage::broken) return peer;
  *why = peer->status;
  return nullptr;
}

// All lists have room for all peers, so that nothing needs memory later. Null: there is no memory.
PeerState* Endpoints::new_peer(std::uint32_t rank, std::uint32_t worker) try {
  auto made = std::make_unique<PeerState>();
  const std::size_t count = all_.size() + 1;
  make_room(&all_, count);
  for (auto* list : {&connecting_, &lost_, &dying_}) make_room(list, count);
  make_room(&closing_, count);
  port_.make_room_for(count);
  made->port = &port_;
  made->rank = rank;
  made->worker = worker;
  made->pass = pass_of(rank, worker, device_.secret());
  made->next.rank = device_.rank();
  made->next.worker = port_.index();
  made->next.pass = pass_of(device_.rank(), port_.index(), device_.secret());
  if (failed(rank)) {
    made->stage = PeerState::Stage::broken;
    made->status = HEDDLE_ERR_PEER_FAILED;
  }
  all_.push_back(std::move(made));
  return slot(rank, worker) = all_.back().get();
} catch (const std::bad_alloc&) {
  return nullptr;
}

// Nothing has arrived from it yet, or its pass is wrong.
[[gnu::cold]] PeerState* Endpoints::new_sender(std::uint32_t rank, std::uint32_t worker, std::uint32_t pass) {
  if (rank >= size_ || worker >= max_workers_ || pass != pass_of(rank, worker, device_.secret())) return nullptr;
  PeerState* peer = slot(rank, worker);
  if (peer == nullptr) peer = new_peer(rank, worker);
  if (peer == nullptr) {
    device_.log().line(base::Level::error, "no memory to hear worker %u of rank %u", worker, rank);
    return nullptr;
  }
  if (!std::exchange(peer->heard, true) && peer->stage == PeerState::Stage::unopened) {
    port_.credits().promise(*peer);  // it waits for our greeting
  }
  return peer;
}

bool Endpoints::closed(TransportWorker::Target target) const {
  const PeerState* peer = known(target.rank, target.worker);
  if (peer == nullptr) return false;
  if (peer->ready()) return device_.directory().known_closed(target.rank, target.worker);
  return peer->stage == PeerState::Stage::closed;
}

void Endpoints::connect(PeerState& peer) {
  peer.stage = PeerState::Stage::connecting;
  connecting_.push_back(&peer);
  busy_ = true;
  if (advance(peer)) connecting_.pop_back();
  port_.set_waits_for_device(connecting());
  if (connecting()) port_.leaves_something();  // a question, which the device sends
}

void Endpoints::advance() {
  std::erase_if(connecting_, [this](PeerState* peer) { return advance(*peer); });
  port_.set_waits_for_device(connecting());
}

// True: it is not connecting any more, for one reason or another.
bool Endpoints::advance(PeerState& peer) {
  if (peer.stage == PeerState::Stage::greeting) return greet(peer);
  if (peer.stage != PeerState::Stage::connecting) return true;
  const auto address = device_.directory().address(peer.rank, peer.worker);
  if (address) return find_way(peer, (*address)->data());
  if (address.status() == HEDDLE_AGAIN || address.status() == HEDDLE_ERR_NO_MEMORY) return false;
  const bool closed = address.status() == HEDDLE_ERR_STATE;
  end(peer, closed ? PeerState::Stage::closed : PeerState::Stage::broken, closed ? HEDDLE_DONE : address.status());
  return true;
}

bool Endpoints::find_way(PeerState& peer, const void* address) {
  const ucs_status_t status = device_.connect(port_.worker(), address, on_broken, &peer, &peer.endpoint);
  if (status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE) return false;
  if (status != UCS_OK) {
    device_.lose(peer.rank);
    device_.log().line(base::Level::error, "UCX finds no way to worker %u of rank %u: %s", peer.worker, peer.rank,
                       port_.call().status_string(status));
    end(peer, PeerState::Stage::broken, HEDDLE_ERR_PEER_FAILED);
    return true;
  }
  if (device_.recovers() && peer.rank != device_.rank()) {
    peer.stage = PeerState::Stage::greeting;
    peer.greets_since = port_.now_ns();
    return greet(peer);
  }
  become_ready(peer);
  return true;
}

// UCX 1.13 aborts if a peer dies while the answer to that peer's first request waits for a
// connection to be made. So no request that needs an answer is sent before both ends have made
// their connections: each end sends a credit, which leaves at once or not at all, and waits for the
// other's. True: it is not connecting any more.
bool Endpoints::greet(PeerState& peer) {
  if (!peer.greeted) {
    const bool by_value = port_.now_ns() - peer.greets_since < kGreetNs;
    const ucs_status_t sent = port_.outgoing().send_credit(peer, by_value);
    if (sent == UCS_ERR_NO_RESOURCE) return false;
    if (sent != UCS_OK) return true;
    peer.greeted = true;
  }
  // To answer, the peer asks for the address of this worker, which it does not get once this worker
  // is closed.
  if (!peer.heard && !port_.closed() && !device_.directory().known_closed(peer.rank, peer.worker)) return false;
  become_ready(peer);
  return true;
}

void Endpoints::become_ready(PeerState& peer) {
  peer.stage = PeerState::Stage::ready;
  peer.note_way();
  port_.outgoing().send_waiting(peer);
}

// It is not ready any more, and never will be.
void Endpoints::end(PeerState& peer, PeerState::Stage stage, base::Status status) {
  peer.stage = stage;
  peer.note_way();
  peer.status = status;
  port_.outgoing().drop_waiting(peer);
  port_.outgoing().end_all(peer, status);
}

bool Endpoints::has_waiting() const {
  return std::ranges::any_of(
      connecting_, [this](const PeerState* peer) { return peer->waiting_count != 0 && !device_.failed(peer->rank); });
}

}  // namespace heddle::transport::ucx
