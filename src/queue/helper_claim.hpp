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
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>

#include "base/cache_line.hpp"
#include "queue/handover.hpp"

namespace heddle::queue {

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

}  // namespace heddle::queue
