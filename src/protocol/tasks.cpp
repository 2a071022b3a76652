#include "protocol/tasks.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/copy.hpp"
#include "base/fence.hpp"
#include "protocol/credits.hpp"

namespace heddle::protocol {

Tasks::~Tasks() {
  for (Task* list : {first_, spare_, unused_}) {
    while (list != nullptr) destroy(std::exchange(list, list->next));
  }
}

void Tasks::destroy(Task* task) {
  task->~Task();
  ::operator delete(task);
}

Tasks::Source* Tasks::source_of(heddle_peer peer) {
  if (peer.rank >= bounds_.ranks || peer.worker >= bounds_.workers) return nullptr;
  std::unique_ptr<Source[]>& row = sources_[peer.rank];
  if (row == nullptr) row.reset(new (std::nothrow) Source[bounds_.workers]);
  return row == nullptr ? nullptr : &row[peer.worker];
}

// Blocks that have ended are taken over all at once, so that most messages find one without the
// lock.
Tasks::Task* Tasks::allocate(std::uint64_t payload_bytes) {
  if (payload_bytes <= kSmallPayload) {
    if (unused_ == nullptr && spares_.load(std::memory_order_relaxed) > 0) {
      const auto guard = lock();
      unused_ = std::exchange(spare_, nullptr);
      spares_.store(0, std::memory_order_relaxed);
      base::show_acquire(&spares_);
    }
    if (unused_ != nullptr) return std::exchange(unused_, unused_->next);
  }
  void* block = ::operator new(sizeof(Task) + std::max<std::size_t>(payload_bytes, kSmallPayload), std::nothrow);
  return block == nullptr ? nullptr : new (block) Task;
}

bool Tasks::owe(heddle_peer peer, std::uint64_t bytes) {
  Source* from = source_of(peer);
  if (from == nullptr || bytes > bounds_.window - from->held) return false;
  from->held += bytes;
  from->handled.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

Tasks::Stored Tasks::admit(heddle_peer peer, std::uint64_t charge, Source** source) {
  *source = source_of(peer);
  if (*source == nullptr) return Stored::no_memory;
  return charge <= bounds_.window - (*source)->held ? Stored::yes : Stored::exceeds;
}

Tasks::Stored Tasks::store(heddle_peer peer, const wire::ActiveMessage& message) noexcept {
  const std::uint64_t charge = credit_charge(message.header_bytes, message.payload_bytes, bounds_.window);
  Source* source = nullptr;
  if (const Stored admitted = admit(peer, charge, &source); admitted != Stored::yes) return admitted;
  Task* task = allocate(message.payload_bytes);
  if (task == nullptr) return Stored::no_memory;
  source->held += charge;
  task->source = source;
  task->peer = peer;
  task->handler = HEDDLE_AM_USER + message.handler;
  task->header_bytes = message.header_bytes;
  task->payload_bytes = message.payload_bytes;
  task->charge = charge;
  if (message.header_bytes > 0) std::memcpy(task->header.data(), message.header, message.header_bytes);
  base::copy_data(task->small(), message.payload, message.payload_bytes);
  append(task);
  return Stored::yes;
}

Tasks::Stored Tasks::store(heddle_peer peer, Reassembly::Message* whole, Room room) noexcept {
  const std::uint64_t charge = credit_charge(whole->header_bytes, whole->total_bytes, bounds_.window);
  Source* source = nullptr;
  if (const Stored admitted = admit(peer, charge, &source); admitted != Stored::yes) return admitted;
  const bool has_room = room == Room::reserved || whole->total_bytes <= charge || admits(whole->total_bytes);
  Task* task = has_room ? allocate(0) : nullptr;
  if (task == nullptr) return Stored::no_memory;
  if (room == Room::asked) large_bytes_.fetch_add(whole->total_bytes, std::memory_order_relaxed);
  source->held += charge;
  task->source = source;
  task->peer = peer;
  task->handler = whole->handler;
  task->header_bytes = whole->header_bytes;
  task->payload_bytes = whole->total_bytes;
  task->charge = charge;
  task->large = std::move(whole->payload);
  task->header = whole->header;
  append(task);
  return Stored::yes;
}

void Tasks::append(Task* task) {
  task->next = nullptr;
  base::show_release(&stored_);
  const auto guard = lock();
  *(first_ == nullptr ? &first_ : &last_->next) = task;
  last_ = task;
  stored_.store(stored_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

Tasks::Task* Tasks::take() {
  if (stored() == 0) return nullptr;
  const auto guard = lock();
  Task* task = first_;
  if (task == nullptr) return nullptr;
  first_ = task->next;
  base::show_acquire(&stored_);  // of the thread that has stored it
  stored_.store(stored_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  return task;
}

bool Tasks::end(Task* task, bool ran) {
  (ran ? ran_ : dropped_).fetch_add(1, std::memory_order_release);
  Source& source = *task->source;
  const std::uint64_t handled = source.handled.fetch_add(task->charge, std::memory_order_relaxed) + task->charge;
  // The block of a large message has room for a small one as well.
  const bool reusable = task->large != nullptr || task->payload_bytes <= kSmallPayload;
  if (task->large != nullptr) {
    large_bytes_.fetch_sub(task->payload_bytes, std::memory_order_relaxed);
    task->large.reset();
  }
  base::show_release(&spares_);  // for the thread that takes it from there
  {
    const auto guard = lock();
    const std::uint32_t spares = spares_.load(std::memory_order_relaxed);
    if (reusable && spares < kMostSpare) {
      task->next = std::exchange(spare_, task);
      spares_.store(spares + 1, std::memory_order_relaxed);
      task = nullptr;
    }
  }
  if (task != nullptr) destroy(task);
  return handled >= bounds_.window / 2;
}

}  // namespace heddle::protocol
