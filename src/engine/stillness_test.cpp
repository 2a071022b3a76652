#include "engine/stillness.hpp"

#include <gtest/gtest.h>

#include "base/clock.hpp"

namespace heddle::engine {
namespace {

constexpr std::uint64_t kBound = 30'000'000'000;

TEST(Stillness, CountsFromTheLastEvent) {
  base::ManualClock clock;
  Stillness still(clock);
  EXPECT_FALSE(still.longer(false, true, kBound));
  clock.advance_ns(kBound - 1);
  EXPECT_FALSE(still.longer(false, true, kBound));
  EXPECT_FALSE(still.longer(true, true, kBound));
  clock.advance_ns(kBound - 1);
  EXPECT_FALSE(still.longer(false, true, kBound));
  clock.advance_ns(1);
  EXPECT_TRUE(still.longer(false, true, kBound));
}

TEST(Stillness, LooksAtTheClockOnceInManyRounds) {
  base::ManualClock clock;
  Stillness still(clock);
  clock.advance_ns(kBound);
  std::uint32_t rounds = 1;
  while (!still.longer(false, false, kBound) && rounds <= Stillness::kRounds) ++rounds;
  EXPECT_EQ(rounds, Stillness::kRounds);
}

TEST(Stillness, IsNotHeldForEverByWhatMovesElsewhere) {
  base::ManualClock clock;
  Stillness still(clock);
  std::uint64_t seconds = 0;
  while (!still.longer(true, true, kBound) && seconds < 1000) {
    clock.advance_ns(1'000'000'000);
    ++seconds;
  }
  EXPECT_GE(seconds, Stillness::kProlongedNs / 1'000'000'000);
  EXPECT_LE(seconds, (Stillness::kProlongedNs + kBound) / 1'000'000'000);
}

TEST(Stillness, WithoutABoundOneRoundWithoutAnEventIsEnough) {
  base::ManualClock clock;
  Stillness still(clock);
  EXPECT_FALSE(still.longer(true, false, 0));
  EXPECT_TRUE(still.longer(false, false, 0));
}

}  // namespace
}  // namespace heddle::engine
