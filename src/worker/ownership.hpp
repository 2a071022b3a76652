// Which thread an exclusive worker without a gate belongs to, so that this thread can move the
// worker on while it waits for something else (Helpers::attend()). The owner is the thread that
// opened the worker, and later the thread that last used it for more than a direct operation.
// Another thread may have been given the worker and may use it for the first time while the
// previous owner waits in a barrier and is about to look at it:
//
//   a thread that uses it                the owner, which waits for something else
//   owner == me ? go on                  owner == me ? go on : leave it alone
//   owner = me                           attended: nobody -> me (compare-and-swap)
//   attended != nobody ? wait : go on    owner == me ? move the worker on
//   … use …                              attended = nobody
//
// Handlers and callbacks that use the worker while the owner moves it on are part of that: a thread
// that has come meanwhile waits for them, too.
//
// Invariants
//   The second column's look at owner comes after its write to attended, the first column's look at
//   attended after its write to owner, all seq_cst: one of them sees the other (Dekker). So nobody
//   uses the worker while another thread attends to it.
//   One thread at a time attends (the compare-and-swap), and only that clears attended.
//   Apart from that, the program ensures that one thread at a time uses the worker.
//
// The usual use costs one comparison.
#pragma once

#include <sched.h>

#include <atomic>

namespace heddle::engine {

// The calling thread, and what it does in each round of a wait for another one.
struct SystemThread {
  // The thread pointer, which the processor has in a register: a comparison with it is one
  // instruction.
  static const void* me() { return __builtin_thread_pointer(); }
  // The thread that attends runs the worker's handlers, which do not block; it may have lost its
  // core.
  static void wait() { sched_yield(); }
};

template <template <class> class Atomic = std::atomic, class Thread = SystemThread>
class Ownership {
 public:
  Ownership() = default;
  Ownership(const Ownership&) = delete;
  Ownership& operator=(const Ownership&) = delete;

  // Called before any use if the worker has a gate: it then belongs to no thread.
  void renounce() { owner_.store(nullptr, std::memory_order_relaxed); }
  // The calling thread may use the worker at once. False: it has to call come_by() first.
  [[nodiscard]] bool mine() const { return owner_.load(std::memory_order_relaxed) == Thread::me(); }
  // The calling thread is about to use the worker.
  void come_by() {
    if (!mine()) [[unlikely]]
      take();
  }
  // Runs function(). False: the worker is another thread's, and nothing has run. The calling thread
  // must not be using the worker at the moment.
  template <class Function>
  bool attend(Function&& function) {
    if (!mine()) return false;
    const void* nobody = nullptr;
    if (!attended_.compare_exchange_strong(nobody, Thread::me(), std::memory_order_seq_cst, std::memory_order_relaxed))
      return false;
    const bool mine = owner_.load(std::memory_order_seq_cst) == Thread::me();
    if (mine) function();
    attended_.store(nullptr, std::memory_order_release);  // partner: the load in take()
    return mine;
  }

 private:
  [[gnu::noinline, gnu::cold]] void take() {
    // Inside its own look, only this thread's own write is read here.
    if (attended_.load(std::memory_order_relaxed) == Thread::me()) return;
    owner_.store(Thread::me(), std::memory_order_seq_cst);
    while (attended_.load(std::memory_order_seq_cst) != nullptr) Thread::wait();
  }

  Atomic<const void*> owner_{Thread::me()};
  Atomic<const void*> attended_{nullptr};  // by whom
};

}  // namespace heddle::engine
