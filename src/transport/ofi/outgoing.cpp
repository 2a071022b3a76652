#include "transport/ofi/port.hpp"

#include <cstring>

#include "transport/common/rejections.hpp"
#include "transport/network/streams.hpp"

namespace heddle::transport::ofi {

using network::cost_of;
using network::Head;
using network::Kind;
using network::kMostMessage;

Outgoing::Outgoing(Port& port)
    : port_(port),
      window_(port.device().window()),
      inject_bytes_(port.device().inject_bytes()),
      packets_(kPackets),
      gathering_(*this, port.undelivered()) {}

std::size_t Outgoing::post(Port& port, Command& command) {
  const Port::Turn turn(port, std::try_to_lock);
  if (!turn.inside()) return 0;
  network::Peer* known = port.peers().known(command.rank, command.worker);
  if (known == nullptr || !state(*known).by_value || !command.inlined) [[unlikely]]
    return post_otherwise(port, command) ? 1 : 0;
  PeerState& peer = state(*known);
  const std::uint32_t cost = cost_of(static_cast<std::uint32_t>(command.bytes));
  if (peer.is_full(cost, port.outgoing().window_) || peer.busy() || !port.completions().messages().has(1)) [[unlikely]]
    return post_otherwise(port, command) ? 1 : 0;
  peer.next.immediate = command.immediate;
  write_packet(command, peer.next.packet);
  if (!send_by_value(port, peer, sizeof(Head) + command.bytes)) [[unlikely]]
    return post_otherwise(port, command) ? 1 : 0;
  peer.next.position += cost;
  port.undelivered().remember(port.completions().messages(), peer, command.token, cost);
  command.source_free = true;
  return 1;
}

// Sends the head and the bytes behind it. False: libfabric has not taken them.
inline bool Outgoing::send_by_value(Port& port, PeerState& peer, std::size_t bytes) {
  if (bytes > port.outgoing().inject_bytes_) return false;
  // the values that are sent, not later ones: a message to oneself may arrive within the call
  const std::uint32_t consumed = peer.next.consumed;
  const std::uint32_t arrived = peer.next.arrived;
  const ssize_t answer = fi_inject(port.endpoint().ep(), static_cast<const Head*>(&peer.next), bytes, peer.address);
  if (answer != 0) [[unlikely]] {
    port.not_taken(peer, answer);
    return false;
  }
  peer.taken = PeerState::Taken::some;
  peer.has_told(consumed, arrived);
  return true;
}

// Not by value, or not now.
[[gnu::noinline]] bool Outgoing::post_otherwise(Port& port, Command& command) {
  Outgoing& self = port.outgoing();
  base::Status why = HEDDLE_DONE;
  network::Peer* used = port.peers().use(command.rank, command.worker, &why);
  if (used == nullptr) return port.completions().reject(command, why);
  PeerState& peer = state(*used);
  why = check_message(command, kMostMessage, "ofi");
  if (why != HEDDLE_DONE) return port.completions().reject(command, why);
  const auto bytes = static_cast<std::uint32_t>(command.packet_bytes());
  const bool full = peer.is_full(cost_of(bytes), self.window_);
  if (!peer.ready() || full) [[unlikely]] {
    if (peer.ready() && port.device().directory().known_closed(peer.rank, peer.worker)) {
      self.gathering_.leave(peer);
      port.peers().note_closed(peer);
      peer.update_by_value();
    }
    // a message to a closed worker is lost, which is no error
    if (peer.stage == network::Peer::Stage::closed) {
      command.done = command.source_free = true;
      return true;
    }
  }
  if (full || peer.waiting == kWaitingPackets || !port.undelivered().has_room()) return false;
  if (self.gathering_.is_for(peer, bytes)) return self.gathering_.add(peer, command);
  self.gathering_.leave(peer);
  if (self.packets_.front() == nullptr) return false;
  Packet* packet = self.begin_packet(peer, Kind::message, command.immediate);
  write_packet(command, packet->data + packet->bytes);
  packet->bytes += bytes;
  peer.next.position += cost_of(bytes);
  port.undelivered().remember(peer, command.token, cost_of(bytes));
  command.source_free = true;
  self.send(peer, packet);
  return true;
}

std::size_t Outgoing::post_bundle(std::span<Command> batch) {
  const Port::Turn turn(port_, std::try_to_lock);
  if (!turn.inside()) return 0;
  network::Peer* known = port_.peers().known(batch.front().rank, batch.front().worker);
  if (known == nullptr || !state(*known).by_value || packets_.front() == nullptr) return 0;
  PeerState& peer = state(*known);
  const std::size_t count = network::bundle_of(batch, peer, window_, port_.undelivered());
  if (count < 2) return 0;
  Packet* packet = begin_packet(peer, Kind::bundle);
  packet->bytes += network::write_bundle(batch.first(count), peer, port_.undelivered(), packet->data + packet->bytes);
  send(peer, packet);
  return count;
}

bool Outgoing::send_word(PeerState& peer, Kind kind) {
  if (!peer.by_value) return false;
  if (sizeof(Head) > inject_bytes_) {
    if (packets_.front() == nullptr) return false;
    send(peer, begin_packet(peer, kind));
    return true;
  }
  peer.next.kind = static_cast<std::uint32_t>(kind);
  const bool sent = send_by_value(port_, peer, sizeof(Head));
  peer.next.kind = static_cast<std::uint32_t>(Kind::message);
  return sent;
}

// The peer asks again if this does not leave.
void Outgoing::send_end(PeerState& peer) {
  if (peer.address == FI_ADDR_NOTAVAIL) return;
  if (sizeof(Head) > inject_bytes_) {
    if (packets_.front() == nullptr) return;
    Packet* packet = begin_packet(peer, Kind::ended);
    if (hand_over(peer, packet) != 0) packets_.give_back(packet);
    return;
  }
  Head head = peer.next;
  head.kind = static_cast<std::uint32_t>(Kind::ended);
  static_cast<void>(fi_inject(port_.endpoint().ep(), &head, sizeof head, peer.address));
}

// ---- packets ------------------------------------------------------------------------------------

Packet* Outgoing::begin_bundle(PeerState& peer) {
  if (packets_.front() == nullptr) return nullptr;
  port_.leaves_something();
  return begin_packet(peer, Kind::bundle);
}

// One with the next head, which the caller fills.
Packet* Outgoing::begin_packet(PeerState& peer, Kind kind, std::uint32_t immediate) {
  Packet* packet = packets_.take();
  packet->peer = &peer;
  packet->bytes = sizeof(Head);
  Head head = peer.next;
  head.immediate = immediate;
  head.kind = static_cast<std::uint32_t>(kind);
  std::memcpy(packet->data, &head, sizeof head);
  peer.has_told(head.consumed, head.arrived);
  return packet;
}

void Outgoing::send(PeerState& peer, Packet* packet) {
  if (!peer.by_value || hand_over(peer, packet) != 0) wait(peer, packet);
}

void Outgoing::wait(PeerState& peer, Packet* packet) {
  peer.packets.append(packet);
  if (peer.waiting++ == 0 && peer.ready()) stuck_.push_back(&peer);
  peer.update_by_value();
  port_.leaves_something();
}

// 0: libfabric has it until its completion. Else it has not taken it.
long Outgoing::hand_over(PeerState& peer, Packet* packet) {
  const ssize_t answer =
      fi_send(port_.endpoint().ep(), packet->data, packet->bytes, descriptor_, peer.address, &packet->context);
  if (answer != 0) {
    port_.not_taken(peer, answer);
    return answer;
  }
  peer.taken = PeerState::Taken::some;
  ++flying_;
  port_.leaves_something();
  return 0;
}

void Outgoing::on_finished(Packet& packet, int error) {
  PeerState& peer = *packet.peer;
  --flying_;
  packets_.give_back(&packet);
  if (error != FI_SUCCESS) port_.on_broken(peer, error);
}

void Outgoing::begin(PeerState& peer) {
  peer.update_by_value();
  if (peer.waiting != 0 && !push(peer)) stuck_.push_back(&peer);
}

void Outgoing::push_all() {
  gathering_.leave_all();
  std::erase_if(stuck_, [this](PeerState* peer) { return push(*peer); });
}

// True: nothing waits any more.
bool Outgoing::push(PeerState& peer) {
  while (peer.waiting != 0) {
    if (hand_over(peer, peer.packets.first) != 0) return false;
    static_cast<void>(peer.packets.take());
    --peer.waiting;
  }
  peer.update_by_value();
  return true;
}

void Outgoing::drop_waiting(PeerState& peer) {
  if (Packet* gathered = gathering_.drop(peer); gathered != nullptr) packets_.give_back(gathered);
  while (!peer.packets.empty()) packets_.give_back(peer.packets.take());
  peer.waiting = 0;
  peer.update_by_value();
  std::erase(stuck_, &peer);
}

}  // namespace heddle::transport::ofi
