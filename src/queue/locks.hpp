// Locks: tried and never waited for; whose holder works for others; that helpers hold.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>

#include "base/cache_line.hpp"
#include "base/fence.hpp"
#include "queue/handover.hpp"

namespace heddle::queue {

// A lock that is tried and never waited for: a thread that finds it held skips the object.
//
// Invariant: held == 1 exactly while one thread is between a successful try_lock() and its
// unlock().
//
// A thread that skips may leave work behind that the holder, on its way out, no longer sees: the
// holder looks and finds nothing, the other thread adds work and finds the lock held, the holder
// unlocks. Either some thread comes by again (a progress loop), or look and leave must be one step:
// the sleeping bit of CommandQueue, which needs no lock besides.
template <template <class> class Atomic = std::atomic>
class TryLock {
 public:
  TryLock() = default;
  TryLock(const TryLock&) = delete;
  TryLock& operator=(const TryLock&) = delete;

  // The load before the exchange leaves the line where it is while another thread works.
  [[nodiscard]] bool try_lock() {
    return held_.load(std::memory_order_relaxed) == 0 && held_.exchange(1, std::memory_order_acquire) == 0;
  }
  void unlock() { held_.store(0, std::memory_order_release); }

  // For heuristics and printing: out of date when the caller reads the result.
  [[nodiscard]] bool looks_held() const { return held_.load(std::memory_order_relaxed) != 0; }

  // if (TryLock<>::Guard guard{lock}) { … }
  class [[nodiscard]] Guard {
   public:
    explicit Guard(TryLock& lock) : lock_(lock.try_lock() ? &lock : nullptr) {}
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() {
      if (lock_ != nullptr) lock_->unlock();
    }
    explicit operator bool() const { return lock_ != nullptr; }

   private:
    TryLock* lock_;
  };

 private:
  Atomic<std::uint32_t> held_{0};  // release by unlock(), acquire by try_lock()'s exchange
};

struct DelegationFences {
  static void after_exit() { base::full_fence(); }
  static void after_publish() { base::full_fence(); }
};

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

// Names the helper that holds something guarded by a lock, so that a thread that finds the lock
// held can fetch a helper that has lost its core.
//
// A helper is a thread of low priority: if the scheduler preempts it while it holds a lock, on a
// core that others keep busy, it holds up threads of ordinary priority for hundreds of
// milliseconds. These threads do here what the owner of a Handover does: they give the helper their
// own core, and sleep.
//
//   helper                          thread that finds the lock held
//   try_claim: 0 -> its number      claim == 0 ? nobody to fetch : fetch(): move it here, sleep
//                                   until it has left
//   try the lock
//   … use …
//   unlock
//   release: 0, and wake
//
// Invariants
//   At most one helper has the claim, and it has it for longer than the lock. So while a helper
//   holds the lock the claim names it, wherever it was preempted. Threads that are no helpers take
//   the lock without a claim. A thread that fetches adds kWaiting with compare-and-swap before it
//   sleeps, and never removes it; so release() sees it, or the sleeper sees another claim (or none)
//   and does not sleep.
//   The claim orders nothing: the lock does.
template <template <class> class Atomic = std::atomic, class System = SystemHandover>
class HelperClaim {
 public:
  HelperClaim() = default;
  HelperClaim(const HelperClaim&) = delete;
  HelperClaim& operator=(const HelperClaim&) = delete;

  // `thread`: as for Handover. False: another helper has the claim.
  [[nodiscard]] bool try_claim(std::uint32_t thread) {
    assert(thread >= 1 && (thread & kWaiting) == 0);
    std::uint32_t nobody = 0;
    return word_.load(std::memory_order_relaxed) == 0 &&
           word_.compare_exchange_strong(nobody, thread, std::memory_order_relaxed, std::memory_order_relaxed);
  }
  void release() {
    if ((word_.exchange(0, std::memory_order_release) & kWaiting) != 0) System::wake(&word_);
  }

  // Whether a helper has the claim: out of date when the caller reads the result.
  [[nodiscard]] bool claimed() const { return word_.load(std::memory_order_relaxed) != 0; }

