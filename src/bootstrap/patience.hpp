// How much longer something is waited for, by the time that this process has run.
//
// A process may be stopped, often with its whole job, and find a deadline past when it goes on, though nobody has had time to do anything. So
// it waits in slices, and however long a slice has taken, it counts as no more than one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.hpp"

namespace heddle::bootstrap {

class Patience {
 public:
  static constexpr int kForever = -1;

  explicit Patience(int ms) : ms_(ms) { renew(); }

  // The longest wait before the next over(), as poll(2) takes it.
  [[nodiscard]] int slice_ms() const {
    return ms_ < 0 ? kForever : static_cast<int>(std::clamp<std::int64_t>(left_ns_, 0, kSliceNs - kMs) / kMs) + 1;
  }
  [[nodiscard]] bool over() {
    const std::int64_t now = now_ns();
    left_ns_ -= std::min(now - since_ns_, kSliceNs);
    since_ns_ = now;
    return ms_ >= 0 && left_ns_ <= 0;
  }
  void renew() {
    left_ns_ = std::int64_t{ms_} * kMs;
    since_ns_ = now_ns();
  }

 private:
  static constexpr std::int64_t kMs = 1'000'000;
  static constexpr std::int64_t kSliceNs = 250 * kMs;
  static std::int64_t now_ns() { return static_cast<std::int64_t>(base::SystemClock().now_ns()); }

  int ms_;
  std::int64_t left_ns_ = 0;
  std::int64_t since_ns_ = 0;
};

}  // namespace heddle::bootstrap
