#include "base/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <set>
#include <thread>
#include <vector>

namespace heddle::base::thread_number_test {
namespace {

TEST(ThreadNumber, StaysTheSameInAThread) {
  const std::uint32_t mine = thread_number();
  EXPECT_LT(mine, kThreadNumbers);
  EXPECT_EQ(thread_number(), mine);
  EXPECT_EQ(known_thread_number(), mine + 1);
}

TEST(ThreadNumber, LiveThreadsHaveDifferentOnesAndTheRestHasNone) {
  constexpr std::uint32_t kThreads = kThreadNumbers + 10;
  static_cast<void>(thread_number());
  std::vector<std::uint32_t> numbers(kThreads);
  std::vector<const void*> marks(kThreads);
  std::barrier all(kThreads);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_EQ(known_thread_number(), 0U) << "none was asked for yet";
      numbers[i] = thread_number();
      EXPECT_EQ(known_thread_number(), numbers[i] == kNoThreadNumber ? 0U : numbers[i] + 1);
      marks[i] = thread_mark();
      all.arrive_and_wait();
    });
  }
  for (auto& thread : threads) thread.join();
  std::multiset<std::uint32_t> seen(numbers.begin(), numbers.end());
  for (std::uint32_t number = 0; number < kThreadNumbers; ++number) EXPECT_LE(seen.count(number), 1U);
  EXPECT_EQ(seen.count(kNoThreadNumber), kThreads - (kThreadNumbers - 1)) << "the main thread has one";
  EXPECT_EQ(std::set<const void*>(marks.begin(), marks.end()).size(), kThreads);
}

TEST(ThreadNumber, NumbersComeBackWithWhatWasWritten) {
  std::vector<std::uint64_t> places(kThreadNumbers);  // plain: ThreadSanitizer checks the hand-over
  for (int round = 0; round < 500; ++round) {
    std::thread a([&] { ++places.at(thread_number()); });
    std::thread b([&] { ++places.at(thread_number()); });
    a.join();
    b.join();
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t count : places) sum += count;
  EXPECT_EQ(sum, 1000U);
}

}  // namespace
}  // namespace heddle::base::thread_number_test
