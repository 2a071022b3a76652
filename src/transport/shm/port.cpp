// Opening and closing a worker, and its sending side. Receiving is in receive.cpp.
#include "transport/shm/port.hpp"
#include "transport/common/rejections.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace heddle::transport::shm {
base::Result<std::unique_ptr<TransportWorker>> make_worker(Device& device, std::uint32_t index) {
  const auto state = static_cast<WorkerState>(device.control().worker(index).state.load(std::memory_order_relaxed));
  if (state != WorkerState::unopened) {
    return base::fail(HEDDLE_ERR_STATE, "worker %u was opened before; numbers are not reused", index);
  }
  return std::unique_ptr<TransportWorker>(new Port(device, index));
}

Port::Port(Device& device, std::uint32_t index)
    : device_(device),
      index_(index),
      ranks_(device.size()),
      max_workers_(device.layout().max_workers),
      max_message_(queue::largest_record(device.layout().ring_capacity)),
      entry_(device.control().worker(index)),
      outgoing_(std::size_t{device.size()} * device.layout().max_workers),
      failed_(device.size()),
      unmet_told_(device.size()),
      cursors_(device.size()),
      backlog_(kBacklog, 2 * Transfers::kMost + kSmallSlots),
      transfers_(device, index, backlog_),
      cells_(device, index) {
  entry_.attention.ignore();
  entry_.state.store(static_cast<std::uint32_t>(WorkerState::open), std::memory_order_release);
}

// The rings stay in the segment: the messages in them count as delivered, though their sender is
// closed.
Port::~Port() {
  entry_.attention.ignore();
  entry_.state.store(static_cast<std::uint32_t>(WorkerState::closed), std::memory_order_release);
}

// The entries of a peer that has failed are null.
inline OutgoingRing* Port::outgoing(std::uint32_t rank, std::uint32_t worker, base::Status* why) {
  if (rank < failed_.size() && worker < max_workers_) [[likely]] {
    if (OutgoingRing* known = outgoing_[std::size_t{rank} * max_workers_ + worker]; known != nullptr) [[likely]]
      return known;
  }
  return connect(rank, worker, why);
}

[[gnu::cold]] OutgoingRing* Port::connect(std::uint32_t rank, std::uint32_t worker, base::Status* why) {
  if (rank >= device_.size() || worker >= max_workers_) {
    *why = base::fail(HEDDLE_ERR_RANK, "worker %u of rank %u: the job has %u ranks of at most %u workers", worker, rank,
                      device_.size(), max_workers_);
    return nullptr;
  }
  if (failed_[rank] != 0 || device_.failed(rank)) {
    *why = HEDDLE_ERR_PEER_FAILED;
    return nullptr;
  }
  const auto peer = device_.peer(rank);
  if (!peer) {
    *why = peer.status();
    return nullptr;
  }
  // Everything that may throw comes before the ring, which cannot be removed again.
  auto made = std::make_unique<OutgoingRing>();
  owned_outgoing_.reserve(owned_outgoing_.size() + 1);
  const auto memory = device_.open_ring(index_, **peer, worker);
  if (!memory) {
    *why = memory.status();
    return nullptr;
  }
  auto* control = reinterpret_cast<queue::RingControl<>*>(*memory);
  made->ring = queue::RecordProducer<>(control, *memory + sizeof *control, device_.layout().ring_capacity);
  made->bell = device_.bell_pull(**peer, worker);
  made->peer = *peer;
  made->worker = worker;
  made->entry = &(*peer)->control.worker(worker);
  outgoing_[std::size_t{rank} * max_workers_ + worker] = made.get();
  owned_outgoing_.push_back(std::move(made));
  return owned_outgoing_.back().get();
}

// As write_packet(), of a message that is not inlined, without calls for a header of one word and a
// payload of a few.
[[gnu::always_inline]] inline void write_longer(const Command& message, std::byte* to) {
  if (message.header_bytes != sizeof(std::uint64_t) || message.bytes > base::kShortBytes)
    return write_packet(message, to);
  std::memcpy(to, message.header, sizeof(std::uint64_t));
  base::copy_short(to + sizeof(std::uint64_t), message.local, message.bytes);
}

[[gnu::always_inline]] inline bool goes_in_cell(const Command& message) {
  const std::uint64_t bytes = message.packet_bytes();
  return bytes >= kLeastInCell && bytes <= kCellBytes;
}

// The ring to which an inlined message goes. Null: the command is something else, or its target is
// not connected.
[[gnu::always_inline]] inline OutgoingRing* Port::ring_of(const Command& message) const {
  if (!message.inlined || message.rank >= ranks_ || message.worker >= max_workers_) [[unlikely]]
    return nullptr;
  return outgoing_[std::size_t{message.rank} * max_workers_ + message.worker];
}

