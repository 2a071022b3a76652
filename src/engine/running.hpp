// Whether some thread is in a handler or callback of a worker: for reports about jobs that hang,
// which look at it from outside.
#pragma once

namespace heddle::engine {

struct Core;

// From now on the calling thread can be looked at, until it ends. Cold. A second call has no
// effect. Nothing is known of threads that have not called it.
void look_at_this_thread() noexcept;

struct Running {
  bool handler = false;  // a NETWORK handler, a callback, or a heddle_run_on_engine call
  bool task = false;     // a handler of class USER
};
// What threads other than the calling one run now for that worker. They may go on meanwhile.
[[nodiscard]] Running running(const Core& core);

}  // namespace heddle::engine
