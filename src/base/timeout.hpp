// How much longer to wait for something, in time during which this process has run.
//
// A process may be stopped, often with its whole job. When it goes on, a deadline may be past
// although no process had time to do anything. So the clock is read now and then, and the time
// since the last reading counts as at most kLookNs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.hpp"

namespace heddle::base {

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
