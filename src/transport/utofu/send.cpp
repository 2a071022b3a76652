// Messages of a worker: how a connection (Channel) gets a ring, and how messages get into it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/common/refusals.hpp"
#include "transport/utofu/out.hpp"
#include "transport/utofu/worker.hpp"

namespace heddle::transport::utofu {
namespace {

using Stage = Channel::Stage;

// Pause between two reads of the entry of a worker that is not open (in polls), or that returns no
// credit (in posts without credit).
constexpr std::uint32_t kShortestPause = 8;
constexpr std::uint32_t kLongestPause = 64;

constexpr unsigned long kMessageFlags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;

// The slot of the next message.
utofu_stadd_t slot_of(const Channel& channel) {
  return channel.ring_stadd + std::uint64_t{channel.next} * kSlotBytes;
}

void use_slot(Channel& channel) {
  channel.next = channel.next + 1 == channel.slots ? 0 : channel.next + 1;
  --channel.credits;
}

// Writes the contents of a slot; returns their length.
std::uint32_t fill(std::byte* slot, const Command& command) {
  const SlotHead head{command.immediate, static_cast<std::uint32_t>(command.packet_bytes())};
  std::memcpy(slot, &head, sizeof head);
  write_packet(command, slot + sizeof head);
  return head.bytes + static_cast<std::uint32_t>(sizeof head);
}

}  // namespace

std::uint32_t Port::take_buffer() {
  const std::uint32_t buffer = free_buffer_;
  if (buffer != kNoBuffer) {
    free_buffer_ = buffers_[buffer].next;
    --free_buffers_;
  }
  return buffer;
}

void Port::give_buffer(std::uint32_t buffer) {
  buffers_[buffer].next = free_buffer_;
  free_buffer_ = buffer;
  ++free_buffers_;
}

std::byte* Port::buffer_data(std::uint32_t buffer) const {
  return station_->block.data() + sizes_.pool_at() + std::uint64_t{buffer} * kSlotBytes;
}

base::Status Port::send(Command& command) {
  if (command.worker >= device_.max_workers()) {
    return base::fail(HEDDLE_ERR_RANK, "worker %u of rank %u; there are at most %u", command.worker, command.rank,
                      device_.max_workers());
  }
  if (command.header_bytes > kMaxHeaderBytes || command.bytes > kMostMessage || command.packet_bytes() > kMostMessage)
      [[unlikely]] {
    return check_message(command, kMostMessage, "utofu");
  }
  const auto& of_rank = channel_of_[command.rank];
  Channel* const known = command.worker < of_rank.size() ? of_rank[command.worker] : nullptr;
  if (known != nullptr) [[likely]] {
    return send_on(*known, command);
  }
  const auto channel = channel_to(command.rank, command.worker);
  return channel ? send_on(**channel, command) : channel.status();
}

[[gnu::cold]] base::Result<Channel*> Port::channel_to(std::uint32_t rank, std::uint32_t worker) {
  const auto peer = device_.peer(rank);
  if (!peer) return peer.status();
  if (channels_.size() == sizes_.channels) {
    return base::fail(HEDDLE_ERR_NO_MEMORY,
                      "worker %u sends to %u others already, as many as its share of the receive queue can answer; "
                      "raise HEDDLE_UTOFU_MRQ_DEPTH if the machine's queues are that deep, or lower "
                      "HEDDLE_MAX_WORKERS",
                      index_, sizes_.channels);
  }
  if (channel_of_[rank].empty()) channel_of_[rank].assign(device_.max_workers(), nullptr);
  auto channel = std::make_unique<Channel>();
  channel->rank = rank;
  channel->worker = worker;
  channel->index = static_cast<std::uint32_t>(channels_.size());
  channel->device_vcq = (*peer)->device_vcq();
  channel->entry_stadd = (*peer)->directory_stadd + worker * sizeof(Entry);
  channels_.push_back(std::move(channel));
  return channel_of_[rank][worker] = channels_.back().get();
}

base::Status Port::send_on(Channel& channel, Command& command) {
  if (channel.stage == Stage::closed) return HEDDLE_DONE;
  if (channel.stage == Stage::broken) return channel.status;
  if (channel.stage != Stage::ready) return keep_waiting(channel, command);
  if (channel.credits == 0 || channel.waiting != 0) {
    look_again(channel);
    return HEDDLE_AGAIN;
  }
  const auto bytes = static_cast<std::uint32_t>(command.packet_bytes() + sizeof(SlotHead));
  alignas(8) std::byte small[kPiggyback];
  const std::uint32_t buffer = bytes <= kPiggyback ? kNoBuffer : take_buffer();
  if (buffer == kNoBuffer && bytes > kPiggyback) return HEDDLE_AGAIN;
  std::byte* data = buffer == kNoBuffer ? small : buffer_data(buffer);
  fill(data, command);
  const int code = write_slot(channel, data, bytes, buffer, command.token);
  if (code == UTOFU_SUCCESS) [[likely]] {
    command.source_free = true;
    return HEDDLE_POSTED;
  }
  if (buffer != kNoBuffer) give_buffer(buffer);
  return code == UTOFU_ERR_BUSY ? HEDDLE_AGAIN : channel.status;
}

// The fast paths for messages to a worker that has room for them; otherwise post_all().
std::size_t Port::post_message(Command& command) {
  Channel* channel = nullptr;
  if (command.rank < channel_of_.size()) [[likely]] {
    const auto& of_rank = channel_of_[command.rank];
    if (command.worker < of_rank.size()) channel = of_rank[command.worker];
  }
  const bool ready =
      channel != nullptr && channel->stage == Stage::ready && channel->credits != 0 && channel->waiting == 0;
  if (!ready) return post_all({&command, 1});
  struct Slot {
    SlotHead head;
    std::byte packet[kPiggyback - sizeof(SlotHead)];
  };
  static_assert(sizeof(Slot) == kPiggyback && sizeof(Slot::packet) <= sizeof command.packet);
  if (!command.inlined || command.bytes > sizeof(Slot::packet)) return post_long(*channel, command);
  Operation* operation = operations_.front();
  if (operation == nullptr) [[unlikely]] {
    return 0;
  }
  Slot slot;
  slot.head = {command.immediate, static_cast<std::uint32_t>(command.bytes)};
  // all that fits: what lies behind the packet does not leave
  std::memcpy(slot.packet, command.packet, sizeof slot.packet);
  operation->channel = channel->index;
  begin_quickly<Task::short_message>(command, operation, channel->rank);
  command.source_free = true;
  const int code =
      calls_.put_piggyback(handle_, channel->vcq, &slot, slot_of(*channel), sizeof slot.head + command.bytes,
                           Operations::lane(*operation), kMessageFlags, operation->tag);
  if (code != UTOFU_SUCCESS) [[unlikely]] {
    return message_not_posted(*channel, code);
  }
  operations_.take_front();
  use_slot(*channel);
  return 1;
}

// A message that needs a buffer.
[[gnu::noinline]] std::size_t Port::post_long(Channel& channel, Command& command) {
  const std::uint64_t packet = command.packet_bytes();
  if (command.header_bytes > kMaxHeaderBytes || command.bytes > kMostMessage || packet > kMostMessage ||
      packet <= kPiggyback - sizeof(SlotHead)) {
    return post_all({&command, 1});
  }
  Operation* operation = operations_.front();
  if (operation == nullptr || free_buffer_ == kNoBuffer) [[unlikely]] {
    return 0;
  }
  const std::uint32_t buffer = take_buffer();
  const std::uint64_t bytes = fill(buffer_data(buffer), command);
  const utofu_stadd_t slot = slot_of(channel);
  operation->channel = channel.index;
  operation->buffer = buffer;
  operation->vcq = channel.vcq;
  operation->address = slot + bytes;
  begin_quickly<Task::message>(command, operation, channel.rank);
  command.source_free = true;
  const utofu_stadd_t local = station_->stadd + sizes_.pool_at() + std::uint64_t{buffer} * kSlotBytes;
  const int code =
      calls_.put(handle_, channel.vcq, local, slot, bytes, Operations::lane(*operation), kMessageFlags, operation->tag);
  if (code != UTOFU_SUCCESS) [[unlikely]] {
    give_buffer(buffer);
    return message_not_posted(channel, code);
  }
  operations_.take_front();
  use_slot(channel);
  return 1;
}

[[gnu::cold]] std::size_t Port::message_not_posted(Channel& channel, int code) {
  if (code != UTOFU_ERR_BUSY) break_off(channel, HEDDLE_ERR_SYSTEM);
  return not_posted(code);
}

// Accepts the message and keeps it until the connection has a ring. It keeps no more than fit into
// one ring, so that none of them waits for the receiver.
base::Status Port::keep_waiting(Channel& channel, Command& command) {
  list(channel);
  if (channel.waiting + 1 >= std::max(sizes_.slots, 2U) || free_buffers_ <= sizes_.buffers / 2) return HEDDLE_AGAIN;
  const std::uint32_t buffer = take_buffer();
  Buffer& kept = buffers_[buffer];
  kept.bytes = fill(buffer_data(buffer), command);
  kept.token = command.token;
  kept.next = kNoBuffer;
  if (channel.waiting++ == 0) {
    channel.first = buffer;
  } else {
    buffers_[channel.last].next = buffer;
  }
  channel.last = buffer;
  command.source_free = true;
  return HEDDLE_POSTED;
}

// Puts a message into the next slot. BUSY: try again later. Another error: the stage is now
// `broken`.
int Port::write_slot(Channel& channel, const std::byte* data, std::uint32_t bytes, std::uint32_t buffer, Token token) {
  const utofu_stadd_t slot = slot_of(channel);
  const Task task = bytes <= kPiggyback ? Task::short_message : Task::message;
  Operation* operation = operations_.take(task, channel.vcq, slot + bytes);
  if (operation == nullptr) return UTOFU_ERR_BUSY;
  const std::uint64_t lane = Operations::lane(*operation);
  int code = UTOFU_SUCCESS;
  if (bytes <= kPiggyback) {
    code = calls_.put_piggyback(handle_, channel.vcq, const_cast<std::byte*>(data), slot, bytes, lane, kMessageFlags,
                                operation->tag);
  } else {
    const std::uint64_t offset = sizes_.pool_at() + std::uint64_t{buffer} * kSlotBytes;
    code = calls_.put(handle_, channel.vcq, station_->stadd + offset, slot, bytes, lane, kMessageFlags, operation->tag);
  }
  if (code != UTOFU_SUCCESS) {
    const base::Status status = refused(code, operation);
    if (status != HEDDLE_AGAIN) break_off(channel, status);
    return code;
  }
  operation->token = token;
  operation->rank = channel.rank;
  operation->channel = channel.index;
  operation->buffer = buffer;
  use_slot(channel);
  return code;
}

// ---- connecting: from the first message to a ring -----------------------------------------------

void Port::list(Channel& channel) {
  if (channel.listed) return;
  channel.listed = true;
  connecting_.push_back(&channel);
}

void Port::advance_channels(Out& out) {
  for (std::size_t i = 0; i < connecting_.size();) {
    Channel& channel = *connecting_[i];
    if (!advance(channel, out)) {
      ++i;
      continue;
    }
    channel.listed = false;
    connecting_[i] = connecting_.back();
    connecting_.pop_back();
  }
}

bool Port::advance(Channel& channel, Out& out) {
  switch (channel.stage) {
    case Stage::unopened:
      if (polls_ >= channel.look_at && read_entry(channel) == UTOFU_SUCCESS) channel.stage = Stage::reading;
      return false;
    case Stage::claim:
      if (claim(channel) == UTOFU_SUCCESS) channel.stage = Stage::claiming;
      return false;
    case Stage::reading:
    case Stage::claiming:
      return false;
    case Stage::hello:
      if (greet(channel) == UTOFU_SUCCESS) channel.stage = Stage::ready;
      return false;
    case Stage::ready:
      return send_waiting(channel);
    case Stage::closed:
    case Stage::broken:
      while (channel.waiting != 0) {
        out.done(buffers_[channel.first].token, channel.stage == Stage::closed ? HEDDLE_DONE : channel.status);
        drop_first(channel);
      }
      return true;
  }
  return true;
}

void Port::drop_first(Channel& channel) {
  const std::uint32_t buffer = channel.first;
  channel.first = buffers_[buffer].next;
  --channel.waiting;
  give_buffer(buffer);
}

// True: no message waits any more.
bool Port::send_waiting(Channel& channel) {
  while (channel.waiting != 0) {
    if (channel.credits == 0) {
      look_again(channel);
      return false;
    }
    const std::uint32_t buffer = channel.first;
    const Buffer kept = buffers_[buffer];
    const int code = write_slot(channel, buffer_data(buffer), kept.bytes, buffer, kept.token);
    // if it is `broken` now, the next advance() completes them
    if (code != UTOFU_SUCCESS) return false;
    channel.first = kept.next;
    --channel.waiting;
    if (kept.bytes <= kPiggyback) give_buffer(buffer);  // the command has the message
  }
  return true;
}

int Port::read_entry(Channel& channel) {
  const utofu_stadd_t local = station_->stadd + sizes_.entries_at() + channel.index * sizeof(Entry);
  Operation* operation = operations_.take(Task::read_entry, channel.device_vcq, channel.entry_stadd + sizeof(Entry));
  if (operation == nullptr) return UTOFU_ERR_BUSY;
  const int code = calls_.get(handle_, channel.device_vcq, local, channel.entry_stadd, sizeof(Entry),
                              Operations::lane(*operation), UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, operation->tag);
  return connecting_step(channel, operation, code);
}

int Port::claim(Channel& channel) {
  Operation* operation = operations_.take(Task::claim, channel.vcq, channel.block_stadd);
  if (operation == nullptr) return UTOFU_ERR_BUSY;
  const int code = calls_.armw8(handle_, channel.vcq, UTOFU_ARMW_OP_ADD, 1, channel.block_stadd,
                                Operations::lane(*operation), UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, operation->tag);
  return connecting_step(channel, operation, code);
}

// The hello in the first slot tells the receiver who owns the ring.
int Port::greet(Channel& channel) {
  Operation* operation = operations_.take(Task::hello, channel.vcq, channel.ring_stadd + sizeof(Hello));
  if (operation == nullptr) return UTOFU_ERR_BUSY;
  Hello hello;
  hello.rank = device_.rank();
  hello.worker = static_cast<std::uint16_t>(index_);
  hello.vcq = station_->vcq.id;
  hello.credit_stadd = station_->stadd + sizes_.credits_at() + channel.index * sizeof(std::uint64_t);
  seal(&hello, device_.secret());
  const int code = calls_.put_piggyback(
      handle_, channel.vcq, &hello, channel.ring_stadd, sizeof hello, Operations::lane(*operation),
      UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, operation->tag);
  if (code == UTOFU_SUCCESS) {
    channel.next = channel.slots == 1 ? 0 : 1;
    channel.credits = channel.slots - 1;
  }
  return connecting_step(channel, operation, code);
}

int Port::connecting_step(Channel& channel, Operation* operation, int code) {
  if (code != UTOFU_SUCCESS) {
    const base::Status status = refused(code, operation);
    if (status != HEDDLE_AGAIN) break_off(channel, status);
    return code;
  }
  operation->rank = channel.rank;
  operation->channel = channel.index;
  return code;
}

// A receiver that returns no credit is slow, or was closed; its entry shows which. Called whenever
// a message finds no credit, and by closed().
void Port::look_again(Channel& channel) {
  if (channel.looking || ++channel.starved % kLongestPause != 0) return;
  channel.looking = read_entry(channel) == UTOFU_SUCCESS;
}

void Port::entry_read(Channel& channel) {
  const bool looking = std::exchange(channel.looking, false);
  if (channel.stage != Stage::reading && !(looking && channel.stage == Stage::ready)) return;
  Entry entry;
  std::memcpy(&entry, station_->block.data() + sizes_.entries_at() + channel.index * sizeof entry, sizeof entry);
  const bool whole = sealed(entry, device_.secret());
  if (whole && entry.state == State::closed) {
    channel.stage = Stage::closed;
    list(channel);
  } else if (channel.stage == Stage::reading) {
    if (whole && entry.state == State::open && entry.slots != 0 && entry.slots <= kMostSlots && entry.rings != 0) {
      channel.vcq = entry.vcq;
      channel.block_stadd = entry.block_stadd;
      channel.slots = entry.slots;
      channel.rings = entry.rings;
      channel.stage = Stage::claim;
      return;
    }
    channel.pause = std::clamp(2 * channel.pause, kShortestPause, kLongestPause);
    channel.look_at = polls_ + channel.pause;
    channel.stage = Stage::unopened;
  }
}

void Port::claimed(Channel& channel, std::uint64_t number) {
  if (channel.stage != Stage::claiming) return;
  if (number >= channel.rings) {
    break_off(channel, base::fail(HEDDLE_ERR_NO_MEMORY,
                                  "worker %u of rank %u receives from %u others already, as many as its receive queue "
                                  "can hold; raise HEDDLE_UTOFU_MRQ_DEPTH if the machine's queues are that deep, or "
                                  "lower HEDDLE_MAX_WORKERS",
                                  channel.worker, channel.rank, channel.rings));
    return;
  }
  channel.ring_stadd = channel.block_stadd + kClaimBytes + number * channel.slots * kSlotBytes;
  channel.stage = Stage::hello;
}

void Port::break_off(Channel& channel, base::Status status) {
  if (channel.stage == Stage::broken) return;
  channel.stage = Stage::broken;
  channel.status = status;
  list(channel);
}

}  // namespace heddle::transport::utofu
