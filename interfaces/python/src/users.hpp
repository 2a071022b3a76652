// The calls that are under way. Closing waits for them; later calls fail. Threads in waits check
// from time to time whether the object is being closed.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "errors.hpp"
#include "gil.hpp"

namespace heddle::python {

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
