#include "transport/ucx/credits.hpp"

#include <algorithm>

#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {

Credits::Credits(Port& port, Device& device) : port_(port), device_(device), half_window_(device.window() / 2) {}

void Credits::make_room_for(std::size_t peers) {
  make_room(&owing_, peers);
  make_room(&telling_, peers);
}

void Credits::promise(PeerState& peer) {
  if (std::exchange(peer.owing, true)) return;
  owing_.push_back(&peer);
}

void Credits::note_first_arrival(PeerState& peer) {
  peer.telling = true;
  if (telling_.empty()) waited_ = 0;
  telling_.push_back(&peer);
}

bool Credits::owes_the_living() const {
  return std::ranges::any_of(owing_, [this](const PeerState* peer) { return !device_.failed(peer->rank); });
}

void Credits::tell_all() {
  for (PeerState* peer : telling_) {
    peer->telling = false;
    if (peer->told_arrived != peer->next.arrived) promise(*peer);
  }
  telling_.clear();
  send_owed();
}

void Credits::send_owed() {
  for (std::size_t i = 0; i < owing_.size(); ++i) send_if_ready(*owing_[i]);
  std::erase_if(owing_, [](const PeerState* peer) { return !peer->owing; });
}

void Credits::send_if_ready(PeerState& peer) {
  if (peer.stage == PeerState::Stage::unopened) port_.endpoints().connect(peer);
  if (peer.over() || peer.all_told()) {
    peer.owing = false;
    return;
  }
  // What UCX still has tells it, or is told of later.
  if (!peer.ready() || peer.in_flight != 0) return;
  const ucs_status_t sent = port_.outgoing().send_credit(peer, false);
  peer.owing = sent == UCS_ERR_NO_RESOURCE;
  if (sent == UCS_OK && peer.in_flight == 0) peer.used = true;
}

}  // namespace heddle::transport::ucx
