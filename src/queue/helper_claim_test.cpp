#include "queue/locks.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fence.hpp"

namespace heddle::queue::helper_claim_test {
namespace {

std::uint32_t thread_number() {
  return static_cast<std::uint32_t>(::syscall(SYS_gettid));
}

// A thread is moved to a core by its affinity mask, so its own mask shows the move.
bool was_brought_to(int core) {
  cpu_set_t now;
  return sched_getaffinity(0, sizeof now, &now) == 0 && CPU_COUNT(&now) == 1 && CPU_ISSET(core, &now);
}

std::vector<int> cores() {
  cpu_set_t all;
  std::vector<int> found;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return found;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &all)) found.push_back(core);
  }
  return found;
}

void pin(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
}

TEST(HelperClaim, OneAtATimeAndNobodyToFetch) {
  HelperClaim<> claim;
  EXPECT_FALSE(claim.fetch(-1)) << "it waits for nobody";
  ASSERT_TRUE(claim.try_claim(thread_number()));
  EXPECT_TRUE(claim.claimed());
  EXPECT_FALSE(claim.try_claim(thread_number()));
  claim.release();
  EXPECT_FALSE(claim.claimed());
  EXPECT_TRUE(claim.try_claim(thread_number()));
  claim.release();
}

// Only the helper's leaving ends the sleep.
TEST(HelperClaim, WhoFetchesBringsTheHelperAndIsWokenByIt) {
  const std::vector<int> all = cores();
  if (all.size() < 2) GTEST_SKIP() << "needs two cores";
  HelperClaim<> claim;
  std::atomic<bool> claimed{false};
  bool brought = false;
  std::thread helper([&] {
    pin(all[1]);
    ASSERT_TRUE(claim.try_claim(thread_number()));
    claimed.store(true);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!brought && std::chrono::steady_clock::now() < end) {
      brought = was_brought_to(all[0]);
      std::this_thread::yield();
    }
    claim.release();
  });
  while (!claimed.load()) std::this_thread::yield();
  std::thread([&] {
    pin(all[0]);
    EXPECT_TRUE(claim.fetch(-1));
  }).join();
  helper.join();
  EXPECT_TRUE(brought);
}

TEST(FetchingMutex, AHelperThatHoldsItIsBroughtToWhoWaits) {
  const std::vector<int> all = cores();
  if (all.size() < 2) GTEST_SKIP() << "needs two cores";
  FetchingMutex mutex;
  std::atomic<bool> locked{false};
  bool brought = false;
  std::thread helper([&] {
    pin(all[1]);
    be_helper(thread_number());
    const std::lock_guard lock(mutex);
    locked.store(true);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!brought && std::chrono::steady_clock::now() < end) {
      brought = was_brought_to(all[0]);
      std::this_thread::yield();
    }
  });
  while (!locked.load()) std::this_thread::yield();
  std::thread([&] {
    pin(all[0]);
    EXPECT_FALSE(mutex.try_lock());
    const std::lock_guard lock(mutex);
  }).join();
  helper.join();
  EXPECT_TRUE(brought);
}

// `guarded` is plain: the sum shows whether two threads were ever inside at once; ThreadSanitizer
// checks that the mutex orders them.
TEST(FetchingMutex, StressHelpersAndOthers) {
  constexpr int kThreads = 4;
  const int rounds = base::kThreadSanitizer ? 5000 : 50000;
  FetchingMutex mutex;
  std::uint64_t guarded = 0;
  std::atomic<std::uint64_t> tried{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      if (i % 2 == 0) be_helper(thread_number());
      for (int round = 0; round < rounds; ++round) {
        if (round % 3 == 0) {
          if (!mutex.try_lock()) continue;
          ++guarded;
          mutex.unlock();
        } else {
          const std::lock_guard lock(mutex);
          ++guarded;
        }
        tried.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(guarded, tried.load());
}

}  // namespace
}  // namespace heddle::queue::helper_claim_test
