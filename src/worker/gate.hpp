// The gate of a worker that several threads use: it decides which thread may be inside its
// requester and completer, and what the others do. One class for each sharing mode
// (gate_modes.hpp); the table of them is in gate.cpp.
//
//   exclusive  the owner never finds another thread but a helper, which leaves soon
//   shared     others that post wait for a moment, then get AGAIN; progress skips
//   delegate   others leave their command in the queue, and the thread inside executes it before
//              leaving
//   offload    every thread leaves its command in the queue, and the executor, a library thread,
//              executes it
//   auto       exclusive to one thread until others come, then as delegate
//
// An exclusive worker that is not helped has no gate. Helpers (helpers.hpp) enter if
// nobody is inside, in any mode. Small-message offload (inbox.hpp) gives any mode but offload a
// queue.
//
// Invariants
//   At most one thread is inside. inside_ names it, unless it merely posts a command (post_now()):
//   nothing there calls back, so nothing asks whether that thread is inside.
//   A thread that leaves something under way that helpers must poll for has counted its entry
//   (entries_) before it looks whether they sleep. Partner: the barrier in Helpers::sleep(),
//   between its store and its look at entries_.
//   Commands are started in the order of their claims. A command that the transport does not take
//   now holds up those behind it.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <memory>

#include "base/clock.hpp"
#include "base/fence.hpp"
#include "base/threads.hpp"
#include "queue/handover.hpp"
#include "worker/inbox.hpp"
#include "worker/sharing.hpp"

namespace heddle::worker {

class Gate {
 public:
  // `records`: of the command queue. Throws std::bad_alloc.
  static std::unique_ptr<Gate> make(Worker& worker, Sharing sharing, std::uint32_t records, OffloadPolicy small);
  virtual ~Gate();
  // Worker::begin() and end().
  virtual void begin() {}
  virtual void end();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // The calling thread is inside already: in a handler, a callback or a call.
  [[nodiscard]] bool inside() const { return inside_.load(std::memory_order_relaxed) == base::thread_mark(); }
  // Commands wait in the queue, or are being started. Any thread.
  [[nodiscard]] bool queued() const { return inbox_ != nullptr && inbox_->queued(); }
  // The number of records of commands that wait in the queue. Any thread.
  [[nodiscard]] std::uint64_t queued_records() const { return inbox_ == nullptr ? 0 : inbox_->records(); }
  // For a debugger.
  void show(tap::DebugWorker& shown) const {
    if (inbox_ != nullptr) inbox_->show(shown);
  }
  // Null: all messages are posted by their callers.
  [[nodiscard]] const SmallOffload* small_offload() const {
    return inbox_ == nullptr ? nullptr : inbox_->small_offload();
  }
  // Messages may be registered for small-message offload.
  [[nodiscard]] bool registers() const { return registers_; }
  // Registered messages wait. Any thread.
  [[nodiscard]] bool registered() const { return small_offload() != nullptr && queued(); }

  // ---- threads that post. They return what the requester's functions return. A command that waits
  // in the queue is also POSTED; a message that was copied into the queue, and whose end nobody is
  // told of, is also DONE.
  base::Status post(transport::Command& command, const engine::CallersCompletion& completion) {
    return registers_ ? post_or_register(command, completion) : post_now(command, completion);
  }
  // Offload: posting threads leave everything to the executor, so a block need not become a command
  // before.
  [[nodiscard]] bool leaves_all() const { return leaves_all_; }
  base::Status post(const engine::BlockTransfer& block, const engine::CallersCompletion& completion) {
    return starts_here() ? worker_.core().requester.try_block(block, completion) : inbox_->put(block, completion);
  }
  template <class Start>
  base::Status start(const Start& what) {
    if constexpr (std::is_same_v<Start, CallStart>) {
      call_begins();
      const base::Status status = may_call() ? start_any(what) : enqueue([&] { return inbox_->put(what); });
      // else it waits in the queue
      if (status != HEDDLE_POSTED) call_ends();
      return status;
    } else {
      return start_any(what);
    }
  }
  // 0 if another thread is inside.
  int progress();

