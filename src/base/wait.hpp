// How a thread waits for something that another thread or process will do: spin briefly, then give the core away.
#pragma once

#include <sched.h>

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
// With more threads than cores the partner needs this core: spinning longer than a cache transfer takes is waste.
class Waiter {
 public:
  explicit Waiter(Clock& clock, std::int64_t timeout_ns) : clock_(clock), timeout_ns_(timeout_ns) {}

  void busy() { attempts_ = 0; }

  // False: the time is over.
  [[nodiscard]] bool idle() {
    if (++attempts_ < kSpins) {
      if (attempts_ > kFree) cpu_relax();
      return true;
    }
    attempts_ = kSpins;
    if (timeout_ns_ >= 0 && expired()) return false;
    sched_yield();
    return true;
  }

 private:
  static constexpr std::uint32_t kFree = 64;     // without a pause: the answer is one cache transfer away
  static constexpr std::uint32_t kSpins = 2000;  // about the cost of a few context switches

  bool expired() {
    const std::uint64_t now = clock_.now_ns();
    if (!started_) {
      started_ = true;
      start_ns_ = now;
    }
    return now - start_ns_ >= static_cast<std::uint64_t>(timeout_ns_);
  }

  Clock& clock_;
  std::int64_t timeout_ns_;
  std::uint64_t start_ns_ = 0;
  std::uint32_t attempts_ = 0;
  bool started_ = false;
};

}  // namespace heddle::base
