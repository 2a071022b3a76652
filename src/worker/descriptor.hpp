// A worker's descriptor, for programs that wait in a loop of their own: when it becomes readable
// (Wakeup), and the descriptor itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "queue/bell.hpp"

namespace heddle::worker {

// The state of the worker at the look before the sleep.
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

// Makes a worker's descriptor readable: the arming, and the thread that sleeps on the transport's
// bell while the descriptor is armed. `Side` has the operations; descriptor.cpp has the Side that
// is used, tests/explore has one that is explored. Decision 0050.
//
// A thread that moves the worker makes the descriptor readable (engine/core.hpp, Notifier). So does
// this thread, when the bell has rung, or when it sees an arrival that no thread has polled.
// Arrivals that do not ring make the descriptor readable after a time that grows as in the
// library's own waits.
//
// Invariants
//   The notifier is armed first, then the transport (lie_down()), and the worker's count of moves
//   is read last: every move or arrival from then on is told.
//   Whenever the descriptor is not armed after arm(), it is readable, since several loops may wait
//   for it.
//   generation_ is odd while arm() is under way; arm() and stop() change it before they wake the
//   thread. The thread reads generation_ again after the bell's number. It sleeps on the bell only
//   if this is the generation for which it read how long to sleep, and whether to look at arrivals.
//   So it sleeps for a complete arming, or until a ring, and never misses stop().
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
    // The thread may still sleep for an earlier arming, whose sleep had no end.
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
  // Sleeps while something under way moves on only by polls. As in the library's waits, they last a
  // millisecond at most.
  static constexpr std::int64_t kFirstNapNs = 50'000;
  static constexpr std::int64_t kLongestNapNs = 1'000'000;
  // A wake-up cannot be lost, as far as we know; if one were, this is how long it would be felt.
  static constexpr std::int64_t kLongestSleepNs = 10'000'000'000;

  base::Status moved_on(std::uint64_t moved) {
    if (moved != seen_moved_) next_nap_ns_ = 0;
    seen_moved_ = moved;
    side_.remind();  // another loop may wait for it: this call has undone that loop's arming
    return HEDDLE_AGAIN;
  }

  // Makes the descriptor readable, or leaves that to the next round: if there is another arming, or
  // after a sleep without an event.
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
        // A ring makes the descriptor readable, whatever it was for: the next arming finds out.
        // Exception: the ring of an arming.
        if (!changed() && (nap_ns != kNoEnd || side_.bell() != seen)) side_.tell();
      }
    }
    at_bell_.store(false, std::memory_order_seq_cst);
  }

  Side& side_;
  // Used only by the thread that arms.
  std::uint64_t seen_moved_ = 0;
  std::int64_t next_nap_ns_ = 0;
  // Odd: an arming is under way. seq_cst with at_bell_: arm() sees that the thread sleeps, or the
  // thread sees that it was armed again.
  typename System::template Atomic<std::uint32_t> generation_{0};
  typename System::template Atomic<bool> at_bell_{false};
  // The values of this arming, ordered by generation_: after how long the descriptor becomes
  // readable in any case; whether arrived() means something.
  typename System::template Atomic<std::int64_t> nap_ns_{kNoEnd};
  typename System::template Atomic<bool> watches_{false};
  typename System::template Atomic<bool> stop_{false};  // ordered by generation_
  typename System::Sleeper sleeper_;                    // while nothing is armed, or nothing rings
};

class Worker;

// A worker's descriptor, for programs whose loop waits by poll, epoll, libuv or asyncio:
// heddle_worker_descriptor and heddle_worker_arm. It is an eventfd; Wakeup says when it becomes
// readable. Its thread makes no progress: the program's does.
class Descriptor {
 public:
  explicit Descriptor(Worker& worker) : worker_(worker) {}
  // No other thread uses it. The number of the descriptor is free afterwards.
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  // Any thread, also in a handler. Opens it at the first call. Throws std::system_error if there
  // can be no thread.
  base::Result<int> open();
  // DONE: armed. AGAIN: the worker has moved since the last call, or progress will find something.
  // A thread that the sharing mode permits, not inside a handler.
  base::Status arm();

  // ---- for Wakeup
  void disarm();
  [[nodiscard]] std::uint64_t moved() const;
  [[nodiscard]] bool arm_notifier();
  [[nodiscard]] Quiet lie_down();
  void remind() const;
  [[nodiscard]] bool telling() const;
  void tell();
  [[nodiscard]] bool arrived() const;
  [[nodiscard]] bool can_ring() const;
  [[nodiscard]] std::uint32_t bell() const;
  void ring() const;
  void wait(std::uint32_t seen, std::int64_t timeout_ns) const;

 private:
  Worker& worker_;
  // -1: not open. Release by open(), partner: its first load, and that of arm().
  std::atomic<int> descriptor_{-1};
  // The failure epoch that the last arming has seen. Written by arm(), read by the thread: ordered
  // by Wakeup's generation.
  std::atomic<std::uint64_t> failure_epoch_{0};
  std::mutex opens_;  // one thread opens; no handler runs meanwhile
  std::mutex arms_;   // one thread arms; handlers may run meanwhile, which do not arm
  Wakeup<Descriptor> wakeup_{*this};
  std::thread thread_;  // the last: it uses the others
};

}  // namespace heddle::worker
