#include "transport/network/peers.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "transport/network/device.hpp"
#include "transport/network/port.hpp"

namespace heddle::transport::network {

Peers::Peers(Port& port, Device& device)
    : port_(port),
      device_(device),
      size_(device.size()),
      max_workers_(device.max_workers()),
      by_worker_(std::size_t{size_} * max_workers_),
      failed_(size_) {}

Peer* Peers::use(std::uint32_t rank, std::uint32_t worker, base::Status* why) {
  if (rank >= size_) {
    *why = base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %u", rank, size_ - 1);
    return nullptr;
  }
  if (worker >= max_workers_) {
    *why = base::fail(HEDDLE_ERR_RANK, "worker %u of rank %u; there are at most %u", worker, rank, max_workers_);
    return nullptr;
  }
  Peer* peer = slot(rank, worker);
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
  if (peer->stage == Peer::Stage::unopened) connect(*peer);
  if (peer->stage != Peer::Stage::broken) return peer;
  *why = peer->status;
  return nullptr;
}

// All lists have room for all peers, so that nothing needs memory later. Null: there is no memory.
Peer* Peers::new_peer(std::uint32_t rank, std::uint32_t worker) try {
  std::unique_ptr<Peer> made = port_.make_peer();
  const std::size_t count = all_.size() + 1;
  make_room(&all_, count);
  make_room(&connecting_, count);
  port_.make_room_for(count);
  made->rank = rank;
  made->worker = worker;
  port_.begin_stream(*made);
  if (failed(rank)) {
    made->stage = Peer::Stage::broken;
    made->status = HEDDLE_ERR_PEER_FAILED;
  }
  all_.push_back(std::move(made));
  return slot(rank, worker) = all_.back().get();
} catch (const std::bad_alloc&) {
  return nullptr;
}

bool Peers::note_failed(std::uint32_t rank) {
  return rank < size_ && std::exchange(failed_[rank], std::uint8_t{1}) == 0;
}

bool Peers::closed(TransportWorker::Target target) const {
  const Peer* peer = known(target.rank, target.worker);
  if (peer == nullptr) return false;
  if (peer->stage == Peer::Stage::closed) return true;
  // a connection may break because its worker was closed
  const bool had_one = peer->ready() || peer->stage == Peer::Stage::broken;
  return had_one && device_.directory().known_closed(target.rank, target.worker);
}

// Peers that have no connection yet, also those of a rank that has not answered.
std::size_t Peers::unopened(std::span<TransportWorker::Unopened> found) const {
  std::size_t count = 0;
  for (const Peer* peer : connecting_) {
    if (peer->waiting == 0 || peer->stage == Peer::Stage::handshake || failed(peer->rank)) continue;
    if (count == found.size()) break;
    found[count++] = {{peer->rank, peer->worker}, peer->waiting};
  }
  return count;
}

void Peers::connect(Peer& peer) {
  peer.stage = Peer::Stage::connecting;
  go_on_connecting(peer);
}

void Peers::go_on_connecting(Peer& peer) {
  connecting_.push_back(&peer);
  if (advance(peer)) connecting_.pop_back();
  port_.set_waits_for_device(connecting());
  if (connecting()) port_.leaves_something();  // a question, which the device sends
}

void Peers::advance() {
  std::erase_if(connecting_, [this](Peer* peer) { return advance(*peer); });
  port_.set_waits_for_device(connecting());
}

// True: it is not connecting any more, for one reason or another.
bool Peers::advance(Peer& peer) {
  if (peer.stage == Peer::Stage::handshake) return port_.go_on_with_handshake(peer);
  if (peer.stage != Peer::Stage::connecting) return true;
  const auto address = device_.directory().address(peer.rank, peer.worker);
  if (address) return port_.open(peer, **address) && peer.stage != Peer::Stage::handshake;
  if (address.status() == HEDDLE_AGAIN || address.status() == HEDDLE_ERR_NO_MEMORY) return false;
  const bool closed = address.status() == HEDDLE_ERR_STATE;
  end(peer, closed ? Peer::Stage::closed : Peer::Stage::broken, closed ? HEDDLE_DONE : address.status());
  return true;
}

void Peers::end(Peer& peer, Peer::Stage stage, base::Status status) {
  peer.stage = stage;
  peer.status = status;
  port_.on_end(peer);
  port_.end_messages(peer, status);
}

bool Peers::has_waiting() const {
  return std::ranges::any_of(connecting_,
                             [this](const Peer* peer) { return peer->waiting != 0 && !device_.failed(peer->rank); });
}

}  // namespace heddle::transport::network
