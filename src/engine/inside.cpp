#include "engine/inside.hpp"

#include "engine/core.hpp"

namespace heddle::engine {

thread_local constinit const Core* detail::t_inside [[gnu::tls_model("initial-exec")]] = nullptr;
thread_local constinit const RunningTask* detail::t_tasks [[gnu::tls_model("initial-exec")]] = nullptr;

bool RunningTask::of(const Core& core) {
  const RunningTask* task = detail::t_tasks;
  while (task != nullptr && &task->core_ != &core) task = task->before_;
  return task != nullptr;
}

bool RunningTask::of(const Job& job) {
  const RunningTask* task = detail::t_tasks;
  while (task != nullptr && &task->core_.job != &job) task = task->before_;
  return task != nullptr;
}

// The object that it reads may be gone by then. The memory still belongs to the thread's stack, and
// its content is only compared.
[[gnu::noinline, gnu::no_sanitize_thread, gnu::no_sanitize_address]] const Core* RunningTask::peek(
    const RunningTask* const* place) {
  const RunningTask* const task = *const_cast<const RunningTask* const volatile*>(place);
  return task == nullptr ? nullptr : &task->core_;
}

base::Status refuse_wait(const char* call) {
  return base::fail(
      HEDDLE_ERR_STATE,
      "%s waits, which is not allowed inside a NETWORK handler or completion callback; post with try_ there "
      "and wait outside, or give the handler a number of class USER (HEDDLE_AM_USER + n)",
      call);
}

base::Status refuse_progress() {
  return base::fail(HEDDLE_ERR_STATE,
                    "progress was asked for from inside a NETWORK handler or completion callback; post with try_ there "
                    "and wait outside, or give the handler a number of class USER (HEDDLE_AM_USER + n)");
}

base::Status refuse_end(const char* call) {
  return base::fail(
      HEDDLE_ERR_STATE,
      "%s from a USER handler of that worker or context, which heddle_run_tasks goes on with; call it when "
      "heddle_run_tasks has returned",
      call);
}

}  // namespace heddle::engine
