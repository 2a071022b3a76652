// Decides which thread executes the commands of a queue that has no executor. The thread that is
// inside (it holds the lock) executes commands that others queue meanwhile; a thread that finds
// another one inside leaves its command to that one.
//
//   enter, work, leave      a thread that needs to be inside anyhow
//   publish, then help      a thread that has queued a command because it could not enter
//
// Invariant: while nobody is inside, no visible command is left behind, with two exceptions: the
// thread inside has left by exit(), since the work is stuck, or after kRounds looks. Reason: the
// producer publishes, then tries the lock; the holder releases the lock, then looks at the queue.
// Both have a full fence between the two steps, so that at least one sees the other's step. A
// helper that finds the lock held by a third thread leaves the command to that one, for which the
// same holds.
#pragma once

#include <atomic>

#include "base/fence.hpp"
#include "queue/try_lock.hpp"

namespace heddle::queue {

struct DelegationFences {
  static void after_exit() { base::full_fence(); }
  static void after_publish() { base::full_fence(); }
};

template <template <class> class Atomic = std::atomic, class Fences = DelegationFences>
class Delegation {
 public:
  // Number of looks after which a leaving thread no longer takes the lock again: it must not
  // execute other threads' commands for ever.
  static constexpr int kRounds = 4;

  Delegation() = default;
  Delegation(const Delegation&) = delete;
  Delegation& operator=(const Delegation&) = delete;

  [[nodiscard]] bool try_enter() { return lock_.try_lock(); }

  // For a thread that is inside, whether or not it has executed commands: only releases the lock.
  void exit() { lock_.unlock(); }

  // As exit(), and takes care of commands published too late for this thread's last look. `looks`:
  // how often it has looked so far, 0 at first. True: the caller is inside again; it executes what
  // there is and leaves with `looks` + 1.
  template <class Ready>
  [[nodiscard]] bool exit_unless(Ready&& ready, int looks) {
    lock_.unlock();
    if (looks == kRounds) return false;
    Fences::after_exit();  // partner: the one in help()
    return ready() && lock_.try_lock();
  }

  // The caller has published a command while a thread was inside that may have left without seeing
  // it. True: the caller is inside, and executes the command.
  [[nodiscard]] bool help() {
    Fences::after_publish();  // partner: the one in exit_unless()
    return lock_.try_lock();
  }

 private:
  TryLock<Atomic> lock_;
};

}  // namespace heddle::queue
