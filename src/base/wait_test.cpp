#include "base/wait.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

namespace heddle::base {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

// Idles until the waiter yields, `ns` later by the clock; returns how long it then wants to sleep.
std::int64_t nap_after(Waiter& waiter, ManualClock& clock, std::uint64_t ns) {
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(waiter.idle());
  clock.advance_ns(ns);
  EXPECT_TRUE(waiter.idle());
  return waiter.nap_ns();
}

TEST(Waiter, SleepsASixteenthOfWhatItHasWaited) {
  ManualClock clock;
  clock.advance_ns(kMs);
  Waiter waiter(clock, -1);
  EXPECT_EQ(nap_after(waiter, clock, kMs - 1), 0) << "not before a millisecond";
  EXPECT_EQ(nap_after(waiter, clock, kMs), static_cast<std::int64_t>((2 * kMs - 1) / 16));
  EXPECT_EQ(nap_after(waiter, clock, 1000 * kMs), static_cast<std::int64_t>(kMs)) << "a millisecond at most";
  EXPECT_TRUE(waiter.busy());
  EXPECT_EQ(waiter.nap_ns(), 0) << "something has happened";
  EXPECT_EQ(nap_after(waiter, clock, kMs / 2), 0) << "and it begins anew";
}

TEST(Waiter, SleepsNoLongerThanItMayWait) {
  ManualClock clock;
  clock.advance_ns(kMs);
  Waiter waiter(clock, static_cast<std::int64_t>(64 * kMs));
  EXPECT_EQ(nap_after(waiter, clock, 16 * kMs), static_cast<std::int64_t>(kMs));
  EXPECT_EQ(nap_after(waiter, clock, 48 * kMs - 7), 7);
  clock.advance_ns(7);
  EXPECT_FALSE(waiter.idle());
}

TEST(Waiter, AShortTimeIsOverThoughItOnlySpins) {
  ManualClock clock;
  Waiter waiter(clock, 1);
  clock.advance_ns(2);
  int rounds = 0;
  while (waiter.busy()) ASSERT_LT(++rounds, 10'000);
}

// A caller that does not want to wait looks once and does not spin for microseconds.
TEST(Waiter, NoTimeIsOverAtOnce) {
  ManualClock clock;
  clock.advance_ns(kMs);
  EXPECT_FALSE(Waiter(clock, 0).idle());
  EXPECT_FALSE(Waiter(clock, 0).busy());
}

TEST(Crowd, LearnsFromWhatAYieldTakes) {
  Crowd crowd;
  EXPECT_FALSE(crowd.crowded());
  crowd.yielded(400);
  EXPECT_FALSE(crowd.crowded());
  crowd.yielded(4000);
  EXPECT_TRUE(crowd.crowded());
  for (int i = 0; i < 7; ++i) crowd.yielded(400);
  EXPECT_TRUE(crowd.crowded()) << "a few yields to nobody are chance";
  crowd.yielded(400);
  EXPECT_FALSE(crowd.crowded());
  crowd.expect(2, 1);
  EXPECT_TRUE(crowd.crowded());
}

TEST(Crowd, WhoCouldNotLookNapsBrieflyByWhatTheOthersNap) {
  Crowd crowd;
  EXPECT_EQ(crowd.brief_nap_ns(), 50'000);
  crowd.expect(8, 2);
  EXPECT_EQ(crowd.brief_nap_ns(), 50'000);
  crowd.expect(256, 2);
  EXPECT_EQ(crowd.brief_nap_ns(), crowd.longest_nap_ns() / 20);
  EXPECT_GE(crowd.brief_nap_ns(), 1'000'000) << "hundreds on a core leave it time";
}

// The longest sleep between two looks. All looks together then take the same part of a core,
// however many threads look.
TEST(Waiter, SleepsLongerTheMoreShareACore) {
  const auto longest = [](std::uint64_t who_wait, std::uint64_t cores) {
    Crowd crowd;
    crowd.expect(who_wait, cores);
    ManualClock clock;
    clock.advance_ns(kMs);
    Waiter waiter(clock, -1, &crowd);
    nap_after(waiter, clock, 0);
    return nap_after(waiter, clock, 100'000 * kMs);
  };
  constexpr auto kMillisecond = static_cast<std::int64_t>(kMs);
  EXPECT_EQ(longest(1, 2), kMillisecond);
  EXPECT_EQ(longest(8, 2), kMillisecond);
  EXPECT_EQ(longest(256, 2), longest(64, 2) * 4);
  EXPECT_GE(longest(256, 2), 20 * kMillisecond);
  EXPECT_EQ(longest(1024, 256), kMillisecond) << "there are cores for them";
  EXPECT_EQ(longest(1024, 1), 100 * kMillisecond) << "and no longer than this";
  EXPECT_EQ(longest(1, 0), kMillisecond) << "how many cores there are is not known";
}

TEST(Crowd, StepsAsideWhereThereShouldBeRoom) {
  Crowd crowd;
  std::uint64_t now = kMs;
  const auto steps = [&](int yields, std::uint64_t ns) {
    int count = 0;
    for (int i = 0; i < yields; ++i) count += crowd.should_step_aside(ns, now += ns) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(steps(1000, 2000), 0) << "nobody has said that there is room";
  crowd.expect(1, 2);
  EXPECT_EQ(steps(1000, 400), 0) << "it is alone";
  EXPECT_EQ(steps(64, 2000), 1);
  EXPECT_EQ(steps(400, 2000), 0) << "not again at once";
  now += kMs;
  EXPECT_EQ(steps(64, 2000), 1);
  now += kMs;
  EXPECT_EQ(steps(64, 2000), 0) << "less and less often";
  crowd.expect(3, 2);
  now += 1000 * kMs;
  EXPECT_EQ(steps(1000, 2000), 0) << "more ranks than cores";
}

TEST(StepAside, LeavesTheThreadsCoresAsTheyWere) {
  cpu_set_t before;
  cpu_set_t after;
  ASSERT_EQ(pthread_getaffinity_np(pthread_self(), sizeof before, &before), 0);
  step_aside();
  ASSERT_EQ(pthread_getaffinity_np(pthread_self(), sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace heddle::base
