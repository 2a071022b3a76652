// How long nothing has moved: when heddle_context_leave gives up.
#pragma once

#include <cstdint>

#include "base/clock.hpp"

namespace heddle::engine {

// For one thread. Events that keep coming prolong the wait, for kProlongedNs at most: peers that go on with each other do not hold
// a rank that waits for something else.
class Stillness {
 public:
  static constexpr std::uint64_t kProlongedNs = 300'000'000'000;
  static constexpr std::uint32_t kRounds = 64;  // between looks at the clock

  explicit Stillness(base::Clock& clock) : clock_(clock), begun_ns_(clock.now_ns()), since_ns_(begun_ns_) {}

  // After a round of progress. True: nothing has moved for `ns`, or things have moved for kProlongedNs. `napping`: the caller
  // sleeps between rounds, so that the clock costs nothing beside it.
  [[nodiscard]] bool longer(bool moved, bool napping, std::uint64_t ns) {
    if (moved && ns == 0) return false;
    const bool stopped = moved_ && !moved;
    moved_ = moved;
    prolong_ = prolong_ || moved;
    if (!stopped && ++rounds_ % kRounds != 0 && !napping && ns > 0) return false;
    const std::uint64_t now = clock_.now_ns();
    const bool prolonged = prolong_ && now - begun_ns_ < kProlongedNs;
    prolong_ = false;
    if (prolonged) since_ns_ = now;
    return !prolonged && now - since_ns_ >= ns;
  }

 private:
  base::Clock& clock_;
  std::uint64_t begun_ns_;
  std::uint64_t since_ns_;  // the last event that the clock was read for
  std::uint32_t rounds_ = 0;
  bool moved_ = false;    // in the last round
  bool prolong_ = false;  // since the last look at the clock
};

}  // namespace heddle::engine
