// Messages of a worker: how a connection (PeerState) gets a ring, and how messages get into it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/common/rejections.hpp"
#include "transport/utofu/out.hpp"
#include "transport/utofu/port.hpp"

namespace heddle::transport::utofu {
namespace {

using Stage = PeerState::Stage;

// Pause between two reads of the entry of a worker that is not open (in polls), or that returns no
// credit (in posts without credit).
constexpr std::uint32_t kShortestPause = 8;
constexpr std::uint32_t kLongestPause = 64;

constexpr unsigned long kMessageFlags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;

// The slot of the next message.
utofu_stadd_t slot_of(const PeerState& peer_state) {
  return peer_state.ring_stadd + std::uint64_t{peer_state.next} * kSlotBytes;
}

void use_slot(PeerState& peer_state) {
  peer_state.next = peer_state.next + 1 == peer_state.slots ? 0 : peer_state.next + 1;
  --peer_state.credits;
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
  return own_vcq_->block.data() + sizes_.pool_at() + std::uint64_t{buffer} * kSlotBytes;
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
  const auto& of_rank = peer_state_of_[command.rank];
  PeerState* const known = command.worker < of_rank.size() ? of_rank[command.worker] : nullptr;
  if (known != nullptr) [[likely]] {
    return send_on(*known, command);
  }
  const auto peer_state = peer_state_to(command.rank, command.worker);
  return peer_state ? send_on(**peer_state, command) : peer_state.status();
}

[[gnu::cold]] base::Result<PeerState*> Port::peer_state_to(std::uint32_t rank, std::uint32_t worker) {
  const auto peer = device_.peer(rank);
  if (!peer) return peer.status();
  if (peer_states_.size() == sizes_.peer_states) {
    return base::fail(HEDDLE_ERR_NO_MEMORY,
                      "worker %u sends to %u others already, as many as its share of the receive queue can answer; "
                      "raise HEDDLE_UTOFU_MRQ_DEPTH if the machine's queues are that deep, or lower "
                      "HEDDLE_MAX_WORKERS",
                      index_, sizes_.peer_states);
  }
  if (peer_state_of_[rank].empty()) peer_state_of_[rank].assign(device_.max_workers(), nullptr);
  auto peer_state = std::make_unique<PeerState>();
  peer_state->rank = rank;
  peer_state->worker = worker;
  peer_state->index = static_cast<std::uint32_t>(peer_states_.size());
  peer_state->device_vcq = (*peer)->device_vcq();
  peer_state->entry_stadd = (*peer)->directory_stadd + worker * sizeof(DirectoryEntry);
  peer_states_.push_back(std::move(peer_state));
  return peer_state_of_[rank][worker] = peer_states_.back().get();
}

base::Status Port::send_on(PeerState& peer_state, Command& command) {
  if (peer_state.stage == Stage::closed) return HEDDLE_DONE;
  if (peer_state.stage == Stage::broken) return peer_state.status;
  if (peer_state.stage != Stage::ready) return keep_waiting(peer_state, command);
  if (peer_state.credits == 0 || peer_state.waiting != 0) {
    look_again(peer_state);
    return HEDDLE_AGAIN;
  }
  const auto bytes = static_cast<std::uint32_t>(command.packet_bytes() + sizeof(SlotHead));
  alignas(8) std::byte small[kPiggyback];
  const std::uint32_t buffer = bytes <= kPiggyback ? kNoBuffer : take_buffer();
  if (buffer == kNoBuffer && bytes > kPiggyback) return HEDDLE_AGAIN;
  std::byte* data = buffer == kNoBuffer ? small : buffer_data(buffer);
  fill(data, command);
  const int code = write_slot(peer_state, data, bytes, buffer, command.token);
  if (code == UTOFU_SUCCESS) [[likely]] {
    command.source_free = true;
    return HEDDLE_POSTED;
  }
  if (buffer != kNoBuffer) give_buffer(buffer);
  return code == UTOFU_ERR_BUSY ? HEDDLE_AGAIN : peer_state.status;
}

// The fast paths for messages to a worker that has room for them; otherwise post_all().
std::size_t Port::post_message(Command& command) {
  PeerState* peer_state = nullptr;
  if (command.rank < peer_state_of_.size()) [[likely]] {
    const auto& of_rank = peer_state_of_[command.rank];
    if (command.worker < of_rank.size()) peer_state = of_rank[command.worker];
  }
  const bool ready = peer_state != nullptr && peer_state->stage == Stage::ready && peer_state->credits != 0 &&
                     peer_state->waiting == 0;
  if (!ready) return post_all({&command, 1});
  struct Slot {
    SlotHead head;
    std::byte packet[kPiggyback - sizeof(SlotHead)];
  };
  static_assert(sizeof(Slot) == kPiggyback && sizeof(Slot::packet) <= sizeof command.packet);
  if (!command.inlined || command.bytes > sizeof(Slot::packet)) return post_long(*peer_state, command);
  TofuOperation* operation = operations_.front();
  if (operation == nullptr) [[unlikely]] {
    return 0;
  }
  Slot slot;
  slot.head = {command.immediate, static_cast<std::uint32_t>(command.bytes)};
  // all that fits: what lies behind the packet does not leave
  std::memcpy(slot.packet, command.packet, sizeof slot.packet);
  operation->peer_state = peer_state->index;
  begin_quickly<Task::short_message>(command, operation, peer_state->rank);
  command.source_free = true;
  const int code =
      calls_.put_piggyback(handle_, peer_state->vcq, &slot, slot_of(*peer_state), sizeof slot.head + command.bytes,
                           TofuOperations::lane(*operation), kMessageFlags, operation->tag);
  if (code != UTOFU_SUCCESS) [[unlikely]] {
    return message_not_posted(*peer_state, code);
  }
  operations_.take_front();
  use_slot(*peer_state);
  return 1;
}

// A message that needs a buffer.
[[gnu::noinline]] std::size_t Port::post_long(PeerState& peer_state, Command& command) {
  const std::uint64_t packet = command.packet_bytes();
  if (command.header_bytes > kMaxHeaderBytes || command.bytes > kMostMessage || packet > kMostMessage ||
      packet <= kPiggyback - sizeof(SlotHead)) {
    return post_all({&command, 1});
  }
  TofuOperation* operation = operations_.front();
  if (operation == nullptr || free_buffer_ == kNoBuffer) [[unlikely]] {
    return 0;
  }
  const std::uint32_t buffer = take_buffer();
  const std::uint64_t bytes = fill(buffer_data(buffer), command);
  const utofu_stadd_t slot = slot_of(peer_state);
  operation->peer_state = peer_state.index;
  operation->buffer = buffer;
  operation->vcq = peer_state.vcq;
  operation->address = slot + bytes;
  begin_quickly<Task::message>(command, operation, peer_state.rank);
  command.source_free = true;
  const utofu_stadd_t local = own_vcq_->stadd + sizes_.pool_at() + std::uint64_t{buffer} * kSlotBytes;
  const int code = calls_.put(handle_, peer_state.vcq, local, slot, bytes, TofuOperations::lane(*operation),
                              kMessageFlags, operation->tag);
  if (code != UTOFU_SUCCESS) [[unlikely]] {
    give_buffer(buffer);
    return message_not_posted(peer_state, code);
  }
  operations_.take_front();
  use_slot(peer_state);
  return 1;
}

[[gnu::cold]] std::size_t Port::message_not_posted(PeerState& peer_state, int code) {
  if (code != UTOFU_ERR_BUSY) break_off(peer_state, HEDDLE_ERR_SYSTEM);
  return not_posted(code);
}

// Accepts the message and keeps it until the connection has a ring. It keeps no more than fit into
// one ring, so that none of them waits for the receiver.
base::Status Port::keep_waiting(PeerState& peer_state, Command& command) {
  list(peer_state);
  if (peer_state.waiting + 1 >= std::max(sizes_.slots, 2U) || free_buffers_ <= sizes_.buffers / 2) return HEDDLE_AGAIN;
  const std::uint32_t buffer = take_buffer();
  Buffer& kept = buffers_[buffer];
  kept.bytes = fill(buffer_data(buffer), command);
  kept.token = command.token;
  kept.next = kNoBuffer;
  if (peer_state.waiting++ == 0) {
    peer_state.first = buffer;
  } else {
    buffers_[peer_state.last].next = buffer;
  }
  peer_state.last = buffer;
  command.source_free = true;
  return HEDDLE_POSTED;
}

// Puts a message into the next slot. BUSY: try again later. Another error: the stage is now
// `broken`.
int Port::write_slot(PeerState& peer_state, const std::byte* data, std::uint32_t bytes, std::uint32_t buffer,
                     Token token) {
  const utofu_stadd_t slot = slot_of(peer_state);
  const Task task = bytes <= kPiggyback ? Task::short_message : Task::message;
  TofuOperation* operation = operations_.take(task, peer_state.vcq, slot + bytes);
  if (operation == nullptr) return UTOFU_ERR_BUSY;
  const std::uint64_t lane = TofuOperations::lane(*operation);
  int code = UTOFU_SUCCESS;
  if (bytes <= kPiggyback) {
    code = calls_.put_piggyback(handle_, peer_state.vcq, const_cast<std::byte*>(data), slot, bytes, lane, kMessageFlags,
                                operation->tag);
  } else {
    const std::uint64_t offset = sizes_.pool_at() + std::uint64_t{buffer} * kSlotBytes;
    code =
        calls_.put(handle_, peer_state.vcq, own_vcq_->stadd + offset, slot, bytes, lane, kMessageFlags, operation->tag);
  }
  if (code != UTOFU_SUCCESS) {
    const base::Status status = take_back(code, operation);
    if (status != HEDDLE_AGAIN) break_off(peer_state, status);
    return code;
  }
  operation->token = token;
  operation->rank = peer_state.rank;
  operation->peer_state = peer_state.index;
  operation->buffer = buffer;
  use_slot(peer_state);
  return code;
}

// ---- connecting: from the first message to a ring -----------------------------------------------

void Port::list(PeerState& peer_state) {
  if (peer_state.listed) return;
  peer_state.listed = true;
  connecting_.push_back(&peer_state);
}

void Port::advance_peer_states(Out& out) {
  for (std::size_t i = 0; i < connecting_.size();) {
    PeerState& peer_state = *connecting_[i];
    if (!advance(peer_state, out)) {
      ++i;
      continue;
    }
    peer_state.listed = false;
    connecting_[i] = connecting_.back();
    connecting_.pop_back();
  }
}

bool Port::advance(PeerState& peer_state, Out& out) {
  switch (peer_state.stage) {
    case Stage::unopened:
      if (polls_ >= peer_state.look_at && read_entry(peer_state) == UTOFU_SUCCESS) peer_state.stage = Stage::reading;
      return false;
    case Stage::claim:
      if (claim(peer_state) == UTOFU_SUCCESS) peer_state.stage = Stage::claiming;
      return false;
    case Stage::reading:
    case Stage::claiming:
      return false;
    case Stage::hello:
      if (greet(peer_state) == UTOFU_SUCCESS) peer_state.stage = Stage::ready;
      return false;
    case Stage::ready:
      return send_waiting(peer_state);
    case Stage::closed:
    case Stage::broken:
      while (peer_state.waiting != 0) {
        out.done(buffers_[peer_state.first].token, peer_state.stage == Stage::closed ? HEDDLE_DONE : peer_state.status);
        drop_first(peer_state);
      }
      return true;
  }
  return true;
}

void Port::drop_first(PeerState& peer_state) {
  const std::uint32_t buffer = peer_state.first;
  peer_state.first = buffers_[buffer].next;
  --peer_state.waiting;
  give_buffer(buffer);
}

// True: no message waits any more.
bool Port::send_waiting(PeerState& peer_state) {
  while (peer_state.waiting != 0) {
    if (peer_state.credits == 0) {
      look_again(peer_state);
      return false;
    }
    const std::uint32_t buffer = peer_state.first;
    const Buffer kept = buffers_[buffer];
    const int code = write_slot(peer_state, buffer_data(buffer), kept.bytes, buffer, kept.token);
    // if it is `broken` now, the next advance() completes them
    if (code != UTOFU_SUCCESS) return false;
    peer_state.first = kept.next;
    --peer_state.waiting;
    if (kept.bytes <= kPiggyback) give_buffer(buffer);  // the command has the message
  }
  return true;
}

int Port::read_entry(PeerState& peer_state) {
  const utofu_stadd_t local = own_vcq_->stadd + sizes_.entries_at() + peer_state.index * sizeof(DirectoryEntry);
  TofuOperation* operation =
      operations_.take(Task::read_entry, peer_state.device_vcq, peer_state.entry_stadd + sizeof(DirectoryEntry));
  if (operation == nullptr) return UTOFU_ERR_BUSY;
  const int code = calls_.get(handle_, peer_state.device_vcq, local, peer_state.entry_stadd, sizeof(DirectoryEntry),
                              TofuOperations::lane(*operation), UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, operation->tag);
  return connecting_step(peer_state, operation, code);
}

int Port::claim(PeerState& peer_state) {
  TofuOperation* operation = operations_.take(Task::claim, peer_state.vcq, peer_state.block_stadd);
  if (operation == nullptr) return UTOFU_ERR_BUSY;
  const int code = calls_.armw8(handle_, peer_state.vcq, UTOFU_ARMW_OP_ADD, 1, peer_state.block_stadd,
                                TofuOperations::lane(*operation), UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, operation->tag);
  return connecting_step(peer_state, operation, code);
}

// The hello in the first slot tells the receiver who owns the ring.
int Port::greet(PeerState& peer_state) {
  TofuOperation* operation =
      operations_.take(Task::hello, peer_state.vcq, peer_state.ring_stadd + sizeof(RingGreeting));
  if (operation == nullptr) return UTOFU_ERR_BUSY;
  RingGreeting hello;
  hello.rank = device_.rank();
  hello.worker = static_cast<std::uint16_t>(index_);
  hello.vcq = own_vcq_->vcq.id;
  hello.credit_stadd = own_vcq_->stadd + sizes_.credits_at() + peer_state.index * sizeof(std::uint64_t);
  seal(&hello, device_.secret());
  const int code = calls_.put_piggyback(
      handle_, peer_state.vcq, &hello, peer_state.ring_stadd, sizeof hello, TofuOperations::lane(*operation),
      UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, operation->tag);
  if (code == UTOFU_SUCCESS) {
    peer_state.next = peer_state.slots == 1 ? 0 : 1;
    peer_state.credits = peer_state.slots - 1;
  }
  return connecting_step(peer_state, operation, code);
}

int Port::connecting_step(PeerState& peer_state, TofuOperation* operation, int code) {
  if (code != UTOFU_SUCCESS) {
    const base::Status status = take_back(code, operation);
    if (status != HEDDLE_AGAIN) break_off(peer_state, status);
    return code;
  }
  operation->rank = peer_state.rank;
  operation->peer_state = peer_state.index;
  return code;
}

// A receiver that returns no credit is slow, or was closed; its entry shows which. Called whenever
// a message finds no credit, and by closed().
void Port::look_again(PeerState& peer_state) {
  if (peer_state.looking || ++peer_state.starved % kLongestPause != 0) return;
  peer_state.looking = read_entry(peer_state) == UTOFU_SUCCESS;
}

void Port::entry_read(PeerState& peer_state) {
  const bool looking = std::exchange(peer_state.looking, false);
  if (peer_state.stage != Stage::reading && !(looking && peer_state.stage == Stage::ready)) return;
  DirectoryEntry entry;
  std::memcpy(&entry, own_vcq_->block.data() + sizes_.entries_at() + peer_state.index * sizeof entry, sizeof entry);
  const bool whole = sealed(entry, device_.secret());
  if (whole && entry.state == State::closed) {
    peer_state.stage = Stage::closed;
    list(peer_state);
  } else if (peer_state.stage == Stage::reading) {
    if (whole && entry.state == State::open && entry.slots != 0 && entry.slots <= kMostSlots && entry.rings != 0) {
      peer_state.vcq = entry.vcq;
      peer_state.block_stadd = entry.block_stadd;
      peer_state.slots = entry.slots;
      peer_state.rings = entry.rings;
      peer_state.stage = Stage::claim;
      return;
    }
    peer_state.pause = std::clamp(2 * peer_state.pause, kShortestPause, kLongestPause);
    peer_state.look_at = polls_ + peer_state.pause;
    peer_state.stage = Stage::unopened;
  }
}

void Port::claimed(PeerState& peer_state, std::uint64_t number) {
  if (peer_state.stage != Stage::claiming) return;
  if (number >= peer_state.rings) {
    break_off(peer_state,
              base::fail(HEDDLE_ERR_NO_MEMORY,
                         "worker %u of rank %u receives from %u others already, as many as its receive queue "
                         "can hold; raise HEDDLE_UTOFU_MRQ_DEPTH if the machine's queues are that deep, or "
                         "lower HEDDLE_MAX_WORKERS",
                         peer_state.worker, peer_state.rank, peer_state.rings));
    return;
  }
  peer_state.ring_stadd = peer_state.block_stadd + kClaimBytes + number * peer_state.slots * kSlotBytes;
  peer_state.stage = Stage::hello;
}

void Port::break_off(PeerState& peer_state, base::Status status) {
  if (peer_state.stage == Stage::broken) return;
  peer_state.stage = Stage::broken;
  peer_state.status = status;
  list(peer_state);
}

}  // namespace heddle::transport::utofu
