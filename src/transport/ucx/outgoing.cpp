#include "transport/ucx/port.hpp"

#include <cstring>

#include "transport/common/rejections.hpp"
#include "transport/network/streams.hpp"

namespace heddle::transport::ucx {

Outgoing::Outgoing(Port& port, Device& device)
    : port_(port),
      device_(device),
      window_(device.window()),
      packets_(kPackets),
      gathering_(*this, port.undelivered()) {
  by_value_.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
  by_value_.flags = UCP_AM_SEND_FLAG_EAGER;
}

std::size_t Outgoing::post(Port& port, Command& command) {
  const Port::Turn turn(port, std::try_to_lock);
  if (!turn.inside()) return 0;
  PeerState* peer = state_of(port.peers().known(command.rank, command.worker));
  // Behind packets that UCX still has, only another packet is sure to stay in order.
  if (peer == nullptr || !peer->by_value || !command.inlined) [[unlikely]]
    return post_otherwise(port, command) ? 1 : 0;
  const std::uint64_t bytes = command.bytes;
  const std::uint32_t cost = cost_of(static_cast<std::uint32_t>(bytes));
  if (peer->is_full(cost, port.outgoing().window_) || peer->busy() || !port.completions().messages().has(1))
      [[unlikely]]
    return post_otherwise(port, command) ? 1 : 0;
  peer->next.immediate = command.immediate;
  write_packet(command, peer->next.packet);
  if (send_by_value(port, *peer, kMessageId, sizeof(Head) + bytes) != UCS_OK) [[unlikely]]
    return post_otherwise(port, command) ? 1 : 0;
  peer->next.position += cost;
  peer->used = true;
  port.undelivered().remember(port.completions().messages(), *peer, command.token, cost);
  command.source_free = true;
  return 1;
}

// Sends the head and the bytes behind it. UCX has copied them, or has not taken them.
inline ucs_status_t Outgoing::send_by_value(Port& port, PeerState& peer, unsigned id, std::size_t bytes) {
  // the values that are sent, not later ones: a message to oneself may arrive within the call
  const std::uint32_t consumed = peer.next.consumed;
  const std::uint32_t arrived = peer.next.arrived;
  void* request = port.call().am_send_nbx(peer.endpoint, id, nullptr, 0, &peer.next, bytes, &port.outgoing().by_value_);
  if (request != nullptr) [[unlikely]]
    return UCS_PTR_STATUS(request);
  peer.has_told(consumed, arrived);
  return UCS_OK;
}

// Not by value, or not now.
[[gnu::noinline]] bool Outgoing::post_otherwise(Port& port, Command& command) {
  Outgoing& self = port.outgoing();
  base::Status why = HEDDLE_DONE;
  PeerState* peer = state_of(port.peers().use(command.rank, command.worker, &why));
  if (peer == nullptr) return port.completions().reject(command, why);
  why = check_message(command, kMostMessage, "ucx");
  if (why != HEDDLE_DONE) return port.completions().reject(command, why);
  const auto bytes = static_cast<std::uint32_t>(command.packet_bytes());
  const bool full = peer->is_full(cost_of(bytes), self.window_);
  if (!peer->ready() || full) [[unlikely]] {
    if (peer->ready() && self.device_.directory().known_closed(peer->rank, peer->worker)) {
      self.gathering_.leave(*peer);
      port.peers().note_closed(*peer);
      peer->update_by_value();
    }
    // a message to a closed worker is lost, which is no error
    if (peer->stage == PeerState::Stage::closed) {
      command.done = command.source_free = true;
      return true;
    }
    if (full || peer->waiting == kWaitingPackets) return false;
  }
  if (!port.undelivered().has_room()) return false;
  if (self.gathering_.is_for(*peer, bytes)) return self.gathering_.add(*peer, command);
  self.gathering_.leave(*peer);
  if (self.packets_.front() == nullptr) return false;
  self.send_as_packet(*peer, command, bytes);
  port.undelivered().remember(*peer, command.token, cost_of(bytes));
  command.source_free = true;
  return true;
}

void Outgoing::send_as_packet(PeerState& peer, const Command& command, std::uint32_t bytes) {
  Packet* packet = begin_packet(peer, kMessageId, command.immediate);
  write_packet(command, packet->data + packet->bytes);
  packet->bytes += bytes;
  peer.next.position += cost_of(bytes);
  if (peer.ready()) {
    send(peer, packet);
  } else {
    peer.packets.append(packet);
    ++peer.waiting;
  }
}

// ---- several together ---------------------------------------------------------------------------

std::size_t Outgoing::post_bundle(std::span<Command> batch) {
  const Port::Turn turn(port_, std::try_to_lock);
  if (!turn.inside()) return 0;
  PeerState* peer = state_of(port_.peers().known(batch.front().rank, batch.front().worker));
  if (peer == nullptr || !peer->ready()) return 0;
  gathering_.leave(*peer);
  if (packets_.front() == nullptr) return 0;
  const std::size_t count = network::bundle_of(batch, *peer, window_, port_.undelivered());
  if (count < 2) return 0;
  Packet* packet = begin_packet(*peer, kBundleId);
  packet->bytes += network::write_bundle(batch.first(count), *peer, port_.undelivered(), packet->data + packet->bytes);
  send(*peer, packet);
  return count;
}

ucs_status_t Outgoing::send_credit(PeerState& peer, As as) {
  gathering_.leave(peer);
  const ucs_status_t status = send_by_value(port_, peer, kCreditId, sizeof(Head));
  if (status == UCS_OK) return status;
  if (status != UCS_ERR_NO_RESOURCE) {
    Endpoints::on_broken(&peer, peer.endpoint, status);
    return status;
  }
  if (as == As::value) return status;
  peer.credit = peer.next;
  peer.has_told(peer.credit.consumed, peer.credit.arrived);
  const ucs_status_t sent =
      hand_over(peer, kCreditId, std::as_bytes(std::span(&peer.credit, 1)), on_credit_sent, &peer);
  return sent == UCS_INPROGRESS ? UCS_OK : sent;
}

// ---- packets ------------------------------------------------------------------------------------

Packet* Outgoing::begin_bundle(PeerState& peer) {
  if (packets_.front() == nullptr) return nullptr;
  port_.leaves_something();
  return begin_packet(peer, kBundleId);
}

// One with the next head, which the caller fills.
Packet* Outgoing::begin_packet(PeerState& peer, unsigned id, std::uint32_t immediate) {
  Packet* packet = packets_.take();
  packet->id = id;
  packet->peer = &peer;
  packet->bytes = sizeof(Head);
  peer.next.immediate = immediate;
  std::memcpy(packet->data, &peer.next, sizeof(Head));
  peer.has_told(peer.next.consumed, peer.next.arrived);
  return packet;
}

// OK: it has left. INPROGRESS: UCX has it until it calls `sent`. Else the connection is broken.
ucs_status_t Outgoing::hand_over(PeerState& peer, unsigned id, std::span<const std::byte> bytes,
                                 ucp_send_nbx_callback_t sent, void* user) {
  void* request = send_message(port_.call(), peer.endpoint, id, bytes.data(), bytes.size(), sent, user);
  if (UCS_PTR_IS_ERR(request)) Endpoints::on_broken(&peer, peer.endpoint, UCS_PTR_STATUS(request));
  if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_STATUS(request);
  ++peer.in_flight;
  peer.update_by_value();
  ++flying_;
  port_.leaves_something();
  return UCS_INPROGRESS;
}

void Outgoing::on_credit_sent(void* request, ucs_status_t status, void* user) {
  auto& peer = *static_cast<PeerState*>(user);
  if (status == UCS_OK) peer.used = true;
  --peer.in_flight;
  peer.update_by_value();
  --peer.port->outgoing().flying_;
  peer.port->call().request_free(request);
}

void Outgoing::on_sent(void* request, ucs_status_t status, void* user) {
  auto* packet = static_cast<Packet*>(user);
  on_credit_sent(request, status, packet->peer);
  packet->peer->port->outgoing().packets_.give_back(packet);
}

bool Outgoing::send(PeerState& peer, Packet* packet) {
  const ucs_status_t sent = hand_over(peer, packet->id, {packet->data, packet->bytes}, on_sent, packet);
  if (sent == UCS_OK) peer.used = true;
  if (sent != UCS_INPROGRESS) packets_.give_back(packet);
  return sent == UCS_OK || sent == UCS_INPROGRESS;
}

void Outgoing::send_waiting(PeerState& peer) {
  while (!peer.packets.empty()) {
    Packet* packet = peer.packets.take();
    --peer.waiting;
    if (!send(peer, packet)) return;
  }
}

void Outgoing::drop_waiting(PeerState& peer) {
  if (Packet* gathered = gathering_.drop(peer); gathered != nullptr) packets_.give_back(gathered);
  while (!peer.packets.empty()) packets_.give_back(peer.packets.take());
  peer.waiting = 0;
}

}  // namespace heddle::transport::ucx
