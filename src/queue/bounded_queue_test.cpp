#include "queue/bounded_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace heddle::queue::bounded_queue_test {
namespace {

TEST(BoundedQueue, FirstInFirstOutFullAndEmpty) {
  BoundedQueue<> queue(4);
  std::uint32_t value = 0;
  EXPECT_FALSE(queue.pop(&value));
  for (std::uint32_t lap = 0; lap < 10; ++lap) {
    for (std::uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(queue.push(lap * 10 + i));
    EXPECT_FALSE(queue.push(99));
    for (std::uint32_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(queue.pop(&value));
      ASSERT_EQ(value, lap * 10 + i);
    }
    EXPECT_FALSE(queue.pop(&value));
  }
}

// Numbers circulate among threads as chunks do: each is held by one thread at a time, and none is
// lost. `owned` is plain memory, so that ThreadSanitizer reports a number that two threads hold.
TEST(BoundedQueue, NumbersAreInOneHandAtATime) {
  constexpr std::uint32_t kNumbers = 6;
  constexpr int kThreads = 4;
  BoundedQueue<> queue(kNumbers);
  std::vector<std::uint64_t> owned(kNumbers);
  for (std::uint32_t i = 0; i < kNumbers; ++i) ASSERT_TRUE(queue.push(i));
  std::atomic<std::uint64_t> total{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        std::uint32_t number = 0;
        while (!queue.pop(&number)) std::this_thread::yield();
        ++owned[number];
        total.fetch_add(1, std::memory_order_relaxed);
        while (!queue.push(number)) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t sum = 0;
  for (const std::uint64_t n : owned) sum += n;
  EXPECT_EQ(sum, total.load());
  EXPECT_EQ(sum, kThreads * 20000U);
}

}  // namespace
}  // namespace heddle::queue::bounded_queue_test
