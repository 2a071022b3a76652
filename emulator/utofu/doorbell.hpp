// How an engine sleeps, and what others make for it wakes it.
//
//   who makes something                    the engine
//   publish it, sequentially consistent    asleep = 1
//   asleep == 0 ? done                     something there (all looked at, sequentially
//                                          consistent)? then asleep = 0, go on
//   asleep: 1 -> 0 ? wake                  sleep in the kernel while asleep == 1
//
// Invariants
//   By the single total order of these accesses the maker sees asleep == 1 or the engine sees the
//   thing (Dekker). One maker, whose exchange finds 1, makes the system call; under load asleep is
//   0 and nobody does.
//
// Zeroed memory is a valid doorbell. It may lie in memory that several processes share.
#pragma once

#include <atomic>
#include <cstdint>

#include "queue/bell.hpp"

namespace tofu_emulator {

template <template <class> class Atomic = std::atomic>
struct DoorbellWord {
  Atomic<std::uint32_t> asleep{0};  // seq_cst with what is published; see above
};

template <template <class> class Atomic = std::atomic, class Futex = heddle::queue::SharedFutex>
class Doorbell {
 public:
  explicit Doorbell(DoorbellWord<Atomic>* word) : word_(word) {}

  // Any thread, after a sequentially consistent publication.
  void ring() const {
    if (word_->asleep.load(std::memory_order_seq_cst) != 0 && word_->asleep.exchange(0, std::memory_order_seq_cst) != 0)
      Futex::wake_all(&word_->asleep);
  }

  // The engine. Returns at once if something() says so, when rung, after timeout_ns (negative:
  // never), or for no reason.
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
