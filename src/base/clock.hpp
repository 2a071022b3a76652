// Time: the clock of a context, time-outs, and a counter that is read within nanoseconds.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace heddle::base {

inline constexpr std::uint64_t kSecondNs = 1'000'000'000;

// The time of a context. All code in the library asks its context's clock, so that tests can run on
// virtual time.
class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  // Nanoseconds since some fixed moment; never goes back.
  [[nodiscard]] virtual std::uint64_t now_ns() = 0;
};

class SystemClock final : public Clock {
 public:
  std::uint64_t now_ns() override {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
  }
};

// Advances only when told to.
class ManualClock final : public Clock {
 public:
  std::uint64_t now_ns() override { return now_ns_.load(std::memory_order_relaxed); }
  void advance_ns(std::uint64_t by) { now_ns_.fetch_add(by, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> now_ns_{0};  // partner: none; a number, publishes nothing else
};

// How much longer to wait for something, in time during which this process has run.
//
// A process may be stopped, often with its whole job. When it goes on, a deadline may be past
// although no process had time to do anything. So the clock is read now and then, and the time
// since the last reading counts as at most kLookNs.
//
// For one thread.
class Timeout {
 public:
  static constexpr std::int64_t kForever = -1;
  static constexpr std::int64_t kLookNs = 1'000'000'000;

  Timeout(std::int64_t ns, Clock& clock) : ns_(ns), clock_(&clock) { renew(); }

  // How long poll(2) may sleep before the next call of over().
  [[nodiscard]] int slice_ms() const {
    if (ns_ < 0) return -1;
    return static_cast<int>((std::clamp<std::int64_t>(left_ns_, 1, kLookNs) + kMs - 1) / kMs);
  }
  // Reads the clock. True: the time is over.
  [[nodiscard]] bool over() {
    if (ns_ < 0) return false;
    const std::uint64_t now = clock_->now_ns();
    left_ns_ -= std::min(static_cast<std::int64_t>(now - looked_ns_), kLookNs);
    looked_ns_ = now;
    return left_ns_ <= 0;
  }
  void renew() {
    left_ns_ = ns_;
    looked_ns_ = clock_->now_ns();
  }

 private:
  static constexpr std::int64_t kMs = 1'000'000;

  std::int64_t ns_;
  Clock* clock_;
  std::int64_t left_ns_ = 0;
  std::uint64_t looked_ns_ = 0;
};

}  // namespace heddle::base

// A counter that runs at one rate on all cores of a machine, and is read within nanoseconds.

namespace heddle::base {

// It has no fixed unit and origin, and never goes back on one core. The reading is not ordered with
// the code around it: it may be early or late by some dozen nanoseconds.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t count = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
#endif
}

}  // namespace heddle::base
