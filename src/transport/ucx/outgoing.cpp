#include "transport/ucx/outgoing.hpp"

#include <cstring>

#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {
namespace {

// Wraps only if command.bytes is far too large.
std::uint64_t packet_bytes(const Command& command) {
  return ((std::uint64_t{command.header_bytes} + 7) & ~std::uint64_t{7}) + command.bytes;
}

}  // namespace

Outgoing::Outgoing(Port& port, Device& device, std::uint32_t slots)
    : port_(port), device_(device), window_(device.window()), packets_(kPackets), sendings_(slots) {
  by_value_.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
  by_value_.flags = UCP_AM_SEND_FLAG_EAGER;
}

bool Outgoing::post(Command& command) {
  PeerState* peer = port_.endpoints().ready(command.rank, command.worker);
  const std::uint64_t bytes = packet_bytes(command);
  // Behind packets that UCX still has, only another packet is sure to stay in order.
  if (peer == nullptr || command.bytes > kInlineBytes || bytes > kInlineBytes - sizeof(Head) || peer->in_flight != 0)
    return post_otherwise(command);
  const auto short_bytes = static_cast<std::uint32_t>(bytes);
  if (is_full(*peer, short_bytes) || sendings_.front() == nullptr || port_.completions().crowded() ||
      !send_by_value(*peer, command, short_bytes)) [[unlikely]] {
    return post_otherwise(command);
  }
  remember(*peer, command.token);
  command.source_free = true;
  return true;
}

// False: it is better sent as a packet.
inline bool Outgoing::send_by_value(PeerState& peer, const Command& command, std::uint32_t bytes) {
  struct {
    Head head;
    alignas(8) std::byte packet[kInlineBytes - sizeof(Head)];
  } image;
  image.head = peer.next;
  image.head.immediate = command.immediate;
  write_packet(command, image.packet);
  const void* request =
      port_.call().am_send_nbx(peer.endpoint, kMessageId, nullptr, 0, &image, sizeof(Head) + bytes, &by_value_);
  if (request != nullptr) [[unlikely]]
    return false;
  // what was sent, not what is there now: a message to oneself may have arrived within the call
  peer.has_told(image.head);
  peer.next.position += cost_of(bytes);
  peer.used = true;
  return true;
}

// Not by value, or not now.
[[gnu::noinline]] bool Outgoing::post_otherwise(Command& command) {
  base::Status why = HEDDLE_DONE;
  PeerState* peer = port_.endpoints().use(command.rank, command.worker, &why);
  if (peer == nullptr) return port_.completions().refuse(command, why);
  if (command.header_bytes > kMaxHeaderBytes || command.bytes > kMostMessage || packet_bytes(command) > kMostMessage)
      [[unlikely]] {
    return port_.completions().refuse(
        command, base::fail(HEDDLE_ERR_SIZE, "a message of %u + %llu bytes; the ucx transport takes %u",
                            command.header_bytes, static_cast<unsigned long long>(command.bytes), kMostMessage));
  }
  const auto bytes = static_cast<std::uint32_t>(packet_bytes(command));
  const bool full = is_full(*peer, bytes);
  if (!peer->ready() || full) [[unlikely]] {
    if (peer->ready() && device_.directory().known_closed(peer->rank, peer->worker))
      peer->stage = PeerState::Stage::closed;
    // a message to a closed worker is lost, which is no error
    if (peer->stage == PeerState::Stage::closed) {
      command.done = command.source_free = true;
      return true;
    }
    if (full || peer->waiting_count == kWaitingPackets) return false;
  }
  if (sendings_.front() == nullptr || packets_.front() == nullptr || port_.completions().crowded()) return false;
  send_as_packet(*peer, command, bytes);
  remember(*peer, command.token);
  command.source_free = true;
  return true;
}

void Outgoing::send_as_packet(PeerState& peer, const Command& command, std::uint32_t bytes) {
  Packet* packet = packets_.take();
  Head head = peer.next;
  head.immediate = command.immediate;
  std::memcpy(packet->data, &head, sizeof head);
  write_packet(command, packet->data + sizeof head);
  packet->id = kMessageId;
  packet->bytes = static_cast<std::uint32_t>(sizeof head) + bytes;
  packet->peer = &peer;
  peer.has_told(head);
  peer.next.position += cost_of(bytes);
  if (peer.ready()) {
    send_packet(peer, packet);
  } else {
    peer.waiting.append(packet);
    ++peer.waiting_count;
  }
}

// A message is done when the peer says that it has arrived.
inline void Outgoing::remember(PeerState& peer, Token token) {
  Sending* sending = sendings_.take();
  sending->token = token;
  sending->end = peer.next.position;
  peer.undelivered.append(sending);
  ++undelivered_;
}