  // ---- auto, while one thread owns the worker (gate_modes.hpp): its fast paths, without a virtual
  // call. Code that runs on them makes no callbacks.
  using Place = queue::Bias<>::Place;
  // One thread may own it now.
  [[nodiscard]] bool may_be_owned() const { return bias_ != nullptr && !bias_->shared(); }
  // Lets the calling thread in if it is the owner and not inside. Null: it was not let in.
  [[nodiscard]] Place* enter_own() {
    return bias_ == nullptr || inside() ? nullptr : bias_->enter(base::thread_mark());
  }
  // The same for a thread that knows that it is not inside.
  [[nodiscard]] Place* enter_own_from_outside() {
    return bias_ == nullptr ? nullptr : bias_->enter(base::thread_mark());
  }
  // `status`: POSTED: something is left under way.
  void leave_own(Place* place, base::Status status) {
    bool call = false;
    if (status == HEDDLE_POSTED) {
      note_under_way();
      call = must_call_helpers();
    }
    queue::Bias<>::leave(place);
    if (call) [[unlikely]]
      wake_helpers();
  }
  // Counts an entry that leaves something under way, for helpers that are about to sleep.
  void note_under_way() {
    count_entry();
    base::light_fence();  // between the two, for the barrier in Helpers::sleep()
  }
  // Runs function() inside while one thread owns the worker: the caller is that thread, or takes
  // the worker over. False: the worker is shared or has another mode, and nothing has run. *status
  // is what function() returned, or AGAIN if the caller could not enter now.
  template <class Function>
  bool visit_owned(Function&& function, base::Status* status) {
    if (!may_be_owned()) return false;
    if (inside()) {
      *status = function();
      return true;
    }
    *status = HEDDLE_AGAIN;
    if (!enter()) return true;
    // While this thread is inside, the mode does not change, but the worker may have become shared
    // on the way in.
    const bool owned = !bias_->shared();
    if (owned) *status = function();
    leave();
    return owned;
  }
  // Runs `attempt` inside once everything that was queued before this call has been started; AGAIN:
  // not now. If called from inside a command that came out of the queue, that command counts as
  // started.
  template <class Attempt>
  base::Status after_queued(Attempt&& attempt) {
    const std::uint64_t target = inbox_ != nullptr ? inbox_->claimed() : 0;
    const auto waits = [&] { return inbox_ != nullptr && inbox_->started() < target; };
    if (inside()) return waits() ? HEDDLE_AGAIN : attempt();
    if (!enter()) return HEDDLE_AGAIN;
    if (waits() && may_advance()) drain();
    const base::Status status = waits() ? HEDDLE_AGAIN : attempt();
    leave();
    return status;
  }
  // Runs function() inside, however long it takes to enter; on the thread that makes all calls of
  // the transport, where there is one.
  template <class Function>
  void visit(Function&& function) {
    if (inside()) return function();
    if (!may_advance()) return call_executor([&] { visit(function); });
    while (!enter()) sched_yield();
    function();
    leave();
  }
  // Runs function() inside. False: the executor or another thread of the application is inside; the
  // caller does not wait for them.
  template <class Function>
  bool look(Function&& function) {
    if (inside()) {
      function();
      return true;
    }
    if (!enter_unless_held()) return false;
    function();
    leave();
    return true;
  }
  // Calls of heddle_run_on_engine may run on this thread.
  [[nodiscard]] virtual bool may_call() const { return true; }
  // call_begins(): a call is about to be queued for the thread that may run it. call_ends(): it has
  // run, or will not be queued.
  virtual void call_begins() {}
  virtual void call_ends() {}
  // If another thread is inside, it is the executor, which goes on polling and arms the worker
  // before it sleeps.
  [[nodiscard]] virtual bool executor_polls() const { return false; }
  // The calling thread may make progress inside: false if another thread makes all calls of the
  // transport's library. Valid from begin() on.
  [[nodiscard]] virtual bool may_advance() const { return true; }

