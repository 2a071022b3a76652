// Whether some thread is in a handler or callback of a worker: for reports about jobs that hang,
// which look at it from outside.
#pragma once

namespace heddle::engine {

struct Core;

// The calling thread is looked at from now on, until it ends. Cold; again: nothing happens. Of
// threads that have not called it nothing is known.
void look_at_this_thread() noexcept;

struct Running {
  bool handler = false;  // of class NETWORK, a callback, or a call of heddle_run_on_engine
  bool task = false;     // a handler of class USER
};
// What threads other than the calling one run now of that worker's. They may go on meanwhile.
[[nodiscard]] Running running(const Core& core);

}  // namespace heddle::engine
