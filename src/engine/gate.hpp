// The gate of a worker that several threads use: who may be inside its requester and completer, and what the others do.
//
//   mutex     others wait (the baseline that the other modes are measured against)
//   shared    others that post wait for a moment, about as long as a short post takes, then get AGAIN; progress skips
//   delegate  others leave their command in the queue, and who is inside executes it before leaving; progress skips
//   offload   everybody leaves its command in the queue, and the executor, a thread of ours, executes it; progress skips
//             while the executor is inside
//
//   exclusive the owner never finds anybody but a helper, who leaves soon; it pays two plain stores (queue/handover.hpp)
//
// Small-message offload (small_offload.hpp): in every mode but offload, which is that for everything, a message may be left in the
// queue for a helper, or for the next call that enters.
//
// An exclusive worker that is not helped has no gate. Helpers (progress/helpers.hpp) enter if nobody is inside, in any mode.
//
// Invariants
//   At most one thread is inside (holds mutex_ or core_), and inside_ names it.
//   delegate: a command that is visible in the queue is executed by its producer, or by the thread that was inside when
//   the producer looked (queue/delegation.hpp), or by the next thread that makes progress: where the transport took no
//   more (stalled_), and where others went on queueing until the thread inside had done its share (Delegation::kRounds).
//   offload: the executor sleeps only behind the queue's sleeping bit, so the producer that ends its sleep wakes it. Who polls
//   (the executor or its completer) sleeps only while nothing is under way, with the worker armed: what arrives rings, and who
//   is inside meanwhile and leaves something under way wakes it too.
//   A helper that is inside, in a mode other than exclusive, has helper_; so whoever is refused because of it for long fetches it
//   (queue/helper_claim.hpp), by any way in.
//   Commands are started in the order of their claims. One that the transport does not take now holds up those behind it.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

#include "base/thread_number.hpp"
#include "engine/commands.hpp"
#include "engine/executor.hpp"
#include "engine/sharing.hpp"
#include "engine/small_offload.hpp"
#include "queue/command_queue.hpp"
#include "queue/delegation.hpp"
#include "queue/fetching_mutex.hpp"
#include "queue/handover.hpp"
#include "queue/helper_claim.hpp"

namespace heddle::engine {

class Gate {
 public:
  using Sent = transport::TransportWorker::Sent;

  // `records`: of the command queue.
  Gate(Worker& worker, Sharing sharing, std::uint32_t records, OffloadPolicy small_offload);
  ~Gate();
  // Worker::begin() and end().
  void begin();
  void end();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  [[nodiscard]] Sharing sharing() const { return sharing_; }
  // The calling thread is inside already: in a handler, a callback or a call.
  [[nodiscard]] bool inside() const { return inside_.load(std::memory_order_relaxed) == base::thread_mark(); }
  // Commands wait in the queue, or are being started. Any thread.
  [[nodiscard]] bool queued() const { return queue_ != nullptr && queue_->claimed() != queue_->executed(); }

  // As the requester's functions. POSTED also for what waits in the queue; DONE also for a message there whose payload was
  // copied and of which nobody wants to hear.
  template <class Command>
  base::Status post(const Command& command) {
    if constexpr (kIsMessage<Command>) {
      if (small_ != nullptr) [[unlikely]]
        return post_small(command);
    }
    if constexpr (std::is_same_v<Command, CallCommand>) {
      if (!may_call()) return enqueue(command);
    }
    if (starts_here()) return command.start(worker_);
    return post_now(command);
  }
  // Null: all messages are submitted by who posts them.
  [[nodiscard]] const SmallOffload* small_offload() const { return small_.get(); }
  // Registered messages wait. Any thread.
  [[nodiscard]] bool registered() const { return small_ != nullptr && queued(); }
  // Inside: a registered message was submitted.
  void executed_small(std::uint64_t bytes) { small_->executed(bytes, helper_inside_); }
  // The short way of a message: only the lock, or the marks of the hand-over, around the transport's. Nothing that the
  // transport does here calls back, so inside_ stays as it is; and it leaves nothing under way, so helpers that sleep need
  // not know: the entry is not counted.
  // Offload: the message is in the queue, unless somebody wants to hear of it, which must not be before it has left.
  Sent try_send(heddle_peer target, const heddle_am_message& message, bool observed) {
    switch (short_way_) {
      case Sharing::exclusive:
        return send_helped(target, message);
      case Sharing::shared:
        return send_shared(target, message);
      case Sharing::delegate:
        return send_delegated(target, message);
      case Sharing::offload:
        return observed ? Sent::unsuitable : send_queued(target, message);
      case Sharing::mutex:
        break;
    }
    return Sent::unsuitable;
  }
  // 0 if another thread is inside.
  int progress();
  // `attempt` inside, once what was queued before this call has been started; AGAIN: not now. From inside a command that
  // came out of the queue: it counts as started.
  template <class Attempt>
  base::Status settled(Attempt&& attempt) {
    const std::uint64_t target = queue_ != nullptr ? queue_->claimed() : 0;
    if (inside()) return started_ < target ? HEDDLE_AGAIN : attempt();
    if (!enter()) return HEDDLE_AGAIN;
    if (started_ < target && may_advance()) drain();
    const base::Status status = started_ < target ? HEDDLE_AGAIN : attempt();
    leave();
    return status;
  }