  // Moves the helper here and sleeps until it has left, or for `sleep_ns`. False: there was none.
  bool fetch(std::int64_t sleep_ns) {
    std::uint32_t claim = word_.load(std::memory_order_relaxed);
    do {
      if (claim == 0) return false;
      if ((claim & kWaiting) != 0) break;
    } while (
        !word_.compare_exchange_strong(claim, claim | kWaiting, std::memory_order_relaxed, std::memory_order_relaxed));
    System::fetch(&word_, claim | kWaiting, claim & ~kWaiting, sleep_ns);
    return true;
  }

  static constexpr std::uint32_t kWaiting = 1U << 31;

 private:
  // 0, or the helper's number, perhaps with kWaiting. Relaxed, except for release()'s exchange: a
  // thread that is woken by it, or does not sleep because of it, tries the lock next.
  Atomic<std::uint32_t> word_{0};
};

namespace detail {
// The number of this thread if it is a helper; 0: it is not.
inline thread_local constinit std::uint32_t t_helper = 0;
}  // namespace detail

// The calling thread is a helper from now on, with this number (as of Handover); 0: it is not.
inline void be_helper(std::uint32_t number) {
  detail::t_helper = number;
}
inline std::uint32_t this_helper() {
  return detail::t_helper;
}

// A mutex that helpers may hold, too: a thread that waits for it fetches a helper that has lost its
// core (HelperClaim). For locks that are taken rarely and briefly; where nobody waits it costs
// two read-modify-writes and a read of a thread-local variable.
//
// word_: 0 free, 1 held, 2 held and a thread may sleep. Only the holder stores 0, by an exchange
// that tells it whether to wake. A thread that waits stores 2 before it sleeps, and takes the mutex
// with 2, since others may still sleep.
//
// ThreadSanitizer in a program is shown the order of its holders, as of any mutex: it sees that one
// thread allocates what a list under the mutex names, and that another one, a helper perhaps, frees
// it.
template <template <class> class Atomic = std::atomic, class System = SystemHandover>
class BasicFetchingMutex {
 public:
  BasicFetchingMutex() = default;
  BasicFetchingMutex(const BasicFetchingMutex&) = delete;
  BasicFetchingMutex& operator=(const BasicFetchingMutex&) = delete;

  void lock() {
    if (detail::t_helper != 0) claim();
    if (!take()) wait();
    base::show_acquire(this);
  }
  [[nodiscard]] bool try_lock() {
    if (detail::t_helper != 0 && !helper_.try_claim(detail::t_helper)) return false;
    if (take()) {
      base::show_acquire(this);
      return true;
    }
    if (detail::t_helper != 0) helper_.release();
    return false;
  }
  void unlock() {
    base::show_release(this);
    if (word_.exchange(kFree, std::memory_order_release) == kAwaited) System::wake(&word_);
    if (detail::t_helper != 0) helper_.release();
  }
  // For another helper: gives its core to the helper that holds the mutex, if one does, and sleeps
  // for at most `sleep_ns`.
  bool fetch(std::int64_t sleep_ns) { return helper_.fetch(sleep_ns); }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kAwaited = 2;
  static constexpr std::int64_t kSleepNs = 1'000'000;

  bool take() {
    std::uint32_t free = kFree;
    return word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }
  // Helpers, too, fetch each other.
  [[gnu::noinline]] void claim() {
    while (!helper_.try_claim(detail::t_helper)) static_cast<void>(helper_.fetch(kSleepNs));
  }
  // The first round only sleeps, as long as a holder of ordinary priority may take. The later ones
  // fetch the helper, if one holds the mutex.
  [[gnu::noinline, gnu::cold]] void wait() {
    for (std::uint32_t round = 0; word_.exchange(kAwaited, std::memory_order_acquire) != kFree; ++round) {
      if (round > 0 && detail::t_helper == 0 && helper_.fetch(kSleepNs)) continue;
      System::wait(&word_, kAwaited, System::kStays, 0);
    }
  }

  // release by unlock(), acquire by take() and wait(): what it guards
  Atomic<std::uint32_t> word_{kFree};
  HelperClaim<Atomic, System> helper_;
};
using FetchingMutex = BasicFetchingMutex<>;

}  // namespace heddle::queue
