// Giving the GIL away and taking it back, also while the interpreter ends.
//
// Before version 3.14, Python then ends a thread that wants the GIL by force, which C++ code does
// not survive. So from atexit on, threads that want the GIL block for ever. At that moment, threads
// that are already on their way to the GIL still get it, and the end waits for them.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>

namespace heddle::python {

namespace nb = nanobind;

class Interpreter {
 public:
  // Any thread calls it, without the GIL, before it takes the GIL. It does not return once the
  // interpreter ends, except on the thread that ends the interpreter.
  static void begin_taking();
  // The thread has the GIL now.
  static void end_taking() { taking_.fetch_sub(1, std::memory_order_release); }
  // At exit, with the GIL.
  static void begin_end();
  // Threads may stay where they are, and never come back.
  [[nodiscard]] static bool ends() { return ends_.load(std::memory_order_seq_cst); }
  // In the child of a fork, which has one thread.
  static void begin_child();

 private:
  static std::atomic<std::uint32_t> taking_;
  // seq_cst with taking_: either begin_end() sees the thread that is on its way, or that thread
  // sees the end.
  static std::atomic<bool> ends_;
};

// Without the GIL. `call` must not throw.
template <class Call>
auto without_gil(Call&& call) {
  PyThreadState* const state = PyEval_SaveThread();
  auto result = call();
  Interpreter::begin_taking();
  PyEval_RestoreThread(state);
  Interpreter::end_taking();
  return result;
}

// For a thread that does not have the GIL, even if it is one of Python's threads.
template <class Call>
void with_gil(Call&& call) {
  Interpreter::begin_taking();
  const PyGILState_STATE state = PyGILState_Ensure();
  Interpreter::end_taking();
  call();
  PyGILState_Release(state);
}

void bind_interpreter(nb::module_& module);

}  // namespace heddle::python