  // Runs function() inside, however long that takes; on the thread for all calls, where there is one.
  template <class Function>
  void visit(Function&& function) {
    if (inside()) return function();
    if (!may_advance()) return executor_->call([&] { visit(function); });
    while (!enter()) sched_yield();
    function();
    leave();
  }

  // ---- helpers: any thread, numbered as queue::Handover says ----
  // function() inside, unless somebody is. False: somebody is. `urgent`: exclusive: the owner, who comes and goes all the
  // time, is waited for, for a moment.
  template <class Function>
  bool try_visit(std::uint32_t number, bool urgent, Function&& function) {
    if (inside() || !enter_as_helper(number, urgent)) return false;
    function();
    leave_as_helper();
    return true;
  }
  // A helper that has been refused for long because another one is inside, and has nothing better to do: lets that one have its core
  // for a moment.
  void fetch_helper();
  // Inside: starts what is queued, and makes progress. Number of events.
  int advance() { return static_cast<int>(queue_ != nullptr ? drain() : 0) + worker_.progress_inside(); }
  // The owner waits for a helper that is inside.
  [[nodiscard]] bool wanted() const { return sharing_ == Sharing::exclusive && handover_.looks_inside(); }
  // How often threads other than helpers have entered, and made progress there: numbers that change.
  [[nodiscard]] std::uint64_t entries() const { return entries_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t polls() const { return polls_.load(std::memory_order_relaxed); }

  // Runs function() inside unless another thread of the application is, or the executor: these are not waited for.
  template <class Function>
  bool look(Function&& function) {
    if (inside()) {
      function();
      return true;
    }
    if (sharing_ == Sharing::mutex ? !try_enter_mutex() : !enter()) return false;
    function();
    leave();
    return true;
  }
  // Records of commands that wait in the queue. Any thread.
  [[nodiscard]] std::uint64_t queued_records() const {
    return queue_ == nullptr ? 0 : queue_->claimed() - queue_->executed();
  }

  // ---- the executor ----
  enum class Round : std::uint8_t {
    idle,
    waiting,
    busy
  };  // waiting: for what only polling will tell, or who is inside
  Round execute_round(ExecutorRole role);
  // True: the next producer will wake who takes commands; who leaves something under way, and what arrives (once the transport
  // has settled, and if is_quiet() then), will wake who polls. Whatever it says, end_sleep() follows.
  [[nodiscard]] bool prepare_sleep(ExecutorRole role);
  [[nodiscard]] bool is_quiet();
  void end_sleep(ExecutorRole role) {
    if (role != ExecutorRole::completions) static_cast<void>(queue_->wake_up());
  }
  // Calls of heddle_run_on_engine may run on this thread.
  [[nodiscard]] bool may_call() const { return sharing_ != Sharing::offload || executor_->starts_here(); }

  // What is inside may go on by this thread: not where another one makes all calls of the transport's library. From begin() on.
  [[nodiscard]] bool may_advance() const { return !one_thread_ || executor_->starts_here(); }

 private:
  using Queued = queue::CommandQueue<>::Command;
  template <class Command>
  static constexpr bool kIsMessage = std::is_same_v<Command, MessageCommand> || std::is_same_v<Command, SendCommand>;

  // Of a thread that is not inside.
  template <class Command>
  base::Status post_now(const Command& command) {
    if (sharing_ != Sharing::offload && enter()) {
      const base::Status status = behind() ? enqueue(command) : command.start(worker_);
      leave();
      return status;
    }
    if (sharing_ == Sharing::shared) return HEDDLE_AGAIN;
    const base::Status status = enqueue(command);
    if (status != HEDDLE_AGAIN && sharing_ == Sharing::delegate) help();
    return status;
  }
  base::Status post_small(const MessageCommand& command);
  base::Status post_small(const SendCommand& command);
  template <class Command>
  base::Status register_or_post(const Command& command, std::uint64_t bytes);
  template <class Command>
  bool enqueue_small(const Command& command);

  // What waits in the queue goes first. True: some of it still waits.
  bool behind() { return queued() && (drain(), queued()); }
  bool enter();
  bool try_enter();
  bool enter_after_helper();
  bool helper_stays();
  bool try_enter_mutex();
  void leave();
  void leave_delegated();
  void give_up();
  bool wake_completer();
  bool enter_as_helper(std::uint32_t number, bool urgent);
  bool enter_core_as_helper(std::uint32_t number);
  void leave_as_helper();
  [[nodiscard]] bool must_call_helpers() const;
  static void add_one(std::atomic<std::uint64_t>& count) {
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void count_entry() { add_one(entries_); }
  void help();
  void stay();
  // Offload: something is under way that only polling will tell, or that a peer waits for. Inside.
  [[nodiscard]] bool executor_wanted() const {
    return sharing_ == Sharing::offload && (stalled_ || worker_.under_way());
  }
  // Offload: only handlers and callbacks of this worker. Their thread knows by itself that it is in one, while inside_ stands
  // on a line that the executor writes all the time.
  [[nodiscard]] bool starts_here() const { return sharing_ == Sharing::offload ? inside_of() == &worker_ : inside(); }
  std::size_t drain();
  std::size_t start_run(const Queued& first, std::size_t most);
  base::Status execute(const Queued& command, base::Status cancel);
  base::Status enqueue(const Encoded& encoded);
  // A command of one record. False: the queue is full.
  template <class Body>
  bool enqueue_one(RunCommand run, const auto& write) {
    static_assert(sizeof run + sizeof(Body) <= sizeof(queue::CommandBytes) && alignof(Body) <= 8);
    const Queued claimed = queue_->claim();
    if (!claimed) return false;
    std::byte* bytes = queue_->body(claimed).bytes;
    std::memcpy(bytes, static_cast<const void*>(&run), sizeof run);
    write(new (bytes + sizeof run) Body);
    if (queue_->publish(claimed)) [[unlikely]]
      wake_executor();
    return true;
  }
  [[nodiscard]] bool is_short(const heddle_am_message& message) const {
    return message.payload_bytes <= short_payload_ &&
           wire::pad8(message.header_bytes) + message.payload_bytes <= transport::ShortMessage::kMostBytes;
  }
  bool enqueue_short(heddle_peer target, const heddle_am_message& message) {
    return enqueue_one<transport::ShortMessage>(&run_short,
                                                [&](transport::ShortMessage* to) { write_short(target, message, to); });
  }
  base::Status enqueue(const BlockCommand& command) {
    if (!fits_one_record(command)) [[unlikely]]
      return enqueue(command.transfer());
    return enqueue_one<QueuedBlock>(&run_block, [&](QueuedBlock* to) { encode(command, to); }) ? HEDDLE_POSTED
                                                                                               : HEDDLE_AGAIN;
  }
  void wake_executor();
  // try_send(), by mode.
  Sent send_helped(heddle_peer target, const heddle_am_message& message);
  Sent send_shared(heddle_peer target, const heddle_am_message& message);
  Sent send_delegated(heddle_peer target, const heddle_am_message& message);
  Sent send_queued(heddle_peer target, const heddle_am_message& message);
  template <class Command>
  base::Status enqueue(const Command& command) {
    Encoded encoded;
    if constexpr (std::is_same_v<Command, MessageCommand>) {
      const heddle_am_message& message = *command.message;
      if (!command.completion->observed() && message.handler < HEDDLE_AM_USER && is_short(message)) {
        return enqueue_short(command.target, message) ? HEDDLE_DONE : HEDDLE_AGAIN;
      }
    }
    if constexpr (kIsMessage<Command>) {
      QueuedMessage head;
      encode(command, worker_, &head, &encoded);
      return enqueue(encoded);
    } else {
      encode(command, &encoded);
      return enqueue(encoded);
    }
  }

  // Read by every thread that posts; written by nobody after begin().
  Worker& worker_;
  const Sharing sharing_;
  const bool one_thread_;  // Context::one_thread()
  const Sharing
      short_way_;  // of a message, see try_send: sharing_, or mutex, which has none, where messages may be registered
  const std::uint64_t short_payload_;  // bytes that a message which waits in the queue may have been copied from
  std::unique_ptr<queue::CommandQueue<>> queue_;
  Executor* executor_ = nullptr;  // offload, from begin() to end()
  std::unique_ptr<SmallOffload> small_;

  alignas(base::kCacheLine) queue::Handover<> handover_;  // exclusive
  queue::FetchingMutex mutex_;
  alignas(base::kCacheLine) queue::Delegation<> core_;
  queue::HelperClaim<> helper_;  // the modes other than exclusive; mutex: within mutex_
  // Of who is refused because of a helper; relaxed: hints. What number visits_ had then, and since when (ns) it is to be fetched.
  std::atomic<std::uint32_t> refused_visit_{0};
  std::atomic<std::uint64_t> fetch_at_{0};
  std::atomic<std::uint32_t> visits_{0};  // of helpers; written by who has helper_, relaxed: a number that changes
  // Written inside, or (exclusive) by the owner before it enters; relaxed, with the barrier of Helpers before sleeping.
  std::atomic<std::uint64_t> entries_{0};
  std::atomic<std::uint64_t> polls_{0};  // written inside; relaxed: a hint
  // The mark of the thread inside; null. Relaxed: a thread only asks whether it is itself, and it knows what it wrote.
  std::atomic<const void*> inside_{nullptr};
  // For the thread inside.
  bool completer_asleep_ = false;  // or about to sleep: a thread that only polls
  bool helper_inside_ = false;
  bool stalled_ = false;       // the transport did not take the next command
  std::uint64_t started_ = 0;  // where the last command that was started ends, in the queue's positions
};

// Starts the command here, or hands it to the worker's gate.
template <class Command>
base::Status post(Worker& worker, const Command& command) {
  Gate* gate = worker.gate();
  return gate == nullptr ? command.start(worker) : gate->post(command);
}

}  // namespace heddle::engine
