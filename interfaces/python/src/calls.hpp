// Calls of the library: without the GIL, with errors as exceptions, and counted, so that closing
// waits for them.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

#include "heddle/heddle.h"

namespace heddle::python {

namespace nb = nanobind;

// Giving the GIL away and taking it back, also while the interpreter ends.
//
// Before version 3.14, Python then ends a thread that wants the GIL by force, which C++ code does
// not survive. So from atexit on, threads that want the GIL block for ever. At that moment, threads
// that are already on their way to the GIL still get it, and the end waits for them.
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

// How an error becomes an exception: of the class that heddle.errors has for its status.

namespace nb = nanobind;

// With the GIL. The text of the first function is that of this thread's last failing call.
[[noreturn]] void raise(heddle_status status);
[[noreturn]] void raise(heddle_status status, const std::string& text);
// Python's own exceptions: TypeError if an object is no memory, BufferError for memory of the wrong
// kind.
[[noreturn]] void raise(PyObject* type, const std::string& text);

// Not negative: passes it on. With the GIL.
inline heddle_status check(heddle_status status) {
  if (status < 0) [[unlikely]]
    raise(status);
  return status;
}

// Runs `call` without the GIL. The text of an error stays with the thread, until Python code runs.
template <class Call>
heddle_status released(Call&& call) {
  return without_gil([&]() -> heddle_status { return call(); });
}
template <class Call>
heddle_status checked_released(Call&& call) {
  return check(released(static_cast<Call&&>(call)));
}

// Nanoseconds from seconds; None: without limit. Less than 0 or not a number: ArgumentError.
std::int64_t timeout_ns(const nb::object& seconds);

// Numbers from any object that Python accepts as an integer, including NumPy's. TypeError: it is
// none. ArgumentError: out of its range; `what` names it.
std::uint32_t number32(nb::handle value, const char* what);
std::uint64_t number64(nb::handle value, const char* what);
// A word of 32 or 64 bits; negative ones as their two's complement.
std::uint64_t word(nb::handle value, unsigned bits);

void bind_errors(nb::module_& module);

// The calls that are under way. Closing waits for them; later calls fail. Threads in waits check
// from time to time whether the object is being closed.

// The users of a worker, or a context's other calls.
class Users {
 public:
  // False: it is being closed, or closed.
  [[nodiscard]] bool enter() {
    if ((state_.fetch_add(1, std::memory_order_acquire) & kClosing) == 0) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() {
    // Release: what the call did. Partner: the acquire load in wait().
    if (state_.fetch_sub(1, std::memory_order_release) == (kClosing | 1)) state_.notify_all();
  }
  [[nodiscard]] bool closing() const { return (state_.load(std::memory_order_relaxed) & kClosing) != 0; }
  // False: another thread closes it.
  [[nodiscard]] bool begin_close() { return (state_.fetch_or(kClosing, std::memory_order_relaxed) & kClosing) == 0; }
  void reopen() { state_.fetch_and(~kClosing, std::memory_order_relaxed); }
  // Waits until nobody is inside; without the GIL. False: the interpreter ends, and threads that
  // are inside stay there.
  [[nodiscard]] bool wait() const {
    for (std::uint32_t state = 0; (state = state_.load(std::memory_order_acquire)) != kClosing;) {
      if (Interpreter::ends()) return false;
      state_.wait(state, std::memory_order_acquire);
    }
    return true;
  }

 private:
  static constexpr std::uint32_t kClosing = std::uint32_t{1} << 31;
  std::atomic<std::uint32_t> state_{0};  // how many are inside, and kClosing
};

// How many calls this thread is in: more than none in a handler.
// initial-exec: a load, and no call.
inline thread_local constinit std::uint32_t t_calls [[gnu::tls_model("initial-exec")]] = 0;

// A call. Throws ClosedError. With the GIL.
class Use {
 public:
  Use(Users& users, const char* closed) : users_(users) {
    if (!users.enter()) raise(HEDDLE_ERR_HANDLE, closed);
    ++t_calls;
  }
  ~Use() {
    --t_calls;
    users_.leave();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  Users& users_;
};

inline constexpr const char* kInterpreterEnds =
    "the interpreter ends while other threads are in calls, which never return: close, or leave, before";
inline constexpr const char* kWorkerClosed = "the worker is closed, or its context has left";
inline constexpr const char* kContextLeft = "the context has left";

// call(ns) waits that long at most, and returns TIMEOUT then. Calls it, without the GIL, until it
// returns something else or the time is over. In between, it handles signals (control-C), and
// notices that `users` or `others` (null: none) are being closed.
template <class Call>
heddle_status in_slices(const Users& users, std::int64_t limit_ns, Call&& call, const Users* others = nullptr) {
  constexpr std::int64_t kSliceNs = 100'000'000;
  for (std::int64_t left_ns = limit_ns;;) {
    const std::int64_t slice_ns = left_ns < 0 ? kSliceNs : std::min(left_ns, kSliceNs);
    const heddle_status status = released([&] { return call(slice_ns); });
    if (status != HEDDLE_ERR_TIMEOUT) return status;
    if (left_ns >= 0 && (left_ns -= slice_ns) == 0) return status;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (users.closing() || (others != nullptr && others->closing()))
      raise(HEDDLE_ERR_HANDLE, "the worker is being closed, or its context leaves");
  }
}

}  // namespace heddle::python
