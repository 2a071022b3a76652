// Whether the calling thread runs a handler, a completion callback or a call of
// heddle_run_on_engine: such code may post, but neither wait nor make progress, on whatever worker,
// for its own worker stands still meanwhile.
//
// It is a property of the thread, not of a worker. So every call that would wait can check it by
// one load, whichever worker it is about. Like a thread's number (decision 0009) it is process-wide
// and says nothing about any context.
#pragma once

#include "base/error.hpp"

namespace heddle::engine {

struct Core;
class Job;
class RunningTask;

namespace detail {
// initial-exec: reached without a call, as libraries that are linked may.
extern thread_local constinit const Core* t_inside [[gnu::tls_model("initial-exec")]];
extern thread_local constinit const RunningTask* t_tasks [[gnu::tls_model("initial-exec")]];
}  // namespace detail

// The core of the worker whose handlers the calling thread runs; null: none.
[[nodiscard]] inline const Core* inside_of() {
  return detail::t_inside;
}

// While it lives, the calling thread may neither wait nor make progress: the worker's handlers and
// callbacks run.
class Inside {
 public:
  explicit Inside(const Core& core) : before_(detail::t_inside) { detail::t_inside = &core; }
  ~Inside() { detail::t_inside = before_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const Core* before_;
};

// While it lives, the calling thread runs a USER handler of the worker. The handler may do
// everything except close the worker or leave its context. The objects nest if the handler runs
// tasks itself.
class RunningTask {
 public:
  explicit RunningTask(const Core& core) : core_(core), before_(detail::t_tasks) { detail::t_tasks = this; }
  ~RunningTask() { detail::t_tasks = before_; }
  RunningTask(const RunningTask&) = delete;
  RunningTask& operator=(const RunningTask&) = delete;

  // Whether the calling thread runs a USER handler of this worker, or of any worker of this
  // context.
  [[nodiscard]] static bool of(const Core& core);
  [[nodiscard]] static bool of(const Job& job);
  // The worker whose handler another thread runs, which has its t_tasks at `place`. That thread
  // goes on meanwhile, and does not end. Null: it runs none.
  [[nodiscard]] static const Core* peek(const RunningTask* const* place);

 private:
  const Core& core_;
  const RunningTask* before_;
};

// ERR_STATE: `call` would wait inside a handler or callback.
[[gnu::cold]] base::Status refuse_wait(const char* call);
[[gnu::cold]] base::Status refuse_progress();
// ERR_STATE: `call` would take away the worker whose USER handler makes it.
[[gnu::cold]] base::Status refuse_end(const char* call);

}  // namespace heddle::engine
