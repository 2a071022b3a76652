#include "base/wait.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <thread>

namespace heddle::base::wait_test {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

// Keeps the calling thread where it is.
class OnThisCore {
 public:
  OnThisCore() {
    pthread_getaffinity_np(pthread_self(), sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    EXPECT_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
  }
  OnThisCore(const OnThisCore&) = delete;
  OnThisCore& operator=(const OnThisCore&) = delete;
  ~OnThisCore() { pthread_setaffinity_np(pthread_self(), sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

TEST(ShortSlack, IsTheThreadsOwnAgainAfterwards) {
  constexpr unsigned long kOwnNs = 70'000;
  if (prctl(PR_SET_TIMERSLACK, kOwnNs) != 0 || prctl(PR_GET_TIMERSLACK) != static_cast<int>(kOwnNs))
    GTEST_SKIP() << "skipped: this thread's timer slack cannot be set";
  {
    const ShortSlack slack(true);
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK), 1'000);
  }
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK), static_cast<int>(kOwnNs));
  {
    const ShortSlack slack(false);
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK), static_cast<int>(kOwnNs));
  }
  ASSERT_EQ(prctl(PR_SET_TIMERSLACK, 1UL), 0) << "the program wants to be woken in time";
  {
    const ShortSlack slack(true);
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK), 1);
  }
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK), 1);
  ASSERT_EQ(prctl(PR_SET_TIMERSLACK, 0UL), 0);  // the usual one
}

