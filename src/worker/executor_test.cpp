// The threads of the offload mode by themselves: calls, sleep and end. With workers:
// tests/api/executors_test.cpp.
#include "worker/executor.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
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

// The kernel lists a thread a moment longer than it can be joined.
bool none_is_named(const std::string& beginning) {
  return test::within_time([&] { return test::threads_named(beginning).empty(); });
}

// Runs calls, and has no gates and no transport.
ExecutorLoop& loop_without_gates() {
  static ExecutorLoop loop(ExecutorRole::both, nullptr, 7, {});
  return loop;
}

TEST(ExecutorLoop, CallsRunOnItsThreadAndReturnWhenTheyHaveRun) {
  ExecutorLoop loop(ExecutorRole::both, nullptr, 8, {});
  EXPECT_FALSE(loop.is_calling_thread());
  int ran = 0;
  std::thread::id first;
  std::thread::id second;
  loop.call([&] {
    EXPECT_TRUE(loop.is_calling_thread());
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

TEST(ExecutorLoop, WhatACallThrowsComesOutOfItAndTheNextOneRuns) {
  ExecutorLoop& loop = loop_without_gates();
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

TEST(ExecutorLoop, CallsThatWaitRunInTheOrderInWhichTheyCame) {
  ExecutorLoop loop(ExecutorRole::both, nullptr, 9, {});
  const pid_t executor = test::thread_named("heddle-exec-9");
  ASSERT_NE(executor, 0);
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

TEST(ExecutorLoop, SleepsWithNothingToDoAndWakesForACallAndForItsEnd) {
  {
    ExecutorLoop loop(ExecutorRole::commands, nullptr, 10, {});
    const pid_t executor = test::thread_named("heddle-exec-10");
    ASSERT_NE(executor, 0);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(test::await_asleep(executor));
      bool ran = false;
      loop.call([&] { ran = true; });
      EXPECT_TRUE(ran);
    }
    ASSERT_TRUE(test::await_asleep(executor));
  }
  EXPECT_TRUE(none_is_named("heddle-exec-10")) << "it has ended, though it slept";
}

TEST(ExecutorLoop, CallsOfSeveralThreadsAreNeverInsideTogether) {
  ExecutorLoop& loop = loop_without_gates();
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

TEST(ExecutorLoop, TheOneOfTheProcessIsOne) {
  ExecutorLoop& loop = ExecutorLoop::of_process();
  EXPECT_EQ(&ExecutorLoop::of_process(), &loop);
  std::thread::id here;
  std::thread::id there;
  loop.call([&] { here = std::this_thread::get_id(); });
  std::thread([&] { ExecutorLoop::of_process().call([&] { there = std::this_thread::get_id(); }); }).join();
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
  return standby.round(side, ExecutorRole::both);
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

TEST(Executor, TheThreadOfOneAloneMayBeOfSeveral) {
  Executor one(loop_without_gates());
  Executor other(loop_without_gates());
  EXPECT_FALSE(one.apart());
  EXPECT_FALSE(one.starts_here());
  std::thread::id of_one;
  std::thread::id of_other;
  one.call([&] {
    of_one = std::this_thread::get_id();
    EXPECT_TRUE(other.starts_here());
  });
  other.call([&] { of_other = std::this_thread::get_id(); });
  EXPECT_EQ(of_one, of_other);
}

TEST(Executors, WorkersAreDealtByTheirNumbersAndThreadsBeginWithTheFirst) {
  bootstrap::inproc::ThreadJob job(1);
  auto joined = Context::join({{"inproc", &job, 0}, "loopback", "none"});
  ASSERT_TRUE(joined.ok()) << base::last_message();
  transport::Transport& transport = (*joined)->transport();
  for (const CompleterThread place : {CompleterThread::together, CompleterThread::apart}) {
    Executors executors(3, place, transport);
    EXPECT_TRUE(none_is_named("heddle-exec-2"));
    Executor& last = executors.of(2);
    EXPECT_EQ(&executors.of(5), &last);
    EXPECT_NE(&executors.of(3), &last);
    EXPECT_EQ(test::threads_named("heddle-exec-2").size(), 1U);
    EXPECT_EQ(test::threads_named("heddle-comp-2").size(), place == CompleterThread::apart ? 1U : 0U);
    EXPECT_TRUE(none_is_named("heddle-exec-1"));
    EXPECT_NE(&executors.of(1), &last);
    EXPECT_EQ(last.apart(), place == CompleterThread::apart);
  }
  EXPECT_TRUE(none_is_named("heddle-exec-1"));
  EXPECT_TRUE(none_is_named("heddle-comp-"));
}

// The executor goes on with the others, and no longer touches the gate.
TEST(Executor, AGateThatWasRemovedIsLeftAlone) {
  for (const char* completer : {"together", "apart"}) {
    ASSERT_EQ(setenv("HEDDLE_COMPLETER", completer, 1), 0);
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
      context.executors().of(stays->index()).wake_completer();
      EXPECT_TRUE(test::within_time([&] { return stays->gate()->polls() > before; }));
      EXPECT_EQ(context.close_worker(stays), HEDDLE_DONE);
    }
  }
  unsetenv("HEDDLE_COMPLETER");
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
  Executor& executor = context.executors().of(worker->index());
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

TEST(Executor, ThePlacesOfTheCompleterHaveNames) {
  EXPECT_EQ(completer_named("together"), CompleterThread::together);
  EXPECT_EQ(completer_named("apart"), CompleterThread::apart);
  EXPECT_FALSE(completer_named("Apart"));
  EXPECT_FALSE(completer_named(""));
}

}  // namespace
}  // namespace heddle::worker::executor_test
