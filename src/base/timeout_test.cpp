#include "base/clock.hpp"

#include <gtest/gtest.h>

namespace heddle::base::timeout_test {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(Timeout, IsOverWhenItsTimeIs) {
  ManualClock clock;
  Timeout timeout(3 * kSecond / 2, clock);
  EXPECT_FALSE(timeout.over());
  EXPECT_EQ(timeout.slice_ms(), 1000);
  clock.advance_ns(kSecond);
  EXPECT_FALSE(timeout.over());
  EXPECT_EQ(timeout.slice_ms(), 500);
  clock.advance_ns(kSecond / 2 - 1);
  EXPECT_FALSE(timeout.over());
  EXPECT_EQ(timeout.slice_ms(), 1) << "a poll of nothing would spin";
  clock.advance_ns(1);
  EXPECT_TRUE(timeout.over());
  timeout.renew();
  EXPECT_FALSE(timeout.over());
}

TEST(Timeout, ALongTimeBetweenTwoLooksCountsAsOneSecond) {
  ManualClock clock;
  Timeout timeout(2 * kSecond, clock);
  clock.advance_ns(3600 * kSecond);
  EXPECT_FALSE(timeout.over());
  clock.advance_ns(3600 * kSecond);
  EXPECT_TRUE(timeout.over());
}

TEST(Timeout, NoneIsNeverOver) {
  ManualClock clock;
  Timeout timeout(Timeout::kForever, clock);
  for (int i = 0; i < 10; ++i) {
    clock.advance_ns(kSecond);
    EXPECT_FALSE(timeout.over());
  }
  EXPECT_EQ(timeout.slice_ms(), -1);
}

TEST(Timeout, OfNothingIsOverAtOnce) {
  ManualClock clock;
  Timeout timeout(0, clock);
  EXPECT_TRUE(timeout.over());
}

}  // namespace
}  // namespace heddle::base::timeout_test