bool Outgoing::learn(PeerState& peer, const Head& head) {
  const News news = news_of(head.consumed, peer.acked, peer.next.position);
  if (news != News::fresh) [[unlikely]]
    return news == News::stale;
  if (head.arrived - head.consumed > peer.next.position - head.consumed) [[unlikely]]
    return false;
  peer.acked = head.consumed;
  peer.delivered = later_of(peer.delivered, head.arrived);
  while (!peer.undelivered.empty() && peer.delivered - peer.undelivered.first->end < std::uint32_t{1} << 31) {
    end_first(peer, HEDDLE_DONE);
  }
  return true;
}

inline void Outgoing::end_first(PeerState& peer, base::Status status) {
  Sending* sending = peer.undelivered.take();
  --undelivered_;
  port_.completions().done(sending->token, status);
  sendings_.give_back(sending);
}

[[gnu::cold]] void Outgoing::end_all(PeerState& peer, base::Status status) {
  while (!peer.undelivered.empty()) end_first(peer, status);
}

// ---- several together ---------------------------------------------------------------------------

// How many messages from the front of the batch fit into one of UCX's.
std::size_t Outgoing::bundle_of(std::span<const Command> batch, const PeerState& peer) const {
  std::uint32_t bytes = sizeof(Head);
  std::uint32_t cost = peer.next.position - peer.acked;
  const Sending* sending = sendings_.front();
  std::size_t count = 0;
  for (const Command& command : batch) {
    if (command.opcode != Opcode::message || command.rank != peer.rank || command.worker != peer.worker) break;
    if (command.header_bytes > kMostPart || command.bytes > kMostPart) break;
    const auto packet = static_cast<std::uint32_t>(packet_bytes(command));
    bytes += part_bytes(packet);
    cost += cost_of(packet);
    if (packet > kMostPart || bytes > kMostBundle || cost > window_ || sending == nullptr) break;
    sending = sending->next;
    ++count;
  }
  return count;
}

std::size_t Outgoing::post_bundle(std::span<Command> batch) {
  PeerState* peer = port_.endpoints().ready(batch.front().rank, batch.front().worker);
  if (peer == nullptr || packets_.front() == nullptr || port_.completions().crowded()) return 0;
  const std::size_t count = bundle_of(batch, *peer);
  if (count < 2) return 0;
  Packet* packet = packets_.take();
  const Head head = peer->next;
  std::memcpy(packet->data, &head, sizeof head);
  std::byte* to = packet->data + sizeof head;
  for (Command& command : batch.first(count)) {
    const Part part{static_cast<std::uint32_t>(packet_bytes(command)), command.immediate};
    const std::uint32_t room = part_bytes(part.bytes);
    std::memset(to + room - 8, 0, 8);
    std::memcpy(to, &part, sizeof part);
    write_packet(command, to + sizeof part);
    to += room;
    peer->next.position += cost_of(part.bytes);
    remember(*peer, command.token);
    command.source_free = true;
  }
  packet->id = kBundleId;
  packet->bytes = static_cast<std::uint32_t>(to - packet->data);
  packet->peer = peer;
  peer->has_told(head);
  send_packet(*peer, packet);
  return count;
}

// ---- packets ------------------------------------------------------------------------------------

// Afterwards UCX has the packet, or it is free again. False: the connection is broken.
bool Outgoing::send_packet(PeerState& peer, Packet* packet) {
  void* request = send_message(port_.call(), peer.endpoint, packet->id, packet->data, packet->bytes, on_sent, packet);
  if (request != nullptr && !UCS_PTR_IS_ERR(request)) {
    ++peer.in_flight;
    ++flying_;
    port_.leaves_something();
    return true;
  }
  packets_.give_back(packet);
  if (request == nullptr) {
    peer.used = true;
    return true;
  }
  Endpoints::on_broken(&peer, peer.endpoint, UCS_PTR_STATUS(request));
  return false;
}

void Outgoing::on_sent(void* request, ucs_status_t status, void* user) {
  auto* packet = static_cast<Packet*>(user);
  PeerState& peer = *packet->peer;
  Outgoing& self = peer.port->outgoing();
  if (status == UCS_OK) peer.used = true;
  --peer.in_flight;
  --self.flying_;
  self.packets_.give_back(packet);
  self.port_.call().request_free(request);
}

void Outgoing::send_waiting(PeerState& peer) {
  while (!peer.waiting.empty()) {
    Packet* packet = peer.waiting.take();
    --peer.waiting_count;
    if (!send_packet(peer, packet)) return;
  }
}

void Outgoing::drop_waiting(PeerState& peer) {
  while (!peer.waiting.empty()) packets_.give_back(peer.waiting.take());
  peer.waiting_count = 0;
}

}  // namespace heddle::transport::ucx
