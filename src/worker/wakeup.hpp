// When a worker's descriptor becomes readable: the arming, and the thread that sleeps on the
// transport's bell while it is armed. Over what `Side` does; descriptor.cpp has the one that is
// used, tests/explore one that is explored. Decision 0050.
//
// What makes it readable: a thread that moves the worker (engine/notifier.hpp); or this thread,
// when the bell has rung, or when it sees that something has arrived that nobody has polled. What
// does not ring makes it readable after a time that grows as the library's own waits do.
//
// Invariants
//   The notifier is armed first, then the transport (lie_down()), and the worker's count of moves
//   is read last: what moves or arrives from then on is told.
//   Whenever it is not armed after arm(), it is readable: several loops may wait for it.
//   generation_ is odd while arm() is under way; arm() and stop() change it before they wake the
//   thread. The thread reads it after the bell's number, and sleeps on the bell only if it is the
//   one for which it read how long, and whether to look. So it sleeps for an arming that is
//   complete, or until a ring; and stop() is never slept over.
//
// Side:
//   disarm()               nobody tells for the arming before; what was told is forgotten
//   moved()                a number that changes with each move
//   arm_notifier()         true: with the heavy fence
//   lie_down()             arms the transport; see Quiet
//   remind()               makes the descriptor readable
//   telling()              the notifier is armed
//   tell()                 makes the descriptor readable, if the notifier is armed
//   arrived()              something that nobody has polled, or a failure, since lie_down()
//   can_ring(), bell(), ring(), wait(seen, ns)   of the transport
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/error.hpp"
#include "queue/sleeper.hpp"

namespace heddle::engine {

// How quiet the worker is, by the look before the sleep.
struct Quiet {
  bool work = false;   // there is something for progress already
  bool armed = false;  // what arrives rings, and arrived() tells
  bool polls = false;  // something may only be moved on by polls
};

struct WakeupSystem {
  template <class T>
  using Atomic = std::atomic<T>;
  using Sleeper = queue::Sleeper<>;
};

template <class Side, class System = WakeupSystem>
class Wakeup {
 public:
  explicit Wakeup(Side& side) : side_(side) {}
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  // ---- one thread at a time
  // DONE: armed. AGAIN: the worker has moved since the last call, or progress will find something;
  // the descriptor is readable.
  base::Status arm() {
    side_.disarm();
    if (const std::uint64_t moved = side_.moved(); moved != seen_moved_) return moved_on(moved);
    generation_.fetch_add(1, std::memory_order_seq_cst);
    const bool ordered = side_.arm_notifier();
    const Quiet found = side_.lie_down();
    if (const std::uint64_t moved = side_.moved(); found.work || moved != seen_moved_) {
      side_.disarm();
      generation_.fetch_add(1, std::memory_order_seq_cst);
      return moved_on(moved);
    }

    std::int64_t nap_ns = kNoEnd;
    if (found.polls || !side_.can_ring() || !ordered) {
      nap_ns = std::max(next_nap_ns_, kFirstNapNs);
      next_nap_ns_ = std::min(2 * nap_ns, kLongestNapNs);
    }
    watches_.store(found.armed, std::memory_order_relaxed);
    nap_ns_.store(nap_ns, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_seq_cst);
    sleeper_.wake();
    // It may still sleep for an arming before this one, which had no end.
    if (nap_ns != kNoEnd && at_bell_.load(std::memory_order_seq_cst)) side_.ring();
    return HEDDLE_DONE;
  }

  // ---- any thread, when nobody arms any more: run() returns
  void stop() {
    stop_.store(true, std::memory_order_relaxed);
    generation_.fetch_add(2, std::memory_order_seq_cst);
    sleeper_.wake();
    if (side_.can_ring()) side_.ring();
  }

  // ---- the thread
  void run() {
    for (;;) {
      const std::uint32_t generation = generation_.load(std::memory_order_seq_cst);
      if (stop_.load(std::memory_order_relaxed)) return;
      if (generation % 2 != 0 || !side_.telling()) {
        static_cast<void>(sleeper_.sleep(kNoEnd));
      } else if (side_.can_ring()) {
        sleep_on_bell(generation);
      } else if (!sleeper_.sleep(nap_ns_.load(std::memory_order_relaxed))) {
        side_.tell();
      }
    }
  }

 private:
  static constexpr std::int64_t kNoEnd = -1;
  // Of what only polls move on: as the library's waits, which sleep a millisecond at most.
  static constexpr std::int64_t kFirstNapNs = 50'000;
  static constexpr std::int64_t kLongestNapNs = 1'000'000;
  // A wake-up cannot be lost, as far as we know; if one were, this is how long it would be felt.
  static constexpr std::int64_t kLongestSleepNs = 10'000'000'000;

  base::Status moved_on(std::uint64_t moved) {
    if (moved != seen_moved_) next_nap_ns_ = 0;
    seen_moved_ = moved;
    side_.remind();  // another loop may wait for it, whose arming this one has undone
    return HEDDLE_AGAIN;
  }

  // Tells, or leaves it to the next round: for another arming, or after a sleep without an event.
  void sleep_on_bell(std::uint32_t generation) {
    const std::int64_t nap_ns = nap_ns_.load(std::memory_order_relaxed);
    const bool watches = watches_.load(std::memory_order_relaxed);
    at_bell_.store(true, std::memory_order_seq_cst);
    const std::uint32_t seen = side_.bell();
    const auto changed = [&] { return generation_.load(std::memory_order_seq_cst) != generation; };
    if (!changed()) {
      if (watches && side_.arrived()) {
        side_.tell();
      } else {
        side_.wait(seen, nap_ns == kNoEnd ? kLongestSleepNs : nap_ns);
        // A ring is told, whatever it was for: the next arming finds out. Not that of an arming.
        if (!changed() && (nap_ns != kNoEnd || side_.bell() != seen)) side_.tell();
      }
    }
    at_bell_.store(false, std::memory_order_seq_cst);
  }

  Side& side_;
  // Of the thread that arms.
  std::uint64_t seen_moved_ = 0;
  std::int64_t next_nap_ns_ = 0;
  // Odd: an arming is under way. seq_cst with at_bell_: arm() sees that the thread sleeps, or the
  // thread sees that it was armed again.
  typename System::template Atomic<std::uint32_t> generation_{0};
  typename System::template Atomic<bool> at_bell_{false};
  // Of this arming, ordered by generation_: how long until it is told whatever happens; whether
  // arrived() says something.
  typename System::template Atomic<std::int64_t> nap_ns_{kNoEnd};
  typename System::template Atomic<bool> watches_{false};
  typename System::template Atomic<bool> stop_{false};  // ordered by generation_
  typename System::Sleeper sleeper_;                    // while nothing is armed, or nothing rings
};

}  // namespace heddle::engine
