#include "queue/bell.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/fence.hpp"

namespace heddle::queue::bell_test {
namespace {

TEST(Bell, RingsAreCountedAndWaitsEnd) {
  BellWords<> words;
  const Bell<> bell(&words);
  const std::uint32_t seen = bell.rings();
  bell.wait(seen, 1'000'000);  // the time is over
  EXPECT_EQ(bell.rings(), seen);
  bell.ring();
  EXPECT_NE(bell.rings(), seen);
  bell.wait(seen, -1);  // returns at once
  EXPECT_EQ(words.sleepers.load(), 0U);
}

TEST(Bell, ArmedOnce) {
  std::atomic<std::uint32_t> armed{0};
  EXPECT_FALSE(disarmed_by_me(armed));
  armed.store(1);
  EXPECT_TRUE(disarmed_by_me(armed));
  EXPECT_FALSE(disarmed_by_me(armed));
}

// Two threads pass a number back and forth, each asleep while it waits: a lost wake-up is a hang.
TEST(Bell, StressPingPong) {
  const std::uint32_t rounds = base::kThreadSanitizer ? 2000 : 10000;
  BellWords<> words[2];
  const Bell<> bells[2] = {Bell<>(&words[0]), Bell<>(&words[1])};
  std::atomic<std::uint32_t> turn{0};
  std::uint32_t plain = 0;
  const auto play = [&](std::uint32_t self) {
    for (std::uint32_t i = self; i < rounds; i += 2) {
      for (;;) {
        const std::uint32_t seen = bells[self].rings();
        if (turn.load(std::memory_order_acquire) == i) break;
        bells[self].wait(seen, -1);
      }
      ++plain;
      turn.store(i + 1, std::memory_order_release);
      bells[1 - self].ring();
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  EXPECT_EQ(plain, rounds);
}

TEST(Bell, AllSleepersWake) {
  BellWords<> words;
  const Bell<> bell(&words);
  const std::uint32_t seen = bell.rings();
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 4; ++i) {
    sleepers.emplace_back([&] {
      while (bell.rings() == seen) bell.wait(seen, -1);
    });
  }
  while (words.sleepers.load() < 4) std::this_thread::yield();
  bell.ring();
  for (std::thread& sleeper : sleepers) sleeper.join();
}

// How many threads the kernel has woken.
struct CountingFutex : PlacesFutex {
  static inline int woken = 0;
  static void wake(std::atomic<std::uint32_t>* word, Places places) {
    woken = base::futex_wake_bits(word, places, base::FutexScope::shared);
  }
};

// Eight threads that each wait for a worker of their own must not all wake for each message.
TEST(Bell, ARingForAPlaceWakesOnlyWhoSleepsOnIt) {
  BellWords<> words;
  const Bell<std::atomic, CountingFutex> bell(&words);
  std::atomic<bool> stop{false};
  std::thread sleeper([&] {
    while (!stop.load()) {
      const std::uint32_t seen = bell.rings();
      if (!stop.load()) bell.wait(seen, -1, place(1) | place(34));
    }
  });
  const auto woken_by = [&](Places places) {
    CountingFutex::woken = 0;
    bell.ring(places);
    return CountingFutex::woken;
  };
  for (int times = 0; times < 100;) {
    while (words.sleepers.load() == 0) std::this_thread::yield();
    std::this_thread::yield();  // and now it is probably in the kernel
    EXPECT_EQ(woken_by(~(place(1) | place(2))), 0);
    if (woken_by(times % 2 == 0 ? place(1) : place(2)) == 1) ++times;
  }
  stop.store(true);
  bell.ring();
  sleeper.join();
}

}  // namespace
}  // namespace heddle::queue::bell_test
