#include "worker/watch.hpp"

#include <gtest/gtest.h>

#include "base/clock.hpp"

namespace heddle::worker::stillness_test {
namespace {

constexpr std::int64_t kBound = 30'000'000'000;
constexpr std::uint64_t kStep = 100'000'000;

// Rounds in which nothing moves, a step apart, until it is over.
std::uint64_t steps_until_over(Stillness& still, base::ManualClock& clock) {
  std::uint64_t steps = 0;
  do {
    clock.advance_ns(kStep);
    ++steps;
  } while (!still.over(false, true) && steps < 100'000);
  return steps;
}

TEST(Stillness, CountsFromTheLastEvent) {
  base::ManualClock clock;
  Stillness still(kBound, clock);
  for (int i = 0; i < 299; ++i) {
    clock.advance_ns(kStep);
    EXPECT_FALSE(still.over(false, true));
  }
  EXPECT_FALSE(still.over(true, true));
  EXPECT_EQ(steps_until_over(still, clock), kBound / kStep);
}

TEST(Stillness, LooksAtTheClockOnceInManyRounds) {
  base::ManualClock clock;
  Stillness still(1, clock);
  clock.advance_ns(1);
  std::uint32_t rounds = 1;
  while (!still.over(false, false) && rounds <= Stillness::kRounds) ++rounds;
  EXPECT_EQ(rounds, Stillness::kRounds);
}

TEST(Stillness, AnEventBetweenTwoLooksCounts) {
  base::ManualClock clock;
  Stillness still(1, clock);
  clock.advance_ns(1);
  EXPECT_FALSE(still.over(true, false));
  for (std::uint32_t round = 0; round < 2 * Stillness::kRounds; ++round) EXPECT_FALSE(still.over(false, false));
  clock.advance_ns(1);
  EXPECT_TRUE(still.over(false, true));
}

TEST(Stillness, IsNotHeldForEverByWhatMovesElsewhere) {
  base::ManualClock clock;
  Stillness still(kBound, clock);
  std::int64_t waited_ns = 0;
  while (!still.over(true, true) && waited_ns < 1'000'000'000'000) {
    clock.advance_ns(kStep);
    waited_ns += kStep;
  }
  EXPECT_GE(waited_ns, Stillness::kProlongedNs);
  EXPECT_LE(waited_ns, Stillness::kProlongedNs + kBound);
}

TEST(Stillness, WithoutABoundOneRoundWithoutAnEventIsEnough) {
  base::ManualClock clock;
  Stillness still(0, clock);
  EXPECT_FALSE(still.over(true, false));
  EXPECT_TRUE(still.over(false, false));
}

// If a job is stopped for an hour on its way out, that hour does not count.
TEST(Stillness, TimeInWhichTheProcessWasStoppedDoesNotCount) {
  base::ManualClock clock;
  Stillness still(kBound, clock);
  clock.advance_ns(3'600'000'000'000);
  EXPECT_FALSE(still.over(false, true));
  EXPECT_EQ(steps_until_over(still, clock), (kBound - base::Timeout::kLookNs) / kStep);
}

}  // namespace
}  // namespace heddle::worker::stillness_test