// Most posts are of one inlined message. The usual path here makes no call, so no registers are
// saved.
std::size_t Port::post(std::span<Command> batch) {
  if (batch.size() != 1) [[unlikely]]
    return post_all(batch);
  Command& message = batch.front();
  OutgoingRing* to = ring_of(message);
  if (to == nullptr) [[unlikely]]
    return post_longer(message);
  const std::uint64_t bytes = message.bytes;
  queue::RecordProducer<>::Row row(to->ring);
  std::byte* room = row.begin(kMessageType, message.immediate, static_cast<std::uint32_t>(bytes));
  if (room == nullptr) [[unlikely]]
    return post_all({&message, 1});
  copy_words(room, message.packet, bytes);
  message.done = true;
  message.source_free = true;
  if (polled_) {
    polled_ = false;
    row.publish_with_copy(room);
  } else {
    row.publish();
  }
  return to->bell.wanted() ? pull_bell(*to) : 1;
}

// The same for a message that does not lie in its command.
[[gnu::noinline]] std::size_t Port::post_longer(Command& message) {
  const bool known = message.opcode == Opcode::message && !message.inlined && message.rank < ranks_ &&
                     message.worker < max_workers_ && message.bytes <= max_message_ &&
                     message.packet_bytes() <= max_message_;
  OutgoingRing* to = known ? outgoing_[std::size_t{message.rank} * max_workers_ + message.worker] : nullptr;
  if (to == nullptr || goes_in_cell(message)) [[unlikely]]
    return post_all({&message, 1});
  const auto bytes = static_cast<std::uint32_t>(message.packet_bytes());
  queue::RecordProducer<>::Row row(to->ring);
  std::byte* room = row.begin(kMessageType, message.immediate, bytes);
  if (room == nullptr) [[unlikely]]
    return post_all({&message, 1});
  write_longer(message, room);
  message.done = true;
  message.source_free = true;
  if (polled_) {
    polled_ = false;
    row.publish_with_copy(room);
  } else {
    row.publish();
  }
  return to->bell.wanted() ? pull_bell(*to) : 1;
}

// After one message. The result is post()'s, whose last call this is.
[[gnu::cold, gnu::noinline]] std::size_t Port::pull_bell(OutgoingRing& to) {
  to.bell.pull();
  return 1;
}

[[gnu::noinline]] std::size_t Port::post_all(std::span<Command> batch) {
  OutgoingRing* begun = nullptr;  // the ring with messages that are not visible yet
  std::size_t accepted = 0;
  while (accepted < batch.size()) {
    OutgoingRing* to = ring_of(batch[accepted]);
    const std::size_t row = to == nullptr ? 0 : post_row(*to, batch.subspan(accepted));
    if (row != 0) [[likely]] {
      if (begun != to && begun != nullptr) [[unlikely]]
        begun->publish();
      begun = to;
      accepted += row;
    } else {
      if (!post_other(batch[accepted], accepted, begun)) break;
      ++accepted;
    }
  }
  if (begun != nullptr) begun->publish();
  return accepted;
}

// Inlined messages from the front of the batch that go where the first one goes, by this ring. How
// many: none if the ring has no room behind its last record that is known of.
[[gnu::always_inline]] inline std::size_t Port::post_row(OutgoingRing& to, std::span<Command> batch) {
  const std::uint32_t rank = batch.front().rank;
  const std::uint32_t worker = batch.front().worker;
  queue::RecordProducer<>::Row row(to.ring);
  Command* next = batch.data();
  Command* const end = next + batch.size();
  do {
    Command& message = *next;
    if (!message.inlined || message.rank != rank || message.worker != worker) [[unlikely]]
      break;
    const std::uint64_t bytes = message.bytes;
    std::byte* room = row.begin(kMessageType, message.immediate, static_cast<std::uint32_t>(bytes));
    if (room == nullptr) [[unlikely]]
      break;
    copy_words(room, message.packet, bytes);
    message.done = true;
    message.source_free = true;
  } while (++next != end);
  row.end();
  return static_cast<std::size_t>(next - batch.data());
}

// False: the batch ends here.
bool Port::post_other(Command& command, std::size_t accepted, OutgoingRing*& begun) {
  try {
    return post_one(command, begun);
  } catch (const std::bad_alloc&) {  // the first message to a worker connects to it
    if (accepted == 0) throw;
    return false;
  }
}

inline bool Port::post_one(Command& command, OutgoingRing*& begun) {
  if (command.opcode == Opcode::message) [[likely]]
    return post_message(command, begun);
  if (command.opcode == Opcode::put || command.opcode == Opcode::get) return post_transfer(command);
  return backlog_.reject(command,
                         base::fail(HEDDLE_ERR_UNSUPPORTED, "the shm transport has no such command; see capabilities"));
}