// Idles until the waiter yields, `ns` later by the clock; returns how long it then wants to sleep.
std::int64_t nap_after(Waiter& waiter, ManualClock& clock, std::uint64_t ns) {
  for (int i = 0; i < 6000; ++i) EXPECT_TRUE(waiter.idle());
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

TEST(Waiter, WhatRingsSleepsAsLongAsItHasWaited) {
  ManualClock clock;
  clock.advance_ns(kMs);
  const auto rung_ms = [&](Waiter& waiter, std::uint64_t ms) {
    nap_after(waiter, clock, ms * kMs);
    return waiter.rung_nap_ns() / static_cast<std::int64_t>(kMs);
  };
  Crowd crowd;
  crowd.expect(8, 2);
  Waiter few(clock, -1, &crowd);
  nap_after(few, clock, 0);
  EXPECT_EQ(rung_ms(few, 8), 8);
  EXPECT_EQ(rung_ms(few, 80), 20);
  Crowd throng;
  throng.expect(1024, 2);
  Waiter many(clock, -1, &throng);
  nap_after(many, clock, 0);
  EXPECT_EQ(rung_ms(many, 80), 80) << "a core is shared by 512";
  EXPECT_EQ(rung_ms(many, 80), 100);
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

// Looks, with `ns` between two of them, until the waiter yields.
std::uint64_t spun_before_yield(Crowd& crowd, std::uint64_t ns) {
  if (crowd.crowded()) crowd.yielded(4000);  // it stays crowded
  ManualClock clock;
  clock.advance_ns(kMs);
  Waiter waiter(clock, -1, &crowd);
  std::uint64_t spun = 0;
  while (waiter.idle_since() == 0) {
    EXPECT_TRUE(waiter.idle());
    clock.advance_ns(ns);
    spun += ns;
  }
  return spun;
}

TEST(Waiter, SpinsTwentyMicrosecondsOnACoreOfItsOwn) {
  Crowd crowd;
  const std::uint64_t spun = spun_before_yield(crowd, 100);
  EXPECT_GE(spun, 20'000U);
  EXPECT_LE(spun, 27'000U);
}

constexpr std::uint64_t kLookNs = 100;
constexpr std::uint64_t kFewLooksNs = (Waiter::kFewLooks + 1) * kLookNs;

// As after a yield of the calling thread that lasted until now: who kept the core was another one.
void note_yield(ManualClock& clock) {
  detail::t_wait_habit.gave_away_ns = clock.now_ns();
}

// Waits of this thread where threads share cores, in a thread of its own: what a thread has learned
// is its own.
template <class Body>
void on_shared_cores(const Body& body) {
  std::thread([&] {
    Crowd crowd;
    crowd.expect(2, 1);
    body(crowd);
  }).join();
}

TEST(Waiter, WhereThreadsShareCoresAWaitInVainEndsTheSpinning) {
  on_shared_cores([](Crowd& crowd) {
    const std::uint64_t first = spun_before_yield(crowd, kLookNs);
    EXPECT_GE(first, Waiter::kSharedSpinNs);
    EXPECT_LE(first, 2 * Waiter::kSharedSpinNs);
    int tries = 0;
    for (std::uint32_t i = 0; i < 4 * Waiter::kTrial; ++i) {
      const std::uint64_t spun = spun_before_yield(crowd, kLookNs);
      if (spun >= Waiter::kSharedSpinNs) {
        ++tries;
      } else {
        EXPECT_LE(spun, kFewLooksNs);
      }
    }
    EXPECT_EQ(tries, 4) << "one in " << Waiter::kTrial;
  });
}

// Waits once for something that comes after `looks`. Returns whether it came while the wait spun.
bool comes_after(Crowd& crowd, std::uint32_t looks) {
  crowd.yielded(4000);
  ManualClock clock;
  clock.advance_ns(kMs);
  Waiter waiter(clock, -1, &crowd);
  for (std::uint32_t i = 0; i < looks; ++i) {
    clock.advance_ns(kLookNs);
    EXPECT_TRUE(waiter.idle());
  }
  return waiter.idle_since() == 0;
}

TEST(Waiter, WhereThreadsShareCoresSpinningGoesOnForAsLongAsItIsAnswered) {
  on_shared_cores([](Crowd& crowd) {
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(comes_after(crowd, 40));
    static_cast<void>(spun_before_yield(crowd, kLookNs));
    EXPECT_FALSE(comes_after(crowd, 40)) << "the last wait has spun in vain";
    std::uint32_t until_trial = 0;
    while (!comes_after(crowd, 40)) ASSERT_LE(++until_trial, Waiter::kTrial);
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(comes_after(crowd, 40)) << "the trial was answered";
  });
}

TEST(Waiter, WhatComesAtOnceProvesNothing) {
  on_shared_cores([](Crowd& crowd) {
    static_cast<void>(spun_before_yield(crowd, kLookNs));
    for (std::uint32_t i = 1; i + 2 < Waiter::kTrial; ++i) EXPECT_TRUE(comes_after(crowd, Waiter::kFewLooks - 1));
    EXPECT_LE(spun_before_yield(crowd, kLookNs), kFewLooksNs);
  });
}

// Others on the worker have moved: the wait begins anew, by what its thread has learned.
TEST(Waiter, AfterSomethingHasMovedAWaitBeginsAnew) {
  on_shared_cores([](Crowd& crowd) {
    ManualClock clock;
    clock.advance_ns(kMs);
    Waiter waiter(clock, -1, &crowd);
    const auto looks = [&] {
      std::uint32_t count = 0;
      for (; waiter.idle_since() == 0; ++count) {
        EXPECT_TRUE(waiter.idle());
        clock.advance_ns(kLookNs);
      }
      return count;
    };
    EXPECT_GE(looks() * kLookNs, Waiter::kSharedSpinNs);
    EXPECT_TRUE(waiter.busy());
    EXPECT_LE(looks(), Waiter::kFewLooks + 1);
  });
}

TEST(Waiter, WhatComesForOthersIsNoAnswer) {
  on_shared_cores([](Crowd& crowd) {
    {
      ManualClock clock;
      clock.advance_ns(kMs);
      Waiter waiter(clock, -1, &crowd);
      EXPECT_TRUE(waiter.busy());
      while (waiter.idle_since() == 0) {
        EXPECT_TRUE(waiter.idle());
        clock.advance_ns(kLookNs);
      }
      EXPECT_TRUE(waiter.busy());
    }
    EXPECT_LE(spun_before_yield(crowd, kLookNs), kFewLooksNs);
  });
}

// It serves others while it waits.
TEST(Waiter, WhoServesOthersSpinsAgainAfterASleep) {
  on_shared_cores([](Crowd& crowd) {
    const OnThisCore pinned;
    ManualClock clock;
    clock.advance_ns(kMs);
    crowd.expect(2, 2);
    crowd.yielded(4000);
    crowd.was_away(clock.now_ns() - 300'000, clock.now_ns());
    note_yield(clock);
    ASSERT_TRUE(crowd.strangers(clock.now_ns()));
    Waiter waiter(clock, -1, &crowd);
    // The next request comes after so many looks, or after a sleep.
    const auto sleeps = [&](std::uint32_t looks) {
      bool slept = false;
      for (std::uint32_t i = 0; i < looks && !slept; ++i) {
        EXPECT_TRUE(waiter.idle());
        clock.advance_ns(10);
        slept = waiter.nap_ns() > 0;
      }
      EXPECT_TRUE(waiter.busy());
      return slept;
    };
    for (int turn = 0; turn < 3; ++turn) {
      EXPECT_TRUE(sleeps(6000)) << "nothing comes while it spins";
      for (int i = 0; i < 100; ++i) EXPECT_FALSE(sleeps(40)) << "they come soon after each other";
    }
  });
}

TEST(Waiter, TimeThatIsOverIsNoAnswer) {
  on_shared_cores([](Crowd& crowd) {
    static_cast<void>(spun_before_yield(crowd, kLookNs));
    for (std::uint32_t i = 0; i < Waiter::kTrial; ++i) {
      crowd.yielded(4000);
      ManualClock clock;
      clock.advance_ns(kMs);
      Waiter waiter(clock, 1'000, &crowd);
      while (waiter.idle()) clock.advance_ns(kLookNs);
    }
    EXPECT_LE(spun_before_yield(crowd, kLookNs), kFewLooksNs);
  });
}

// A yield to a thread that computes costs one slice, and gains nothing.
TEST(Waiter, SleepsInsteadOfYieldingToOneWhoComputes) {
  on_shared_cores([](Crowd& crowd) {
    const OnThisCore pinned;
    ManualClock clock;
    clock.advance_ns(kMs);
    crowd.expect(2, 2);
    EXPECT_FALSE(crowd.strangers(clock.now_ns()));
    crowd.was_away(clock.now_ns() - 299'999, clock.now_ns());
    EXPECT_FALSE(crowd.strangers(clock.now_ns())) << "that may have been threads that wait, too";
    crowd.was_away(clock.now_ns() - 300'000, clock.now_ns());
    EXPECT_TRUE(crowd.strangers(clock.now_ns()));
    crowd.yielded(300'000);
    note_yield(clock);
    {
      Waiter waiter(clock, -1, &crowd);
      for (int i = 0; i < 300; ++i) EXPECT_TRUE(waiter.idle());
      EXPECT_EQ(waiter.nap_ns(), 0) << "it spins first";
      clock.advance_ns(Waiter::kSpinNs);
      EXPECT_GT(nap_after(waiter, clock, 0), 0);
    }
    {
      Waiter waiter(clock, -1, &crowd);
      for (std::uint32_t i = 0; i <= Waiter::kFewLooks; ++i) EXPECT_TRUE(waiter.idle());
      EXPECT_GT(waiter.nap_ns(), 0) << "spinning was in vain";
    }
    clock.advance_ns(100 * kMs);
    EXPECT_FALSE(crowd.strangers(clock.now_ns())) << "and it tries again";
    Waiter waiter(clock, -1, &crowd);
    EXPECT_EQ(nap_after(waiter, clock, 0), 0);
  });
}

TEST(Crowd, StrangersWhoAreStillThereAreBelievedForLonger) {
  const OnThisCore pinned;
  Crowd crowd;
  crowd.expect(2, 2);
  std::uint64_t now = kMs;
  // A yield that a stranger has made long; then for how long there are strangers.
  const auto believed_ms = [&] {
    now += kMs;
    crowd.was_away(now - kMs, now);
    std::uint64_t ms = 0;
    for (; crowd.strangers(now); now += kMs / 2) ++ms;
    return ms / 2;
  };
  EXPECT_EQ(believed_ms(), 12U) << "it may be a process that starts";
  EXPECT_EQ(believed_ms(), 25U);
  EXPECT_EQ(believed_ms(), 50U);
  EXPECT_EQ(believed_ms(), 100U);
  EXPECT_EQ(believed_ms(), 100U) << "at most";
  now += 200 * kMs;
  EXPECT_EQ(believed_ms(), 12U) << "others, later";
}

TEST(Crowd, WhereACoreIsFoundFreeThereAreNoStrangersUntilTheyComeAgain) {
  const OnThisCore pinned;
  Crowd crowd;
  crowd.expect(2, 2);
  crowd.was_away(kMs, 2 * kMs);
  ASSERT_TRUE(crowd.strangers(2 * kMs));
  crowd.found_free(Crowd::core_number(), 3 * kMs);
  EXPECT_FALSE(crowd.strangers(3 * kMs));
  crowd.was_away(3 * kMs, 4 * kMs);
  EXPECT_TRUE(crowd.strangers(28 * kMs)) << "they were still there: believed for twice as long";
  EXPECT_FALSE(crowd.strangers(29 * kMs));
  crowd.was_away(28 * kMs, 29 * kMs);
  crowd.was_away(79 * kMs, 80 * kMs);
  crowd.found_free(Crowd::core_number(), 81 * kMs);
  EXPECT_TRUE(crowd.strangers(81 * kMs)) << "at each trial they were there";
}

// Another thread was kept from the core by this one, which has computed since it last gave the core
// away.
TEST(Waiter, WhoHasComputedIsNoStrangerAnyMoreWhenItWaits) {
  on_shared_cores([](Crowd& crowd) {
    const OnThisCore pinned;
    ManualClock clock;
    clock.advance_ns(kMs);
    crowd.expect(2, 2);
    crowd.yielded(4000);
    const auto waits = [&](std::uint64_t ns) {
      Waiter waiter(clock, -1, &crowd);
      for (int i = 0; i < 6000 && waiter.idle_since() == 0; ++i) {
        clock.advance_ns(100);
        EXPECT_TRUE(waiter.idle());
      }
      clock.advance_ns(ns);
      return waiter.nap_ns() > 0;
    };
    EXPECT_FALSE(waits(0));
    clock.advance_ns(2 * kMs);
    crowd.was_away(clock.now_ns() - kMs, clock.now_ns());
    clock.advance_ns(kMs);
    EXPECT_FALSE(waits(0)) << "it was this thread";
    EXPECT_FALSE(crowd.strangers(clock.now_ns()));
    clock.advance_ns(2 * kMs);
    crowd.was_away(clock.now_ns() - kMs, clock.now_ns());
    ASSERT_TRUE(crowd.strangers(clock.now_ns()));
    EXPECT_FALSE(crowd.strangers(clock.now_ns() + 13 * kMs)) << "which does not count as one who is still there";
    EXPECT_FALSE(waits(kMs)) << "again";
  });
}

// A thread that sleeps, or one that only spins in its waits, has not computed.
TEST(Waiter, WhoHasWaitedIsNotTheStranger) {
  on_shared_cores([](Crowd& crowd) {
    const OnThisCore pinned;
    ManualClock clock;
    clock.advance_ns(kMs);
    crowd.expect(2, 2);
    crowd.yielded(4000);
    {
      Waiter waiter(clock, -1, &crowd);
      EXPECT_GT(nap_after(waiter, clock, 2 * kMs), 0);
      clock.advance_ns(2 * kMs);  // it sleeps
      crowd.was_away(clock.now_ns() - kMs, clock.now_ns());
      clock.advance_ns(1);
    }
    {
      Waiter waiter(clock, -1, &crowd);
      EXPECT_GT(nap_after(waiter, clock, 0), 0) << "the stranger came while it slept";
      clock.advance_ns(40 * kMs);  // it sleeps again
      ASSERT_FALSE(crowd.strangers(clock.now_ns()));
      crowd.was_away(clock.now_ns() - kMs, clock.now_ns());
      clock.advance_ns(1);
      EXPECT_TRUE(waiter.busy());
      EXPECT_GT(nap_after(waiter, clock, 0), 0) << "once more";
    }
    clock.advance_ns(200 * kMs);
    EXPECT_FALSE(crowd.strangers(clock.now_ns()));
    for (std::uint32_t i = 0; i < 2 * Waiter::kTrial; ++i) EXPECT_TRUE(comes_after(crowd, 2));
    crowd.was_away(clock.now_ns() - 200 * kMs, clock.now_ns());
    ASSERT_TRUE(crowd.strangers(clock.now_ns()));
    Waiter waiter(clock, -1, &crowd);
    EXPECT_GT(nap_after(waiter, clock, 0), 0) << "it has only spun, and the other one was elsewhere";
  });
}

TEST(Crowd, WithoutTheLinesOfTheNodeTheOthersAreNoStrangersWhereRanksShareCores) {
  const OnThisCore pinned;
  Crowd crowd;
  crowd.expect(3, 2);
  crowd.was_away(kMs, 11 * kMs);
  EXPECT_FALSE(crowd.strangers(11 * kMs));
  std::array<CoreLine, 2> lines{};
  crowd.share(lines);
  crowd.was_away(kMs, 11 * kMs);
  EXPECT_TRUE(crowd.strangers(11 * kMs));
}

// Eight threads of the job that take turns on a core are away for long, too. They may be of
// different processes.
TEST(Crowd, ThreadsThatWaitAreNoStrangers) {
  const OnThisCore pinned;
  std::array<CoreLine, 2> lines{};
  Crowd crowd;
  Crowd other;
  crowd.share(lines);
  other.share(lines);
  other.seen(5 * kMs);
  crowd.was_away(kMs, 5 * kMs + 299'999);
  EXPECT_FALSE(crowd.strangers(6 * kMs));
  other.seen(5 * kMs);
  crowd.was_away(kMs, 5 * kMs + 300'000);
  EXPECT_TRUE(crowd.strangers(6 * kMs)) << "none of them has been seen for a slice";
  EXPECT_TRUE(other.strangers(6 * kMs)) << "all processes know it";
}

// Two of them that answer each other do not yield for a while.
TEST(Crowd, WhoseWaitsEndIsNoStranger) {
  const OnThisCore pinned;
  Crowd crowd;
  crowd.expect(2, 2);
  for (int i = 0; i < 100; ++i) crowd.ended();
  crowd.was_away(kMs, 20 * kMs);
  EXPECT_FALSE(crowd.strangers(20 * kMs));
  crowd.seen(kMs);
  crowd.ended();
  crowd.was_away(kMs, kMs + 599'999);
  EXPECT_FALSE(crowd.strangers(2 * kMs));
  crowd.was_away(kMs, kMs + 600'000);
  EXPECT_TRUE(crowd.strangers(2 * kMs)) << "it computes between two waits";
}

// Another process may write anything into the lines.
TEST(Crowd, SurvivesDamagedLines) {
  const OnThisCore pinned;
  std::array<CoreLine, 1> lines{};
  Crowd crowd;
  crowd.share(lines);
  for (const std::uint64_t value : {~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{5}}) {
    lines[0].seen = value;
    lines[0].ends = value;
    lines[0].strangers_until = value;
    EXPECT_FALSE(crowd.strangers(kMs)) << "no longer than it may be";
    crowd.was_away(kMs, 3 * kMs);
    lines[0].seen = 5;
    crowd.was_away(kMs, 3 * kMs);
    crowd.ended();
    crowd.was_away(kMs, 3 * kMs);
  }
}

TEST(Waiter, IsSeenWhenItYieldsAndWhenItsWaitEnds) {
  on_shared_cores([](Crowd& crowd) {
    const OnThisCore pinned;
    ManualClock clock;
    crowd.expect(2, 2);
    crowd.yielded(4000);
    // Another thread has yielded since kMs, and has the core again in `ns`.
    const auto away = [&](std::uint64_t ns) {
      crowd.was_away(kMs, clock.now_ns() + ns);
      return crowd.strangers(clock.now_ns() + ns);
    };
    clock.advance_ns(5 * kMs);
    {
      Waiter waiter(clock, -1, &crowd);
      nap_after(waiter, clock, kMs / 10);
      EXPECT_FALSE(away(299'999)) << "it has yielded";
    }
    EXPECT_FALSE(away(599'999)) << "its wait has ended";
    EXPECT_TRUE(away(600'000));
  });
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

// A collective among hundreds on a core takes each of them several turns of all.
TEST(Waiter, YieldsForLongerTheMoreShareACore) {
  const auto naps_after = [](std::uint64_t who_wait, std::uint64_t ns) {
    Crowd crowd;
    crowd.expect(who_wait, 2);
    ManualClock clock;
    clock.advance_ns(kMs);
    Waiter waiter(clock, -1, &crowd);
    nap_after(waiter, clock, 0);
    return nap_after(waiter, clock, ns) > 0;
  };
  EXPECT_TRUE(naps_after(8, kMs));
  EXPECT_FALSE(naps_after(256, 25 * kMs));
  EXPECT_TRUE(naps_after(256, 26 * kMs));
  EXPECT_TRUE(naps_after(100'000, 100 * kMs)) << "and no longer than this";
}

// A process of 256 on two cores, and its thread, which stays on one of these.
struct Throng {
  Throng() {
    crowd.share(lines);
    crowd.expect(256, 2);
  }
  OnThisCore pinned;
  std::array<CoreLine, 2> lines{};
  Crowd crowd;
};

// Where strangers compute it sleeps at once, and briefly, in a throng, too.
TEST(Waiter, SleepsBrieflyBesideStrangersHoweverManyShareACore) {
  Throng throng;
  Crowd& crowd = throng.crowd;
  ManualClock clock;
  clock.advance_ns(50 * kMs);
  crowd.was_away(kMs, clock.now_ns());
  ASSERT_TRUE(crowd.strangers(clock.now_ns()));
  Waiter waiter(clock, -1, &crowd);
  EXPECT_EQ(nap_after(waiter, clock, 0), static_cast<std::int64_t>(kMs / 16));
}

// A turn of hundreds takes so long that a slice of somebody else's adds little to it, and a throng
// that sleeps takes much longer.
TEST(Crowd, AShortAbsenceProvesNothingInAThrong) {
  Throng throng;
  Crowd& crowd = throng.crowd;
  crowd.was_away(kMs, 6 * kMs);
  EXPECT_FALSE(crowd.strangers(6 * kMs));
  crowd.was_away(kMs, 7 * kMs);
  EXPECT_TRUE(crowd.strangers(7 * kMs));
}

TEST(Crowd, KnowsWhetherEachProcessHasASecondCore) {
  const auto spare = [](std::uint64_t processes, std::uint64_t cores) {
    Crowd crowd;
    crowd.expect(processes, cores);
    return crowd.spare();
  };
  EXPECT_TRUE(spare(1, 2));
  EXPECT_TRUE(spare(8, 16));
  EXPECT_FALSE(spare(2, 2));
  EXPECT_FALSE(spare(8, 15));
  EXPECT_TRUE(spare(8, 0)) << "how many cores there are is not known";
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
}  // namespace heddle::base::wait_test
