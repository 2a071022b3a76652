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
  if (!peer.ready() || peer.credit_flies) return;
  peer.owing = false;
  if (send(peer, false) == UCS_OK) peer.used = true;
}

ucs_status_t Credits::send(PeerState& peer, bool by_value) {
  peer.credit = peer.next;
  void* request = send_message(port_.call(), peer.endpoint, kCreditId, &peer.credit, sizeof peer.credit, on_sent, &peer,
                               by_value ? UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL : 0);
  if (UCS_PTR_IS_ERR(request)) {
    const ucs_status_t status = UCS_PTR_STATUS(request);
    if (!by_value || status != UCS_ERR_NO_RESOURCE) Endpoints::on_broken(&peer, peer.endpoint, status);
    return status;
  }
  peer.has_told(peer.credit);
  if (request == nullptr) return UCS_OK;
  peer.credit_flies = true;
  ++flying_;
  port_.leaves_something();
  return UCS_INPROGRESS;
}

void Credits::on_sent(void* request, ucs_status_t status, void* user) {
  auto& peer = *static_cast<PeerState*>(user);
  Port& port = *peer.port;
  if (status == UCS_OK) peer.used = true;
  peer.credit_flies = false;
  --port.credits().flying_;
  port.call().request_free(request);
}

}  // namespace heddle::transport::ucx
