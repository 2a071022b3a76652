// offload: who posts leaves its command in the queue, and the executor, a thread of ours, executes
// it. Progress of others is skipped while the executor is inside.
//
// Invariant: the executor sleeps only behind the queue's sleeping bit, so the producer that ends
// its sleep wakes it. Who polls (the executor or its completer) sleeps only while nothing is under
// way, with the worker armed: what arrives rings, and who is inside meanwhile and leaves something
// under way wakes it too.
//
// Where threads share cores the executor stands aside for those that wait, which do its work
// meanwhile (stands_aside()). It sleeps for a short time then, with neither the sleeping bit set
// nor the worker armed: only a call for its thread ends that sleep. So what the last waiter leaves
// behind waits until that time is over.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "worker/executor.hpp"
#include "worker/gate_core.hpp"

namespace heddle::engine {

class OffloadGate final : public CoreGate {
 public:
  OffloadGate(Worker& worker, std::unique_ptr<Inbox> inbox);

  void begin() override;
  void end() override;
  [[nodiscard]] bool may_call() const override { return executor_->starts_here(); }
  void call_begins() override {
    calls_.fetch_add(1, std::memory_order_relaxed);
    if (aside()) executor_->wake();
  }
  void call_ends() override { calls_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] bool executor_polls() const override { return !aside(); }
  [[nodiscard]] bool may_advance() const override { return !one_thread_ || executor_->starts_here(); }

  // ---- the executor ----
  enum class Round : std::uint8_t {
    idle,
    aside,          // threads that wait do its work
    aside_briefly,  // they may, soon: they did lately
    waiting,        // for what only polling will tell, or who is inside
    busy
  };
  Round execute_round(ExecutorRole role);
  // The last round was Round::aside or aside_briefly.
  [[nodiscard]] bool aside() const { return aside_.load(std::memory_order_relaxed); }
  // True: the next producer will wake who takes commands; who leaves something under way, and what
  // arrives (once the transport has settled, and if is_quiet() then), will wake who polls. Whatever
  // it says, end_sleep() follows.
  [[nodiscard]] bool prepare_sleep(ExecutorRole role);
  [[nodiscard]] bool is_quiet();
  void end_sleep(ExecutorRole role) {
    if (role != ExecutorRole::completions) static_cast<void>(inbox().wake_up());
  }

 private:
  base::Status post_now(transport::Command& command, const Completion& completion) override {
    return starts_here() ? post_from_inside(command, completion) : inbox().put(command, completion);
  }
  base::Status post_from_inside(transport::Command& command, const Completion& completion);
  void let_out() override;
  // Only handlers and callbacks of this worker. Their thread knows by itself that it is in one,
  // while inside_ stands on a line that the executor writes all the time.
  [[nodiscard]] bool starts_here() const override { return inside_of() == &worker().core(); }
  [[nodiscard]] bool queues() const override { return true; }
  // Something is under way that only polling will tell, or that a peer waits for. Inside.
  [[nodiscard]] bool wanted_by_work() const { return inbox().stalled() || worker().completer().under_way(); }
  bool wake_completer();
  void run_on_executor(void (*run)(void*), void* what) override {
    executor_->call([&] { run(what); });
  }

  const bool one_thread_;         // Context::one_thread()
  Executor* executor_ = nullptr;  // from begin() to end()
  // ---- the executor's: whether it stands aside for threads that wait
  enum class Others : std::uint8_t { do_not_wait, waited_lately, wait };
  Others look_at_others();
  void stand_aside(bool now);
  std::uint64_t own_polls_ = 0;
  std::uint64_t seen_polls_ = 0;  // of others, at the last look
  std::uint32_t looks_left_ = 0;  // at which those who have waited count as waiting
  // Written by the executor, read by any thread. Relaxed: who misses it waits until the executor
  // looks again, which is soon.
  std::atomic<bool> aside_{false};
  // Calls that wait for the executor's thread, or are about to: it does not stand aside for long
  // while there is one. Relaxed: as aside_.
  std::atomic<std::uint32_t> calls_{0};

  // for the thread inside: or about to sleep: a thread that only polls
  bool completer_asleep_ = false;
};

}  // namespace heddle::engine
