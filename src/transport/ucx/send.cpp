// Messages on their way out, and credit on its way back.
#include <algorithm>
#include <cstring>

#include "transport/ucx/station.hpp"

namespace heddle::transport::ucx {

namespace {

std::uint32_t round_up(std::uint32_t bytes) {
  return (bytes + 7U) & ~7U;
}

// The packet behind the head: header, zeros up to a multiple of 8, payload.
void lay_out(std::byte* to, const void* header, std::uint32_t header_bytes, const void* payload, std::uint64_t bytes) {
  if (header_bytes != 0) {
    const std::uint32_t room = round_up(header_bytes);
    std::memset(to + room - 8, 0, 8);
    std::memcpy(to, header, header_bytes);
    to += room;
  }
  if (bytes == 8) {  // a call costs more than that
    std::memcpy(to, payload, 8);
  } else if (bytes != 0) {
    std::memcpy(to, payload, bytes);
  }
}

void told(Channel& channel, const Head& head) {
  channel.told = head.consumed;
  channel.told_arrived = head.arrived;
}

}  // namespace

void Station::fill_head(Head* head, Channel& channel, std::uint32_t immediate) {
  head->rank = home_.rank();
  head->worker = index_;
  head->immediate = immediate;
  head->position = channel.sent;
  head->consumed = channel.consumed;
  head->arrived = channel.arrived;
  head->pass = pass_;
}

// False: it is better sent as a packet.
bool Station::send_by_value(Channel& channel, const Command& command) {
  const std::uint32_t bytes = round_up(command.header_bytes) + static_cast<std::uint32_t>(command.bytes);
  // Behind packets that UCX still has, only another packet is sure to stay in order.
  if (channel.stage != Channel::Stage::ready || channel.in_flight != 0 || bytes > kInlineBytes - sizeof(Head))
      [[unlikely]] {
    return false;
  }
  alignas(8) std::byte image[kInlineBytes];
  Head head;
  fill_head(&head, channel, command.immediate);
  std::memcpy(image, &head, sizeof head);
  lay_out(image + sizeof head, command.header, command.header_bytes, command.source(), command.bytes);
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  void* request = call_.am_send_nbx(channel.endpoint, kMessageId, nullptr, 0, image, sizeof head + bytes, &params);
  if (request != nullptr) [[unlikely]]
    return false;
  told(channel, head);
  channel.sent += cost_of(bytes);
  channel.used = true;
  return true;
}

// There is a packet free.
void Station::keep_packet(Channel& channel, const Command& command, std::uint32_t bytes) {
  Packet* packet = free_packets_.take();
  Head head;
  fill_head(&head, channel, command.immediate);
  std::memcpy(packet->data, &head, sizeof head);
  lay_out(packet->data + sizeof head, command.header, command.header_bytes, command.source(), command.bytes);
  packet->id = kMessageId;
  packet->bytes = static_cast<std::uint32_t>(sizeof head) + bytes;
  packet->channel = &channel;
  told(channel, head);
  channel.sent += cost_of(bytes);
  if (channel.stage == Channel::Stage::ready) {
    send_packet(channel, packet);
  } else {
    channel.waiting.append(packet);
    ++channel.waiting_count;
  }
}

// A message is done when the peer says that it has arrived.
void Station::remember(Channel& channel, Token token) {
  Sending* sending = free_sending_;
  free_sending_ = sending->next;
  sending->token = token;
  sending->end = channel.sent;
  channel.undelivered.append(sending);
  ++undelivered_;
}

// What is sent to a closed worker is gone, which is no error.
[[gnu::cold]] bool Station::post_to_closed(Channel& channel, Command& command) {
  channel.stage = Channel::Stage::closed;
  command.done = command.source_free = true;
  return true;
}

bool Station::post_message(Command& command) {
  Channel* channel = connected(command.rank, command.worker);
  if (channel == nullptr) [[unlikely]] {
    base::Status why = HEDDLE_DONE;
    channel = channel_to(command.rank, command.worker, &why);
    if (channel == nullptr) return refuse(command, why);
  }
  const std::uint64_t packet_bytes = std::uint64_t{round_up(command.header_bytes)} + command.bytes;
  if (command.header_bytes > kMaxHeaderBytes || command.bytes > kMostMessage || packet_bytes > kMostMessage)
      [[unlikely]] {
    return refuse(command,
                  base::fail(HEDDLE_ERR_SIZE, "a message of %u + %llu bytes; the ucx transport takes %u",
                             command.header_bytes, static_cast<unsigned long long>(command.bytes), kMostMessage));
  }
  const auto bytes = static_cast<std::uint32_t>(packet_bytes);
  const bool full = channel->sent - channel->acked + cost_of(bytes) > window_;
  if (channel->stage != Channel::Stage::ready || full) [[unlikely]] {
    const bool ready = channel->stage == Channel::Stage::ready;
    if (channel->stage == Channel::Stage::closed || (ready && home_.known_closed(channel->rank, channel->worker))) {
      return post_to_closed(*channel, command);
    }
    if (ready || full || channel->waiting_count == kWaitingPackets) return false;
  }
  if (free_sending_ == nullptr || backlog_count_ > kRefusals) [[unlikely]]
    return false;
  if (!send_by_value(*channel, command)) {
    if (free_packets_.empty()) return false;
    keep_packet(*channel, command, bytes);
  }
  remember(*channel, command.token);
  command.source_free = true;
  return true;
}

// How many messages from the front of the batch go in one of UCX's.
std::size_t Station::bundle_of(std::span<const Command> batch, const Channel& channel) const {
  std::uint32_t bytes = sizeof(Head);
  std::uint32_t cost = channel.sent - channel.acked;
  const Sending* sending = free_sending_;
  std::size_t count = 0;
  for (const Command& command : batch) {
    if (command.opcode != Opcode::message || command.rank != channel.rank || command.worker != channel.worker) break;
    if (command.header_bytes > kMostPart || command.bytes > kMostPart) break;
    const std::uint32_t packet = round_up(command.header_bytes) + static_cast<std::uint32_t>(command.bytes);
    bytes += part_bytes(packet);
    cost += cost_of(packet);
    if (packet > kMostPart || bytes > kMostBundle || cost > window_ || sending == nullptr) break;
    sending = sending->next;
    ++count;
  }
  return count;
}

// Short messages to one worker, from the front of the batch: what a call of UCX costs, and of the kernel, is paid once. 0: there are no two,
// or it is better done one by one.
std::size_t Station::post_bundle(std::span<Command> batch) {
  const Command& first = batch.front();
  if (first.rank >= home_.size() || first.worker >= max_workers_) return 0;
  Channel* channel = slot(first.rank, first.worker);
  if (channel == nullptr || channel->stage != Channel::Stage::ready || free_packets_.empty() ||
      backlog_count_ > kRefusals) {
    return 0;
  }
  const std::size_t count = bundle_of(batch, *channel);
  if (count < 2) return 0;
  Packet* packet = free_packets_.take();
  Head head;
  fill_head(&head, *channel, 0);
  std::memcpy(packet->data, &head, sizeof head);
  std::byte* to = packet->data + sizeof head;
  for (Command& command : batch.first(count)) {
    const Part part{round_up(command.header_bytes) + static_cast<std::uint32_t>(command.bytes), command.immediate};
    const std::uint32_t room = part_bytes(part.bytes);
    std::memset(to + room - 8, 0, 8);
    std::memcpy(to, &part, sizeof part);
    lay_out(to + sizeof part, command.header, command.header_bytes, command.source(), command.bytes);
    to += room;
    channel->sent += cost_of(part.bytes);
    remember(*channel, command.token);
    command.source_free = true;
  }
  packet->id = kBundleId;
  packet->bytes = static_cast<std::uint32_t>(to - packet->data);
  packet->channel = channel;
  told(*channel, head);
  send_packet(*channel, packet);
  return count;
}

// The packet is UCX's, or free again. False: the connection is broken.
bool Station::send_packet(Channel& channel, Packet* packet) {
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = on_packet_sent;
  params.user_data = packet;
  void* request = call_.am_send_nbx(channel.endpoint, packet->id, nullptr, 0, packet->data, packet->bytes, &params);
  if (request != nullptr && !UCS_PTR_IS_ERR(request)) {
    ++channel.in_flight;
    ++packets_out_;
    leaves_something();
    return true;
  }
  free_packets_.append(packet);
  if (request == nullptr) {
    channel.used = true;
    return true;
  }
  on_broken(&channel, channel.endpoint, UCS_PTR_STATUS(request));
  return false;
}

void Station::on_packet_sent(void* request, ucs_status_t status, void* user) {
  auto* packet = static_cast<Packet*>(user);
  if (status == UCS_OK) packet->channel->used = true;
  Station& station = *packet->station;
  --packet->channel->in_flight;
  --station.packets_out_;
  station.free_packets_.append(packet);
  station.call_.request_free(request);
}

void Station::send_waiting(Channel& channel) {
  while (!channel.waiting.empty()) {
    Packet* packet = channel.waiting.take();
    --channel.waiting_count;
    if (!send_packet(channel, packet)) return;
  }
}

void Station::drop_waiting(Channel& channel) {
  while (!channel.waiting.empty()) free_packets_.append(channel.waiting.take());
  channel.waiting_count = 0;
}

// ---- credit -------------------------------------------------------------------------------------------------------------

// To be called whenever something was consumed.
void Station::owe(Channel& channel) {
  if (channel.consumed - channel.told < window_ / 2 || channel.owing) return;
  channel.owing = true;
  owing_.push_back(&channel);
}

// Who has sent something is told that it is here, if no message of ours has done so.
void Station::tell_all() {
  for (Channel* channel : telling_) {
    channel->telling = false;
    if (channel->told_arrived == channel->arrived || channel->owing) continue;
    channel->owing = true;
    owing_.push_back(channel);
  }
  telling_.clear();
  send_credits();
}

void Station::send_credits() {
  for (std::size_t i = 0; i < owing_.size(); ++i) send_credit(*owing_[i]);
  std::erase_if(owing_, [](const Channel* channel) { return !channel->owing; });
}

void Station::send_credit(Channel& channel) {
  if (channel.stage == Channel::Stage::unopened) connect(channel);
  const bool over = channel.stage == Channel::Stage::broken || channel.stage == Channel::Stage::closed;
  if (over || (channel.told == channel.consumed && channel.told_arrived == channel.arrived)) {
    channel.owing = false;
    return;
  }
  if (channel.stage != Channel::Stage::ready || channel.credit_flies) return;
  fill_head(&channel.credit, channel, 0);
  told(channel, channel.credit);
  channel.owing = false;
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = on_credit_sent;
  params.user_data = &channel;
  void* request =
      call_.am_send_nbx(channel.endpoint, kCreditId, nullptr, 0, &channel.credit, sizeof channel.credit, &params);
  if (request == nullptr) {
    channel.used = true;
    return;
  }
  if (UCS_PTR_IS_ERR(request)) {
    on_broken(&channel, channel.endpoint, UCS_PTR_STATUS(request));
    return;
  }
  channel.credit_flies = true;
  ++credits_out_;
  leaves_something();
}

void Station::on_credit_sent(void* request, ucs_status_t status, void* user) {
  auto& channel = *static_cast<Channel*>(user);
  if (status == UCS_OK) channel.used = true;
  channel.credit_flies = false;
  --channel.station->credits_out_;
  channel.station->call_.request_free(request);
}

}  // namespace heddle::transport::ucx
