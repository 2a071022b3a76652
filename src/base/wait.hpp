// How a thread waits for something that another thread or process will do: spin briefly, then give the core away.
#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdint>

#include "base/clock.hpp"

namespace heddle::base {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // NOLINT: `yield` is a no-op on the cores that matter; isb really pauses
#endif
}

// One per wait. Call idle() after each fruitless attempt, busy() after a fruitful one.
// With more threads than cores the partner may need this very core: what is spun here is added to every turn of everybody. A
// thread that is alone on its core is back from sched_yield() in half a microsecond, so yielding costs it little.
class Waiter {
 public:
  Waiter(Clock& clock, std::int64_t timeout_ns) : clock_(clock), timeout_ns_(timeout_ns) {
    if (timeout_ns_ >= 0) start_ns_ = clock_.now_ns();
  }

  // False: the time is over.
  [[nodiscard]] bool busy() {
    attempts_ = 0;
    return ++since_clock_ < kClockPeriod || in_time();
  }

  // False: the time is over.
  [[nodiscard]] bool idle() {
    if (++attempts_ < kSpins) {
      if (attempts_ > kFree) cpu_relax();
      return ++since_clock_ < kClockPeriod || in_time();
    }
    attempts_ = kSpins;
    sched_yield();
    return in_time();
  }

 private:
  static constexpr std::uint32_t kFree = 64;    // without a pause: the answer is one cache transfer away
  static constexpr std::uint32_t kSpins = 100;  // five microseconds: about two context switches
  static constexpr std::uint32_t kClockPeriod = 256;

  bool in_time() {
    since_clock_ = 0;
    return timeout_ns_ < 0 || clock_.now_ns() - start_ns_ < static_cast<std::uint64_t>(timeout_ns_);
  }

  Clock& clock_;
  std::int64_t timeout_ns_;
  std::uint64_t start_ns_ = 0;
  std::uint32_t attempts_ = 0;
  std::uint32_t since_clock_ = 0;
};

// For waits of set-up, where the answer makes a way through other processes: sleeps, longer from time to time.
class Nap {
 public:
  void take() {
    const timespec length{0, ns_};
    ::nanosleep(&length, nullptr);
    ns_ = std::min(2 * ns_, kLongest);
  }

 private:
  static constexpr long kLongest = 1'000'000;
  long ns_ = 15'000;
};

}  // namespace heddle::base
