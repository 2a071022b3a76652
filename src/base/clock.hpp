// The time of a context. All code in the library asks its context's clock, so that tests can run on
// virtual time.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace heddle::base {

inline constexpr std::uint64_t kSecondNs = 1'000'000'000;

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

}  // namespace heddle::base