inline bool Port::post_message(Command& command, OutgoingRing*& begun) {
  base::Status why = HEDDLE_DONE;
  OutgoingRing* to = outgoing(command.rank, command.worker, &why);
  if (to == nullptr) [[unlikely]]
    return backlog_.reject(command, why);
  if (command.packet_bytes() > max_message_ || command.bytes > max_message_) [[unlikely]] {
    return backlog_.reject(command, base::fail(HEDDLE_ERR_SIZE, "a message of %llu bytes; the shm transport takes %u",
                                               static_cast<unsigned long long>(command.packet_bytes()), max_message_));
  }
  if (begun != to && begun != nullptr) begun->publish();
  begun = to;  // also if the ring is full: the messages begun in it before must become visible
  if (goes_in_cell(command)) {
    const bool begun_there = cells_.begin(*to, command);
    // A peer that has cells to read has no need of the ring, which short messages need.
    if (!begun_there && to->cell_count != 0) return full_ring(command, *to);
    if (begun_there) {
      command.done = true;
      command.source_free = true;
      return true;
    }
  }
  std::byte* room = to->ring.begin(kMessageType, command.immediate, static_cast<std::uint32_t>(command.packet_bytes()));
  if (room == nullptr) [[unlikely]]
    return full_ring(command, *to);
  write_packet(command, room);
  command.done = true;
  command.source_free = true;
  return true;
}

// Drops messages to a worker that was closed or has rejected the ring, since it will never make
// room again.
[[gnu::cold]] bool Port::full_ring(Command& command, const OutgoingRing& to) {
  if (!to.is_closed() && !to.ring.rejected()) return false;
  command.done = true;
  command.source_free = true;
  return true;
}

bool Port::post_transfer(Command& command) {
  if (command.rank >= device_.size()) {
    return backlog_.reject(
        command, base::fail(HEDDLE_ERR_RANK, "rank %u; the job has ranks 0 to %u", command.rank, device_.size() - 1));
  }
  if (const base::Status status = check_remote(command); status != HEDDLE_DONE) return backlog_.reject(command, status);
  if (failed_[command.rank] != 0) return !command.alone && backlog_.reject(command, HEDDLE_ERR_PEER_FAILED);
  if (command.bytes == 0) {
    command.done = true;
    command.source_free = true;
    return true;
  }
  base::Status why = HEDDLE_DONE;
  OutgoingRing* to = outgoing(command.rank, command.worker, &why);
  if (to != nullptr) return transfers_.start(command, *to);
  return !command.alone && backlog_.reject(command, why);
}

bool Port::closed(Target target) {
  const OutgoingRing* to = outgoing_[std::size_t{target.rank} * max_workers_ + target.worker];
  return to != nullptr && (to->is_closed() || to->ring.rejected());
}

// It may have sent without ever having been sent anything. What it announced before it closed is
// found when its state is.
bool Port::ended(Target target) {
  for (const auto& from : owned_incoming_) {
    if (from->peer->rank != target.rank || from->worker != target.worker) continue;
    if (from->ring.rejected()) return true;
    const auto& state = from->peer->control.worker(target.worker).state;
    return static_cast<WorkerState>(state.load(std::memory_order_acquire)) == WorkerState::closed &&
           !from->ring.has_more();
  }
  return false;
}

std::size_t Port::unopened(std::span<Unopened> found) {
  std::size_t count = 0;
  for (const auto& to : owned_outgoing_) {
    const auto state = static_cast<WorkerState>(to->entry->state.load(std::memory_order_acquire));
    if (state != WorkerState::unopened || failed_[to->peer->rank] != 0) continue;
    const std::uint64_t messages = to->ring.count_untouched(kMessageType) + to->ring.count_untouched(kCellType);
    if (messages == 0) continue;
    if (count == found.size()) break;
    found[count++] = {{to->peer->rank, to->worker}, messages};
  }
  return count;
}

void Port::peer_failed(std::uint32_t rank) {
  if (rank >= device_.size()) return;
  failed_[rank] = 1;
  any_failed_ = true;
  for (std::uint32_t worker = 0; worker < max_workers_; ++worker) {
    OutgoingRing* const to = outgoing_[std::size_t{rank} * max_workers_ + worker];
    if (to != nullptr) cells_.note_failed(*to);
  }
  std::fill_n(outgoing_.begin() + std::size_t{rank} * max_workers_, max_workers_, nullptr);
  if (!transfers_.idle()) transfers_.peer_failed(rank);
}

}  // namespace heddle::transport::shm
