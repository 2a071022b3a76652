// How an engine sleeps, and how a producer of work wakes it.
//
//   producer                               engine
//   publish it, sequentially consistent    asleep = 1
//   asleep == 0 ? done                     work there (all checked, sequentially
//                                          consistent)? then asleep = 0, go on
//   asleep: 1 -> 0 ? wake                  sleep in the kernel while asleep == 1
//
// Invariants
//   By the single total order of these accesses the producer sees asleep == 1 or the engine sees
//   the work (Dekker). Only the producer whose exchange returns 1 makes the system call; under load
//   asleep is 0 and no producer makes it.
//
// Zeroed memory is a valid doorbell. It may lie in memory that several processes share.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/wait.hpp"

namespace tofu_emulator {

template <template <class> class Atomic = std::atomic>
struct DoorbellWord {
  Atomic<std::uint32_t> asleep{0};  // seq_cst with what is published; see above
};

// A futex that other processes may wake.
struct SharedFutex {
  static void wait(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::int64_t timeout_ns) {
    heddle::base::futex_wait(word, expected, timeout_ns, heddle::base::FutexScope::shared);
  }
  static void wake_all(std::atomic<std::uint32_t>* word) {
    heddle::base::futex_wake_all(word, heddle::base::FutexScope::shared);
  }
};

template <template <class> class Atomic = std::atomic, class Futex = SharedFutex>
class Doorbell {
 public:
  explicit Doorbell(DoorbellWord<Atomic>* word) : word_(word) {}

  // Called by any thread, after a sequentially consistent publication.
  void ring() const {
    if (word_->asleep.load(std::memory_order_seq_cst) != 0 && word_->asleep.exchange(0, std::memory_order_seq_cst) != 0)
      Futex::wake_all(&word_->asleep);
  }

  // Called by the engine. Returns at once if something() returns true; otherwise when rung, after
  // timeout_ns (negative: never), or spuriously.
  template <class Something>
  void sleep(Something&& something, std::int64_t timeout_ns) const {
    word_->asleep.store(1, std::memory_order_seq_cst);
    if (!something()) Futex::wait(&word_->asleep, 1, timeout_ns);
    word_->asleep.store(0, std::memory_order_relaxed);
  }

 private:
  DoorbellWord<Atomic>* word_;
};

}  // namespace tofu_emulator
