// Handlers and callbacks of the application: their table, how they are called, what a thread that
// runs one may not do, and whether threads run one (for reports).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "heddle/heddle.h"

namespace heddle::engine {

// What heddle_am_register was given; fn null: nothing.
struct Handler {
  heddle_am_handler fn;
  void* arg;
};

// The handler function for each message number, with its argument. It may change while messages
// arrive.
//
// A slot holds two pairs of function and argument: the one in force and the one before it. So
// registering allocates nothing, keeps nothing, and takes the same time however often it is done. A
// reader never waits for a writer that has lost its core.
//
// Invariants: version counts what was registered in the slot; pairs[version % 2] is in force. The
// writer of version n + 1 writes the other pair, that of n - 1, and makes it the one in force by
// storing n + 1. A reader may have read a word of the pair of n + 1 while it took the pair for that
// of n - 1. When it looks again it sees at least n (each word is stored with release after n was,
// and loaded with acquire), and begins anew. That happens only when another handler was registered
// meanwhile.
template <std::size_t kNumbers, template <class> class Atomic = std::atomic>
class HandlerTable {
 public:
  // Any thread. Returns what was registered with this number. The caller sees the argument's target
  // as it was at that time.
  [[nodiscard]] Handler find(std::uint32_t number) const {
    const Slot& slot = slots_[number];
    for (;;) {
      const std::uint64_t version = slot.version.load(std::memory_order_acquire);
      const Pair& pair = slot.pairs[version % 2];
      const Handler found{pair.fn.load(std::memory_order_acquire), pair.arg.load(std::memory_order_acquire)};
      if (slot.version.load(std::memory_order_relaxed) == version) [[likely]]
        return found;
    }
  }

  // One thread at a time.
  void set(std::uint32_t number, Handler handler) {
    Slot& slot = slots_[number];
    const std::uint64_t version = slot.version.load(std::memory_order_relaxed) + 1;
    Pair& pair = slot.pairs[version % 2];
    pair.fn.store(handler.fn, std::memory_order_release);
    pair.arg.store(handler.arg, std::memory_order_release);
    slot.version.store(version, std::memory_order_release);
  }

 private:
  struct Pair {
    // release by set(), after version n; partner: the acquire load in find()
    Atomic<heddle_am_handler> fn{nullptr};
    Atomic<void*> arg{nullptr};  // the same
  };
  // On one line, so that a reader has it for both of its looks, however often others register. Not
  // base::kCacheLine: the longest lines would make the table four times as large.
  struct alignas(64) Slot {
    Atomic<std::uint64_t> version{0};  // release by set(); partner: the first load of find()
    std::array<Pair, 2> pairs;
  };

  std::array<Slot, kNumbers> slots_;
};

// Runs code of the application. An exception ends the process here (std::terminate): no caller
// could go on with a worker that was left half-way, and peers would wait for what it has not done.

inline void call(heddle_am_handler fn, const heddle_am_arrival& arrival, void* arg) noexcept {
  fn(&arrival, arg);
}

inline void call(void (*fn)(void* arg), void* arg) noexcept {
  fn(arg);
}

// Whether the calling thread runs a handler, a completion callback or a call of
// heddle_run_on_engine: such code may post, but neither wait nor make progress, on whatever worker,
// for its own worker stands still meanwhile.
//
// It is a property of the thread, not of a worker. So every call that would wait can check it by
// one load, whichever worker it is about. Like a thread's number (decision 0009) it is process-wide
// and says nothing about any context.

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
[[gnu::cold]] base::Status reject_wait(const char* call);
[[gnu::cold]] base::Status reject_progress();
// ERR_STATE: `call` would take away the worker whose USER handler makes it.
[[gnu::cold]] base::Status reject_end(const char* call);

// Whether some thread is in a handler or callback of a worker: for reports about jobs that hang,
// which look at it from outside.

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
