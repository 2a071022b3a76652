#include "transport/network/credits.hpp"

#include <algorithm>
#include <utility>

#include "transport/network/stream_port.hpp"

namespace heddle::transport::network {

void Credits::promise(StreamPeer& peer) {
  if (std::exchange(peer.owing, true)) return;
  owing_.push_back(&peer);
}

void Credits::note_first_arrival(StreamPeer& peer) {
  peer.telling = true;
  if (telling_.empty()) waited_ = idle_ = 0;
  telling_.push_back(&peer);
}

bool Credits::owes_the_living() const {
  return std::ranges::any_of(owing_, [this](const StreamPeer* peer) { return !losses_.failed(peer->rank); });
}

void Credits::tell_all() {
  for (StreamPeer* peer : telling_) {
    peer->telling = false;
    if (peer->told_arrived != peer->next.arrived) promise(*peer);
  }
  telling_.clear();
  send_owed();
}

void Credits::send_owed() {
  for (std::size_t i = 0; i < owing_.size(); ++i) send_if_ready(*owing_[i]);
  std::erase_if(owing_, [](const StreamPeer* peer) { return !peer->owing; });
}

void Credits::send_if_ready(StreamPeer& peer) {
  if (peer.stage == StreamPeer::Stage::unopened) port_.connect(peer);
  if (peer.over() || peer.all_told()) {
    peer.owing = false;
  } else if (peer.ready()) {
    peer.owing = !port_.send_credit(peer);
  }
}

}  // namespace heddle::transport::network
