#include "queue/bell.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/fence.hpp"

namespace heddle::queue {
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

}  // namespace
}  // namespace heddle::queue
