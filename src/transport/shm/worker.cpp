// The worker's life and its sending side. Receiving is in receive.cpp.
#include "transport/shm/worker.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace heddle::transport::shm {
namespace {

// Out of line, so that the common case keeps few registers: its length is 8.
[[gnu::noinline]] void copy_other(std::byte* to, const void* from, std::uint64_t bytes) {
  const auto* source = static_cast<const std::byte*>(from);
  if (bytes > 64) {
    std::memcpy(to, source, bytes);
    return;
  }
  while (bytes >= 8) {
    std::memcpy(to, source, 8);
    to += 8;
    source += 8;
    bytes -= 8;
  }
  while (bytes-- > 0) *to++ = *source++;
}

// Small messages dominate, and a call of memcpy with an unknown length costs more than the copy.
inline void copy_small(std::byte* to, const void* from, std::uint64_t bytes) {
  if (bytes == 8) [[likely]] {
    std::memcpy(to, from, 8);
    return;
  }
  copy_other(to, from, bytes);
}

}  // namespace

base::Result<std::unique_ptr<TransportWorker>> make_worker(Home& home, std::uint32_t index) {
  const auto state = static_cast<WorkerState>(home.control().worker(index).state.load(std::memory_order_relaxed));
  if (state != WorkerState::unopened) {
    return base::fail(HEDDLE_ERR_STATE, "worker %u was opened before; numbers are not reused", index);
  }
  return std::unique_ptr<TransportWorker>(new Worker(home, index));
}

Worker::Worker(Home& home, std::uint32_t index)
    : home_(home),
      index_(index),
      max_workers_(home.layout().max_workers),
      max_message_(queue::largest_record(home.layout().ring_capacity)),
      entry_(home.control().worker(index)),
      outgoing_(std::size_t{home.size()} * home.layout().max_workers),
      failed_(home.size()),
      unmet_told_(home.size()),
      cursors_(home.size()),
      outbox_(kOutbox, 2 * Transfers::kMost),
      transfers_(home, outbox_) {
  entry_.state.store(static_cast<std::uint32_t>(WorkerState::open), std::memory_order_release);
}

// The rings stay in the segment: what is in them was delivered, though its sender is gone.
Worker::~Worker() {
  entry_.state.store(static_cast<std::uint32_t>(WorkerState::closed), std::memory_order_release);
}

Outgoing* Worker::outgoing(std::uint32_t rank, std::uint32_t worker, base::Status* why) {
  if (rank >= home_.size() || worker >= home_.layout().max_workers) [[unlikely]] {
    *why = base::fail(HEDDLE_ERR_RANK, "worker %u of rank %u: the job has %u ranks of at most %u workers", worker, rank,
                      home_.size(), home_.layout().max_workers);
    return nullptr;
  }
  Outgoing* known = outgoing_[std::size_t{rank} * home_.layout().max_workers + worker];
  if (known != nullptr && failed_[rank] == 0) [[likely]]
    return known;
  return connect(rank, worker, why);
}

[[gnu::cold]] Outgoing* Worker::connect(std::uint32_t rank, std::uint32_t worker, base::Status* why) {
  if (failed_[rank] != 0 || home_.failed(rank)) {
    *why = HEDDLE_ERR_PEER_FAILED;
    return nullptr;
  }
  const auto peer = home_.peer(rank);
  if (!peer) {
    *why = peer.status();
    return nullptr;
  }
  // All that may throw comes before the ring, which cannot be taken back.
  auto made = std::make_unique<Outgoing>();
  owned_outgoing_.reserve(owned_outgoing_.size() + 1);
  const auto memory = home_.open_ring(index_, **peer, worker);
  if (!memory) {
    *why = memory.status();
    return nullptr;
  }
  auto* control = reinterpret_cast<queue::RingControl<>*>(*memory);
  made->ring = queue::RecordProducer<>(control, *memory + sizeof *control, home_.layout().ring_capacity);
  made->bell = home_.bell_pull(**peer, worker);
  made->peer = *peer;
  made->worker = worker;
  outgoing_[std::size_t{rank} * home_.layout().max_workers + worker] = made.get();
  owned_outgoing_.push_back(std::move(made));
  return owned_outgoing_.back().get();
}

std::size_t Worker::post(std::span<Command> batch) {
  std::size_t accepted = 0;
  try {
    while (accepted < batch.size() && post_one(batch[accepted])) ++accepted;
  } catch (const std::bad_alloc&) {  // the first use of a worker connects to it
    if (accepted == 0) throw;
  }
  if (unpublished_ != nullptr) {
    unpublished_->publish();
    unpublished_ = nullptr;
  }
  return accepted;
}

TransportWorker::Sent Worker::try_send(Target target, std::uint32_t immediate, std::span<const std::byte> header,
                                       std::span<const std::byte> payload) {
  Outgoing* to = outgoing_[std::size_t{target.rank} * max_workers_ + target.worker];
  if (to == nullptr) [[unlikely]]  // not connected yet, or the peer has failed
    return Sent::unsuitable;
  const std::uint32_t header_room = (static_cast<std::uint32_t>(header.size()) + 7U) & ~7U;
  std::byte* room = to->ring.begin(kMessageType, immediate, header_room + static_cast<std::uint32_t>(payload.size()));
  if (room == nullptr) [[unlikely]]
    return Sent::unsuitable;  // post() knows what else may be the matter
  if (!header.empty()) [[unlikely]] {
    std::memset(room + header_room - 8, 0, 8);
    copy_small(room, header.data(), header.size());
  }
  copy_small(room + header_room, payload.data(), payload.size());
  to->publish();
  return Sent::sent;
}

