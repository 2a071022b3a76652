// The threads of the offload mode by themselves: calls, sleep and end. With workers:
// tests/api/executors_test.cpp.
#include "worker/executor.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "worker/context.hpp"
#include "worker/gate.hpp"
#include "worker/worker.hpp"

namespace heddle::worker::executor_test {
namespace {

pid_t thread_of(Executor& executor) {
  pid_t thread = 0;
  executor.call([&] { thread = gettid(); });
  return thread;
}

// The kernel lists a thread a moment longer than it can be joined.
bool has_ended(pid_t thread) {
  return test::within_time([&] { return !std::filesystem::exists("/proc/self/task/" + std::to_string(thread)); });
}

// Runs calls, and has no gates and no transport.
Executor& executor_without_gates() {
  static Executor executor(nullptr);
  return executor;
}

TEST(Executor, CallsRunOnItsThreadAndReturnWhenTheyHaveRun) {
  Executor loop(nullptr);
  EXPECT_FALSE(loop.is_this_thread());
  int ran = 0;
  std::thread::id first;
  std::thread::id second;
  loop.call([&] {
    EXPECT_TRUE(loop.is_this_thread());
    first = std::this_thread::get_id();
    // on the thread itself: at once
    loop.call([&] { ++ran; });
    EXPECT_EQ(ran, 1);
    ++ran;
  });
  EXPECT_EQ(ran, 2);
  loop.call([&] { second = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
  EXPECT_NE(first, std::this_thread::get_id());
}

TEST(Executor, WhatACallThrowsComesOutOfItAndTheNextOneRuns) {
  Executor& loop = executor_without_gates();
  EXPECT_THROW(loop.call([] { throw std::bad_alloc(); }), std::bad_alloc);
  std::string what;
  try {
    loop.call([] { throw std::runtime_error("it is a test"); });
  } catch (const std::runtime_error& error) {
    what = error.what();
  }
  EXPECT_EQ(what, "it is a test");
  bool ran = false;
  EXPECT_NO_THROW(loop.call([&] { ran = true; }));
  EXPECT_TRUE(ran);
}

TEST(Executor, CallsThatWaitRunInTheOrderInWhichTheyCame) {
  Executor loop(nullptr);
  std::atomic<bool> inside{false};
  std::atomic<bool> leaves{false};
  std::thread holds([&] {
    loop.call([&] {
      inside.store(true, std::memory_order_release);
      while (!leaves.load(std::memory_order_acquire)) std::this_thread::yield();
    });
  });
  ASSERT_TRUE(test::within_time([&] { return inside.load(std::memory_order_acquire); }));
  std::vector<int> order;  // the executor's
  std::vector<std::thread> callers;
  std::atomic<pid_t> caller{0};
  for (int i = 0; i < 4; ++i) {
    caller.store(0);
    callers.emplace_back([&, i] {
      caller.store(gettid());
      loop.call([&order, i] { order.push_back(i); });
    });
    // It sleeps when it has been given.
    EXPECT_TRUE(test::within_time([&] { return caller.load() != 0 && test::sleeps_in_kernel(caller.load()); }));
  }
  leaves.store(true, std::memory_order_release);
  holds.join();
  for (std::thread& each : callers) each.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(Executor, SleepsWithNothingToDoAndWakesForACallAndForItsEnd) {
  pid_t executor = 0;
  {
    Executor loop(nullptr);
    executor = thread_of(loop);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(test::await_asleep(executor));
      bool ran = false;
      loop.call([&] { ran = true; });
      EXPECT_TRUE(ran);
    }
    ASSERT_TRUE(test::await_asleep(executor));
  }
  EXPECT_TRUE(has_ended(executor)) << "it has ended, though it slept";
}

TEST(Executor, CallsOfSeveralThreadsAreNeverInsideTogether) {
  Executor& loop = executor_without_gates();
  constexpr int kEach = 500;
  int calls = 0;  // without a lock: ThreadSanitizer sees what is not ordered
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        int mine = 0;
        loop.call([&] { mine = ++calls; });
        EXPECT_GT(mine, 0);
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(calls, 3 * kEach);
}

TEST(Executor, TheOneOfTheProcessIsOne) {
  Executor& loop = Executor::of_process();
  EXPECT_EQ(&Executor::of_process(), &loop);
  std::thread::id here;
  std::thread::id there;
  loop.call([&] { here = std::this_thread::get_id(); });
  std::thread([&] { Executor::of_process().call([&] { there = std::this_thread::get_id(); }); }).join();
  EXPECT_EQ(here, there);
}

// Nothing happens in its worker but polls. As Standby says of a Side.
struct QuietSide {
  std::uint64_t all_polls = 0;
  bool shared = true;  // threads share cores

  static bool enter() { return true; }
  static void leave() {}
  static std::size_t drain() { return 0; }
  std::size_t poll() {
    ++all_polls;
    return 0;
  }
  [[nodiscard]] std::uint64_t polls() const { return all_polls; }
  static bool stalled() { return false; }
  static bool under_way() { return false; }
  [[nodiscard]] bool crowded() const { return shared; }
};

// The result of the executor's next round, before which others have polled so often.
Round round_after(std::uint64_t polls, Standby<>& standby, QuietSide& side) {
  side.all_polls += polls;
  return standby.round(side);
}

TEST(Standby, ALookAfterALongSleepTakesMorePolls) {
  Standby<> standby;
  QuietSide side;
  EXPECT_EQ(round_after(7, standby, side), Round::idle) << "somebody polls now and then";
  EXPECT_EQ(round_after(8, standby, side), Round::aside);
  EXPECT_EQ(round_after(8, standby, side), Round::aside) << "after 50 us";
  EXPECT_EQ(round_after(16, standby, side), Round::aside) << "100 us";
  EXPECT_EQ(round_after(32, standby, side), Round::aside) << "200 us";
  EXPECT_EQ(round_after(32, standby, side), Round::aside) << "and more";
  EXPECT_EQ(round_after(31, standby, side), Round::aside_briefly) << "it has looked inside";
  EXPECT_EQ(round_after(8, standby, side), Round::aside) << "short sleeps again";
}

TEST(Standby, WithACoreOfItsOwnTheExecutorWorksThoughOthersPoll) {
  Standby<> standby;
  QuietSide side;
  side.shared = false;
  for (int i = 0; i < 8; ++i) EXPECT_EQ(round_after(1000, standby, side), Round::idle);
}

TEST(Executor, OneServesAllWorkersOfAContext) {
  bootstrap::inproc::ThreadJob job(1);
  auto joined = Context::join({{"inproc", &job, 0}, "loopback", "none"});
  ASSERT_TRUE(joined.ok()) << base::last_message();
  Context& context = **joined;
  Context::WorkerOptions options;
  options.sharing = Sharing::delegate;
  ASSERT_TRUE(context.open_worker(options).ok());
  EXPECT_EQ((*context.open_worker(options))->gate()->executor_polls(), false);
  options.sharing = Sharing::offload;
  const pid_t thread = thread_of(context.executor());
  for (int i = 0; i < 3; ++i) {
    Worker* const worker = *context.open_worker(options);
    EXPECT_TRUE(test::within_time([&] { return worker->gate()->polls() > 0; }));
    EXPECT_EQ(thread_of(context.executor()), thread);
  }
}

// The executor goes on with the others, and no longer touches the gate.
TEST(Executor, AGateThatWasRemovedIsLeftAlone) {
  bootstrap::inproc::ThreadJob job(1);
  auto joined = Context::join({{"inproc", &job, 0}, "loopback", "none"});
  ASSERT_TRUE(joined.ok()) << base::last_message();
  Context& context = **joined;
  Context::WorkerOptions options;
  options.sharing = Sharing::offload;
  for (int i = 0; i < 20; ++i) {
    Worker* const stays = *context.open_worker(options);
    Worker* const goes = *context.open_worker(options);
    EXPECT_TRUE(test::within_time([&] { return goes->gate()->polls() > 0; }));
    EXPECT_EQ(context.close_worker(goes), HEDDLE_DONE);
    const std::uint64_t before = stays->gate()->polls();
    context.executor().wake();
    EXPECT_TRUE(test::within_time([&] { return stays->gate()->polls() > before; }));
    EXPECT_EQ(context.close_worker(stays), HEDDLE_DONE);
  }
}

// It may be inside the gate until then.
TEST(Executor, AGateIsRemovedWhenTheThreadHasLetItGo) {
  bootstrap::inproc::ThreadJob job(1);
  auto joined = Context::join({{"inproc", &job, 0}, "loopback", "none"});
  ASSERT_TRUE(joined.ok()) << base::last_message();
  Context& context = **joined;
  Context::WorkerOptions options;
  options.sharing = Sharing::offload;
  Worker* const worker = *context.open_worker(options);
  Executor& executor = context.executor();
  std::atomic<bool> held{false};
  std::atomic<bool> leaves{false};
  std::thread holds([&] {
    executor.call([&] {
      held.store(true, std::memory_order_release);
      while (!leaves.load(std::memory_order_acquire)) std::this_thread::yield();
    });
  });
  ASSERT_TRUE(test::within_time([&] { return held.load(std::memory_order_acquire); }));
  std::atomic<pid_t> thread{0};
  std::atomic<bool> closed{false};
  std::thread closes([&] {
    thread.store(gettid());
    EXPECT_EQ(context.close_worker(worker), HEDDLE_DONE);
    closed.store(true);
  });
  EXPECT_TRUE(test::within_time(
      [&] { return closed.load() || (thread.load() != 0 && test::sleeps_in_kernel(thread.load())); }));
  EXPECT_FALSE(closed.load());
  leaves.store(true, std::memory_order_release);
  holds.join();
  closes.join();
  EXPECT_TRUE(closed.load());
}

}  // namespace
}  // namespace heddle::worker::executor_test
