// Who executes the commands of a queue that has no executor: a thread that is inside executes what
// others queue meanwhile, and who finds somebody inside leaves its command to that thread.
//
//   enter, work, leave      who wants to be inside anyhow
//   publish, then help      who has queued a command because it could not enter
//
// Invariant: a visible command is never left behind while nobody is inside, but for what leave() is
// told to leave: when the work is stuck, or after kRounds looks. For the producer publishes, then
// tries the lock; the holder gives the lock up, then looks at the queue; a full fence stands
// between on both sides, so that at least one sees the other's step. A helper that finds the lock
// held by a third thread leaves the command to that one, for which the same holds.
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
  // Looks before a thread on its way out lets others have their turn: it shall not execute their
  // commands for ever.
  static constexpr int kRounds = 4;

  Delegation() = default;
  Delegation(const Delegation&) = delete;
  Delegation& operator=(const Delegation&) = delete;

  [[nodiscard]] bool try_enter() { return lock_.try_lock(); }

  // Of a thread that is inside, whether or not that has to do with commands: merely gives the place
  // up.
  void exit() { lock_.unlock(); }

  // As exit(), and sees to what was published too late for this thread's last look. `looks` is how
  // often it has looked so far, 0 at first. True: the caller is inside again, executes what there
  // is, and leaves with one look more.
  template <class Ready>
  [[nodiscard]] bool exit_unless(Ready&& ready, int looks) {
    lock_.unlock();
    if (looks == kRounds) return false;
    Fences::after_exit();  // partner: the one in help()
    return ready() && lock_.try_lock();
  }

  // A command was published while somebody was inside, who may have left meanwhile without seeing
  // it. True: the caller is inside, and executes it.
  [[nodiscard]] bool help() {
    Fences::after_publish();  // partner: the one in exit_unless()
    return lock_.try_lock();
  }

 private:
  TryLock<Atomic> lock_;
};

}  // namespace heddle::queue
