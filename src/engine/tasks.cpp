#include "engine/tasks.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "engine/gate.hpp"
#include "engine/handler.hpp"
#include "engine/worker.hpp"
#include "protocol/user_credits.hpp"

namespace heddle::engine {

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

// Blocks that have ended are taken over all at once, so that most messages find one without the lock.
Tasks::Task* Tasks::allocate(std::uint64_t payload_bytes) {
  if (payload_bytes <= kSmallPayload) {
    if (unused_ == nullptr && spares_.load(std::memory_order_relaxed) > 0) {
      const auto guard = lock();
      unused_ = std::exchange(spare_, nullptr);
      spares_.store(0, std::memory_order_relaxed);
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
  const std::uint64_t charge = protocol::credit_charge(message.header_bytes, message.payload_bytes, bounds_.window);
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
  if (message.payload_bytes > 0) std::memcpy(task->small(), message.payload, message.payload_bytes);
  append(task);
  return Stored::yes;
}

Tasks::Stored Tasks::store(heddle_peer peer, protocol::Reassembly::Message* whole, Room room) noexcept {
  const std::uint64_t charge = protocol::credit_charge(whole->header_bytes, whole->total_bytes, bounds_.window);
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

thread_local constinit const RunningTask* detail::t_tasks [[gnu::tls_model("initial-exec")]] = nullptr;

bool RunningTask::of(const Worker& worker) {
  const RunningTask* task = detail::t_tasks;
  while (task != nullptr && &task->worker_ != &worker) task = task->before_;
  return task != nullptr;
}

bool RunningTask::of(const Context& context) {
  const RunningTask* task = detail::t_tasks;
  while (task != nullptr && &task->worker_.context() != &context) task = task->before_;
  return task != nullptr;
}

// ---- the worker's part ---------------------------------------------------------------------------------------------------

base::Status Worker::take_credit(heddle_peer target, const heddle_am_message& message) {
  if (credits_.take(target, charge(message.header_bytes, message.payload_bytes))) return HEDDLE_DONE;
  // The dead and the closed handle nothing any more. To a closed worker it goes as any other message, and is dropped.
  if (context_.failed(target.rank)) {
    return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has failed; go on without it", target.rank);
  }
  bool closed = false;
  const auto look = [&] { closed = transport_->closed({target.rank, target.worker}); };
  if (gate_ == nullptr) {
    look();
  } else {
    static_cast<void>(gate_->look(look));
  }
  return closed ? HEDDLE_DONE : HEDDLE_AGAIN;
}

void Worker::arrived_user(heddle_peer source, const transport::Completion& completion) {
  const std::span packet(completion.data, completion.bytes);
  if ((completion.immediate & wire::kGrantBit) != 0) {
    const auto told = wire::decode_reply(packet);
    if (told && credits_.grant(source, told->head.value)) return;
    return drop(source, "it grants credit that was not used");
  }
  const auto message = wire::decode_am(completion.immediate, packet);
  if (!message) return drop(source, "it is not well formed");
  const Tasks::Stored stored = tasks_.store(source, *message);
  if (stored == Tasks::Stored::yes) return;
  refuse_task(source, stored);
  // What was sent within the window is handled by being dropped.
  if (stored != Tasks::Stored::no_memory) return;
  const std::uint64_t bytes = charge(message->header_bytes, message->payload_bytes);
  if (!responder_.grant(source, bytes) && tasks_.owe(source, bytes)) owes_grants_ = true;
}

void Worker::store_large(heddle_peer source, protocol::Reassembly::Message* whole, Tasks::Room room) {
  const Tasks::Stored stored = tasks_.store(source, whole, room);
  if (stored != Tasks::Stored::yes && room == Tasks::Room::reserved) tasks_.release(whole->total_bytes);
  // Told of the error, the sender gives itself back what the message was counted as.
  responder_.answer(source, whole->token, stored == Tasks::Stored::yes ? HEDDLE_DONE : HEDDLE_ERR_NO_MEMORY);
  if (stored != Tasks::Stored::yes) refuse_task(source, stored);
}

void Worker::refuse_task(heddle_peer source, Tasks::Stored stored) {
  drop(source, stored == Tasks::Stored::exceeds
                   ? "it exceeds HEDDLE_AM_USER_BYTES, which must be the same in all ranks"
                   : "there is no memory to store it (HEDDLE_AM_REASSEMBLY_BYTES bounds large USER messages)");
}

// Inside.
void Worker::grant(heddle_peer source, Tasks::Source* from) {
  const std::uint64_t bytes = tasks_.due(*from);
  if (bytes == 0 || failed_[source.rank]) return;
  responder_.grant(source, bytes) ? Tasks::granted(from, bytes) : void(owes_grants_ = true);
}

// What could not be granted for lack of memory. The responder is not idle then, so every progress comes here.
void Worker::grant_owed() {
  owes_grants_ = false;
  tasks_.each_source([this](heddle_peer source, Tasks::Source* from) { grant(source, from); });
}

void Worker::run_task(heddle_worker handle, Tasks::Task* task) {
  const Handler handler = context_.handler(task->handler);
  if (handler.fn != nullptr) {
    const heddle_am_arrival arrival{
        handle,          task->peer,         task->handler, task->header_bytes, task->header.data(),
        task->payload(), task->payload_bytes};
    const RunningTask running(*this);
    call(handler.fn, arrival, handler.arg);
  } else {
    std::array<char, 64> why;
    std::snprintf(why.data(), why.size(), "no handler is registered for its number, %u", task->handler);
    context_.report_drop(index_, task->peer, why.data());
  }
  const heddle_peer peer = task->peer;
  Tasks::Source* source = task->source;
  const bool large = task->large != nullptr;  // others of its kind may wait for its room
  if (!tasks_.end(task, handler.fn != nullptr) && !large) return;
  // Not as a command: those may wait behind messages that wait for credit of their own.
  const auto inside = [&] {
    grant(peer, source);
    if (large) am_rendezvous_.room_for_tasks();
    note_moved();  // that may have brought the next task, which another thread waits for
  };
  gate_ == nullptr ? inside() : gate_->visit(inside);
}

int Worker::run_tasks(heddle_worker handle, std::uint32_t most, std::int64_t timeout_ns) {
  if (inside_of() != nullptr) return refuse_wait("heddle_run_tasks");
  base::Waiter waiter(context_.clock(), timeout_ns, &context_.crowd());
  for (;;) {
    const int events = progress();
    if (events < 0) return events;
    std::uint32_t ran = 0;
    for (Tasks::Task* task = nullptr; ran < most && (task = tasks_.take()) != nullptr; ++ran) run_task(handle, task);
    if (ran > 0) return static_cast<int>(ran);
    if (!(events > 0 ? waiter.busy() : waiter.idle())) return 0;
    if (const std::int64_t ns = waiter.nap_ns(); ns > 0) context_.nap(this, ns);
  }
}

}  // namespace heddle::engine
