// Measures for how long nothing has moved. heddle_context_leave stops waiting by it.
#pragma once

#include <cstdint>

#include "base/clock.hpp"

namespace heddle::engine {

// For one thread. Events that keep coming prolong the wait, for kProlongedNs at most: peers that go
// on with each other must not hold up a rank that waits for something else.
class Stillness {
 public:
  static constexpr std::int64_t kProlongedNs = 300'000'000'000;
  static constexpr std::uint32_t kRounds = 64;  // without an event, between looks at the clock

  Stillness(std::int64_t ns, base::Clock& clock) : ns_(ns), prolongs_(kProlongedNs, clock), still_(ns, clock) {}

  // Call it after each round of progress. True: nothing has moved for `ns`; or events have
  // prolonged the wait for kProlongedNs, and another `ns` has passed. `napping`: the caller sleeps
  // between rounds, so that the clock costs nothing beside it.
  [[nodiscard]] bool over(bool moved, bool napping) {
    if (!moved && ++rounds_ % kRounds != 0 && !napping && ns_ > 0) return false;
    const bool prolonged = !prolongs_.over() && moved;
    if (prolonged) still_.renew();
    return still_.over() && !prolonged;
  }
  // Begins anew.
  void renew() {
    prolongs_.renew();
    still_.renew();
  }

 private:
  const std::int64_t ns_;
  base::Timeout prolongs_;
  base::Timeout still_;
  std::uint32_t rounds_ = 0;
};

}  // namespace heddle::engine
