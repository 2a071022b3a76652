// Giving the GIL away and taking it back, also while the interpreter ends.
//
// A thread that wants the GIL then is ended by Python by force, before 3.14, which C++ does not
// survive. So from the beginning of the end (atexit) on threads stay where they are. Those that are
// on their way to the GIL at that moment are waited for, and still get it.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>

namespace heddle::python {

namespace nb = nanobind;

class Interpreter {
 public:
  // Any thread, without the GIL, before it takes it. Does not return once the interpreter ends,
  // unless it is the thread that ends it.
  static void begin_taking();
  // It has it.
  static void end_taking() { taking_.fetch_sub(1, std::memory_order_release); }
  // At exit, with the GIL.
  static void begin_end();
  // Threads may stay where they are, and never come back.
  [[nodiscard]] static bool ends() { return ends_.load(std::memory_order_seq_cst); }
  // In the child of a fork, which has one thread.
  static void begin_child();

 private:
  static std::atomic<std::uint32_t> taking_;
  // seq_cst with taking_: begin_end() sees who is on the way, or that one sees the end.
  static std::atomic<bool> ends_;
};

// Without the GIL. What `call` throws does not come out: it does not throw.
template <class Call>
auto without_gil(Call&& call) {
  PyThreadState* const state = PyEval_SaveThread();
  auto result = call();
  Interpreter::begin_taking();
  PyEval_RestoreThread(state);
  Interpreter::end_taking();
  return result;
}

// For a thread that does not have it, though it may be one of Python's.
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
