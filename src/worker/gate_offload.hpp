// offload: a thread that posts leaves its command in the queue, and the executor, a thread of the
// library, executes it. Progress of others is skipped while the executor is inside.
//
// standby.hpp: how the executor sleeps, how it stands aside for threads that wait, and what wakes
// it.
#pragma once

#include <memory>

#include "worker/executor.hpp"
#include "worker/gate_core.hpp"
#include "worker/standby.hpp"

namespace heddle::engine {

class OffloadGate final : public CoreGate {
 public:
  OffloadGate(Worker& worker, std::unique_ptr<Inbox> inbox);

  void begin() override;
  void end() override;
  [[nodiscard]] bool may_call() const override { return executor_->starts_here(); }
  void call_begins() override {
    if (standby_.call_begins()) executor_->wake();
  }
  void call_ends() override { standby_.call_ends(); }
  [[nodiscard]] bool executor_polls() const override { return !aside(); }
  [[nodiscard]] bool may_advance() const override { return !one_thread_ || executor_->starts_here(); }

  // ---- the executor ----
  Round execute_round(ExecutorRole role);
  // The last round was Round::aside or aside_briefly.
  [[nodiscard]] bool aside() const { return standby_.aside(); }
  // See standby.hpp.
  [[nodiscard]] bool prepare_sleep(ExecutorRole role);
  [[nodiscard]] bool is_quiet();
  void end_sleep(ExecutorRole role);

 private:
  class Side;  // what standby_ does inside the worker

  base::Status post_now(transport::Command& command, const Completion& completion) override {
    return starts_here() ? post_from_inside(command, completion) : inbox().put(command, completion);
  }
  // Out of line: else every thread that posts saves registers for it.
  [[gnu::noinline]] base::Status post_from_inside(transport::Command& command, const Completion& completion);
  void let_out() override;
  // Only for handlers and callbacks of this worker. A thread-local mark tells a thread that it runs
  // one; inside_ lies on a line that the executor writes all the time.
  [[nodiscard]] bool starts_here() const override { return inside_of() == &worker().core(); }
  [[nodiscard]] bool queues() const override { return true; }
  void run_on_executor(void (*run)(void*), void* what) override {
    executor_->call([&] { run(what); });
  }

  const bool one_thread_;         // Context::one_thread()
  Executor* executor_ = nullptr;  // from begin() to end()
  Standby<> standby_;
};

}  // namespace heddle::engine