  // ---- helpers: any thread, numbered as queue::Handover says ------------------------------------
  // Runs function() inside. False: another thread is inside. `urgent`: if the worker is exclusive,
  // waits a moment for its owner, which enters and leaves all the time.
  template <class Function>
  bool try_visit(std::uint32_t number, bool urgent, Function&& function) {
    if (inside() || !enter_as_helper(number, urgent)) return false;
    function();
    leave_as_helper();
    return true;
  }
  // Called by a helper that has been refused for long because another helper is inside, and that
  // has nothing better to do: gives its core to that helper for a moment.
  virtual void fetch_helper() = 0;
  // Inside: starts what is queued, and makes progress. Number of events.
  int advance() { return static_cast<int>(inbox_ != nullptr ? drain() : 0) + worker_.completer().progress(); }
  // The same for a thread of the application that waits for something else.
  int attend() {
    count_poll();
    return advance();
  }
  // A visit would hold up the thread that owns the worker, or take the worker from it. Such a visit
  // is too expensive for each round of a wait.
  [[nodiscard]] virtual bool disturbs() const { return false; }
  // The owner waits for a helper that is inside.
  [[nodiscard]] virtual bool wanted() const { return false; }
  // How often threads other than helpers have entered, and have made progress inside. Only changes
  // of these numbers mean something.
  [[nodiscard]] std::uint64_t entries() const { return entries_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t polls() const { return polls_.load(std::memory_order_relaxed); }

 protected:
  // `inbox`: null: there is no queue.
  Gate(Worker& worker, std::unique_ptr<Inbox> inbox, bool leaves_all = false);
  // auto; once, by its constructor.
  void set_bias(queue::Bias<>& bias) { bias_ = &bias; }

  // ---- what a mode is ---------------------------------------------------------------------------
  // Posts a command; the caller may be inside already. If this merely posts it and leaves nothing
  // under way, it need not set inside_ or count an entry.
  virtual base::Status post_now(transport::Command& command, const engine::CallersCompletion& completion) = 0;
  // Lets in the calling thread, which is not inside. False: not now.
  virtual bool let_in() = 0;
  virtual bool let_in_unless_held() { return let_in(); }
  // The same for progress, which skips a worker if another thread is inside.
  virtual bool let_in_at_once() { return let_in(); }
  // The calling thread leaves, and lets others in.
  virtual void let_out() = 0;
  virtual bool let_in_helper(std::uint32_t number, bool urgent) = 0;
  // `helper`: the thread is one of the library's, not of the application's.
  virtual void let_out_helper(bool /*helper*/) { leave(); }
  // Code of this worker (a handler or callback) that runs on the calling thread may start commands
  // at once.
  [[nodiscard]] virtual bool starts_here() const { return inside(); }
  // A thread that finds another one inside leaves its command in the queue, and then calls
  // after_queueing().
  [[nodiscard]] virtual bool queues() const { return false; }
  virtual void after_queueing() {}
  // entries_ counts the threads that enter. False: the owner counts there itself (exclusive).
  // Helpers see by this number that a thread was here.
  [[nodiscard]] virtual bool counts_visitors() const { return true; }
  // A thread that leaves may have been given commands of others on its way out, and may leave them
  // under way.
  [[nodiscard]] virtual bool leaves_others_commands() const { return false; }
  virtual void run_on_executor(void (*run)(void*), void* what) { run(what); }

  // ---- what modes use ---------------------------------------------------------------------------
  // Posts the command where nothing was queued before it. The caller enters and leaves by itself,
  // without telling other threads. *wake: the caller must wake helpers after it has left.
  base::Status post_inside(transport::Command& command, const engine::CallersCompletion& completion, bool* wake) {
    const base::Status status = worker_.post(command, completion);
    if (status == HEDDLE_POSTED) [[unlikely]] {
      note_under_way();
      *wake = must_call_helpers();
    }
    return status;
  }
  // post_now() for a thread that finds the gate closed, or commands in the queue.
  base::Status post_or_queue(transport::Command& command, const engine::CallersCompletion& completion) {
    const auto begin = [&] { return worker_.post(command, completion); };
    const auto put = [&] { return inbox_->put(command, completion); };
    // Tagged messages keep the order of the calls: those that wait in the queue go first, even
    // before messages that a handler of this worker posts from inside.
    return protocol::is_tagged(command) ? start_or_queue<true>(begin, put) : start_or_queue<false>(begin, put);
  }
  bool enter();
  void leave();
  void count_entry() { add_one(entries_); }
  void count_poll() { add_one(polls_); }
  void wake_helpers();
  // Called inside. True: helpers sleep, or threads that wait, and operations that this thread
  // leaves under way, or starts on its way out, would wait for them.
  [[nodiscard]] bool must_call_helpers() const {
    return worker_.context().helpers().wakes_somebody() && leaves_under_way();
  }
  void mark_inside() { inside_.store(base::thread_mark(), std::memory_order_relaxed); }
  void mark_outside() { inside_.store(nullptr, std::memory_order_relaxed); }
  std::size_t drain() { return inbox_->drain(helper_inside_); }
  [[nodiscard]] Worker& worker() { return worker_; }
  [[nodiscard]] const Worker& worker() const { return worker_; }
  [[nodiscard]] Inbox& inbox() { return *inbox_; }
  [[nodiscard]] const Inbox& inbox() const { return *inbox_; }

 private:
  template <class Function>
  void call_executor(Function&& function) {
    run_on_executor([](void* what) { (*static_cast<std::remove_reference_t<Function>*>(what))(); }, &function);
  }
  template <bool kTagged, class Begin, class Put>
  base::Status start_or_queue(Begin&& begin, Put&& put) {
    if (starts_here()) return kTagged && queued() ? put() : begin();
    if (!leaves_all_ && enter()) {
      const base::Status status = behind() ? put() : begin();
      leave();
      return status;
    }
    return queues() ? enqueue(put) : HEDDLE_AGAIN;
  }
  template <class Start>
  base::Status start_any(const Start& what) {
    constexpr bool kTagged = std::is_same_v<Start, OfferStart>;
    return start_or_queue<kTagged>([&] { return what.start(worker_); }, [&] { return inbox_->put(what); });
  }
  template <class Put>
  base::Status enqueue(Put&& put) {
    const base::Status status = put();
    if (status != HEDDLE_AGAIN) after_queueing();
    return status;
  }
  base::Status post_or_register(transport::Command& command, const engine::CallersCompletion& completion);
  base::Status register_or_post(transport::Command& command, const engine::CallersCompletion& completion);
  int progress_any();
  [[nodiscard]] bool leaves_under_way() const;
  // Commands in the queue go first. True: some of them still wait.
  bool behind() { return queued() && (drain(), queued()); }
  bool enter_unless_held();
  bool enter_at_once();
  bool enter_as_helper(std::uint32_t number, bool urgent);
  void leave_as_helper();
  // Shows ThreadSanitizer that threads are inside one after the other.
  void show_entry() {
    if (base::has_thread_sanitizer()) [[unlikely]]
      base::show_acquire(worker_.core().order());
  }
  void show_exit() {
    if (base::has_thread_sanitizer()) [[unlikely]]
      base::show_release(worker_.core().order());
  }
  static void add_one(std::atomic<std::uint64_t>& count) {
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // Read by every thread that posts; not written after begin().
  Worker& worker_;
  const std::unique_ptr<Inbox> inbox_;
  queue::Bias<>* bias_ = nullptr;  // auto without small-message offload; null: any other
  const bool registers_;           // small-message offload
  const bool leaves_all_;

  // Written inside, or (exclusive) by the owner before it enters; relaxed, with the barrier of
  // Helpers before sleeping.
  alignas(base::kCacheLine) std::atomic<std::uint64_t> entries_{0};
  std::atomic<std::uint64_t> polls_{0};  // written inside; relaxed: a hint
  // The mark of the thread inside; null. Relaxed: a thread only asks whether it is itself, and it
  // knows what it wrote.
  std::atomic<const void*> inside_{nullptr};
  bool helper_inside_ = false;  // for the thread inside
};

// Called by a thread that is about to use the worker for more than a direct operation. If the
// worker has no gate, the result is null, and the calling thread is the owner from here on.
inline Gate* use(Worker& worker) {
  if (worker.gate() == nullptr) worker.ownership().come_by();
  return worker.gate();
}
// The calling thread may use the worker by an OwnEntry. False: by use().
[[nodiscard]] inline bool at_once(Worker& worker) {
  if (worker.ownership().mine()) {
    // A worker with a gate belongs to no thread. The compiler uses this to save the caller one look
    // at the gate.
    if (worker.gate() != nullptr) __builtin_unreachable();
    return true;
  }
  return worker.gate() != nullptr && worker.gate()->may_be_owned();
}

// The calling thread's entry to a worker of one thread that it may use at_once(). Without a gate
// the thread is always inside; in mode auto it is inside if it owns the worker (by the fast path)
// or is inside already. Code that uses it inside makes no callbacks.
class OwnEntry {
 public:
  explicit OwnEntry(Worker& worker) : gate_(worker.gate()) {
    if (gate_ == nullptr) return;
    if (gate_->inside()) {
      inside_ = gate_->may_be_owned();
    } else {
      place_ = gate_->enter_own();
      inside_ = place_ != nullptr;
    }
  }
  // The same with one look less, for callers where that makes shorter code.
  struct LooksOnce {};
  OwnEntry(Worker& worker, LooksOnce /*how*/) : gate_(worker.gate()) {
    if (gate_ == nullptr) return;
    const bool inside = gate_->inside();
    if (!inside) place_ = gate_->enter_own_from_outside();
    inside_ = inside ? gate_->may_be_owned() : place_ != nullptr;
  }
  OwnEntry(const OwnEntry&) = delete;
  OwnEntry& operator=(const OwnEntry&) = delete;
  [[nodiscard]] bool inside() const { return inside_; }
  // Call it once, if inside(). `status`: POSTED: something is left under way.
  void leave(base::Status status) const {
    if (place_ != nullptr) gate_->leave_own(place_, status);
  }

 private:
  Gate* const gate_;
  Gate::Place* place_ = nullptr;
  bool inside_ = true;
};

// Starts a command, a put or get of one block, or another start: directly, or by the worker's gate.
[[gnu::always_inline]] inline base::Status post(Worker& worker, transport::Command& command,
                                                const engine::CallersCompletion& completion) {
  Gate* gate = use(worker);
  return gate == nullptr ? worker.post(command, completion) : gate->post(command, completion);
}
template <class Start>
base::Status start(Worker& worker, const Start& what) {
  Gate* gate = use(worker);
  return gate == nullptr ? what.start(worker) : gate->start(what);
}
[[gnu::always_inline]] inline base::Status post(Worker& worker, const engine::BlockTransfer& block,
                                                const engine::CallersCompletion& completion) {
  if (Gate* gate = use(worker); gate != nullptr && gate->leaves_all()) return gate->post(block, completion);
  transport::Command command;
  if (worker.core().requester.whole(block, &command)) [[likely]]
    return post(worker, command, completion);
  return start(worker, TransferStart{block.kind, engine::Pieces(block), block.remote->rank, completion});
}

}  // namespace heddle::worker
