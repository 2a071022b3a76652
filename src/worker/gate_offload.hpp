// offload: who posts leaves its command in the queue, and the executor, a thread of ours, executes
// it. Progress of others is skipped while the executor is inside.
//
// Invariant: the executor sleeps only behind the queue's sleeping bit, so the producer that ends
// its sleep wakes it. Who polls (the executor or its completer) sleeps only while nothing is under
// way, with the worker armed: what arrives rings, and who is inside meanwhile and leaves something
// under way wakes it too.
#pragma once

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
  [[nodiscard]] bool may_advance() const override { return !one_thread_ || executor_->starts_here(); }

  // ---- the executor ----
  enum class Round : std::uint8_t {
    idle,
    waiting,  // for what only polling will tell, or who is inside
    busy
  };
  Round execute_round(ExecutorRole role);
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
  // for the thread inside: or about to sleep: a thread that only polls
  bool completer_asleep_ = false;
};

}  // namespace heddle::engine