std::size_t Worker::send_all(std::span<const ShortMessage* const> messages) {
  Outgoing* to = nullptr;  // what was begun there is not visible yet
  std::size_t sent = 0;
  for (const ShortMessage* message : messages) {
    Outgoing* next = outgoing_[std::size_t{message->rank} * max_workers_ + message->worker];
    if (next != to && to != nullptr) to->publish();
    to = next;
    if (to == nullptr) [[unlikely]]  // as in try_send()
      break;
    std::byte* room = to->ring.begin(kMessageType, message->immediate, message->bytes);
    if (room == nullptr) [[unlikely]]
      break;
    // Records are padded to whole words, and so is the packet.
    for (std::uint32_t at = 0; at < message->bytes; at += 8) std::memcpy(room + at, message->packet + at, 8);
    ++sent;
  }
  if (to != nullptr) to->publish();
  return sent;
}

bool Worker::post_one(Command& command) {
  if (command.opcode == Opcode::message) [[likely]]
    return post_message(command);
  if (command.opcode == Opcode::put || command.opcode == Opcode::get) return post_transfer(command);
  return refuse(command, base::fail(HEDDLE_ERR_UNSUPPORTED, "the shm transport has no such command; see capabilities"));
}

// Accepted, and fails: its completion comes from the next poll. False: not accepted.
bool Worker::refuse(Command& command, base::Status status) {
  if (status == HEDDLE_AGAIN || outbox_.full()) return false;  // AGAIN: the peer's card is under way
  command.source_free = true;
  outbox_.put(command.token, status);
  return true;
}

bool Worker::post_message(Command& command) {
  base::Status why = HEDDLE_DONE;
  Outgoing* to = outgoing(command.rank, command.worker, &why);
  if (to == nullptr) [[unlikely]]
    return refuse(command, why);
  const std::uint32_t header_room = (command.header_bytes + 7U) & ~7U;
  const std::uint64_t bytes = header_room + command.bytes;
  if (bytes > max_message_ || command.header_bytes > max_message_) [[unlikely]] {
    return refuse(command, base::fail(HEDDLE_ERR_SIZE, "a message of %llu bytes; the shm transport takes %u",
                                      static_cast<unsigned long long>(bytes), max_message_));
  }
  if (unpublished_ != to && unpublished_ != nullptr) unpublished_->publish();
  unpublished_ = to;  // also when it turns out full: what was begun before must become visible
  std::byte* room = to->ring.begin(kMessageType, command.immediate, static_cast<std::uint32_t>(bytes));
  if (room == nullptr) [[unlikely]]
    return full_ring(command, *to);
  copy_small(room, command.header, command.header_bytes);
  if (command.header_bytes != header_room)
    std::memset(room + command.header_bytes, 0, header_room - command.header_bytes);
  copy_small(room + header_room, command.local, command.bytes);
  command.done = true;
  command.source_free = true;
  return true;
}

// What is sent to a worker that was closed, or has refused the ring, is dropped; it will never make room again.
[[gnu::cold]] bool Worker::full_ring(Command& command, const Outgoing& to) {
  const auto state = static_cast<WorkerState>(to.peer->control.worker(to.worker).state.load(std::memory_order_acquire));
  if (state != WorkerState::closed && !to.ring.refused()) return false;
  command.done = true;
  command.source_free = true;
  return true;
}

bool Worker::post_transfer(Command& command) {
  if (command.remote == nullptr || command.rank >= home_.size() || command.offset > command.remote->bytes ||
      command.bytes > command.remote->bytes - command.offset) {
    return refuse(command, base::fail(HEDDLE_ERR_RANGE, "a transfer of %llu bytes at offset %llu leaves the region",
                                      static_cast<unsigned long long>(command.bytes),
                                      static_cast<unsigned long long>(command.offset)));
  }
  if (failed_[command.rank] != 0) return !command.alone && refuse(command, HEDDLE_ERR_PEER_FAILED);
  if (command.bytes == 0) {
    command.done = true;
    command.source_free = true;
    return true;
  }
  base::Status why = HEDDLE_DONE;
  Outgoing* to = outgoing(command.rank, command.worker, &why);
  if (to != nullptr) return transfers_.start(command, *to);
  return !command.alone && refuse(command, why);
}

bool Worker::closed(Target target) {
  const Outgoing* to = outgoing_[std::size_t{target.rank} * max_workers_ + target.worker];
  if (to == nullptr) return false;
  const auto state =
      static_cast<WorkerState>(to->peer->control.worker(to->worker).state.load(std::memory_order_acquire));
  return state == WorkerState::closed || to->ring.refused();
}

void Worker::peer_failed(std::uint32_t rank) {
  if (rank >= home_.size()) return;
  failed_[rank] = 1;
  // try_send finds no ring to it any more and leaves the message to post(), which knows why.
  std::fill_n(outgoing_.begin() + std::size_t{rank} * max_workers_, max_workers_, nullptr);
  if (!transfers_.idle()) transfers_.peer_failed(rank);
}

}  // namespace heddle::transport::shm
