// The thread of offload workers: that there is one, what it does, and that it sleeps.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "api/test_job.hpp"
#include "base/fence.hpp"

namespace heddle::test::executors_test {
namespace {

using Settings = std::vector<std::pair<const char*, const char*>>;

class Executors : public testing::Test {
 protected:
  const Variables variables_{Settings{{"HEDDLE_SHARING", "offload"}}};
};

std::size_t threads_named(const std::string& prefix) {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name.starts_with(prefix)) ++count;
  }
  return count;
}

void look_once() {
  std::this_thread::yield();
}

TEST_F(Executors, OneThreadServesAllWorkers) {
  const Job job(1, "shm");
  Context context = job.join(0);
  // Threads of the case before were joined, and may still be listed.
  EXPECT_TRUE(within_time([] { return threads_named("heddle-exec") == 0; }, look_once))
      << "before there is a worker for it";
  std::vector<Worker> workers;
  for (int i = 0; i < 3; ++i) workers.push_back(context.open_worker());
  EXPECT_TRUE(within_time([&] { return threads_named("heddle-exec") == 1; }, look_once));
}

// Several workers that come and go while others are at work.
TEST_F(Executors, WorkersDoNotDisturbEachOther) {
  constexpr int kThreads = 4;
  const int rounds = base::kThreadSanitizer ? 5 : 15;
  std::atomic<std::uint64_t> handled{0};
  const Job job(1, "loopback-messages");
  Context context = job.join(0);
  context.register_am(
      3,
      [](const heddle_am_arrival*, void* arg) {
        static_cast<std::atomic<std::uint64_t>*>(arg)->fetch_add(1, std::memory_order_relaxed);
      },
      &handled);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < rounds; ++round) {
        Worker worker = context.open_worker();
        std::uint32_t number = 0;
        ASSERT_EQ(heddle_worker_index(worker.handle(), &number), HEDDLE_DONE);
        for (int i = 0; i < 50; ++i) {
          const heddle_am_message message{3, 0, nullptr, nullptr, 0};
          ASSERT_GE(heddle_am(worker.handle(), {0, number}, &message, nullptr), 0) << heddle_last_error();
        }
        ASSERT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
        heddle_worker_stats stats{};
        stats.size = sizeof stats;
        EXPECT_TRUE(within_time([&] { return stats.received == 50; },
                                [&] { ASSERT_EQ(heddle_worker_stats_read(worker.handle(), &stats), HEDDLE_DONE); }));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(handled.load(), static_cast<std::uint64_t>(kThreads * rounds) * 50);
}

// Though threads of the application make progress all the while, and post calls from their
// handlers.
TEST_F(Executors, CallsRunOnOneThreadWhichIsNotTheApplications) {
  struct Calls {
    heddle_worker worker{};
    std::thread::id first;  // plain: calls run one at a time
    std::uint64_t ran = 0;
    std::uint64_t elsewhere = 0;
    std::atomic<std::uint64_t> posted{0};
    static void run(void* arg) {
      auto& self = *static_cast<Calls*>(arg);
      if (self.ran++ == 0) self.first = std::this_thread::get_id();
      if (self.first != std::this_thread::get_id()) ++self.elsewhere;
    }
    static void arrived(const heddle_am_arrival*, void* arg) {
      auto& self = *static_cast<Calls*>(arg);
      if (heddle_try_run_on_engine(self.worker, &run, arg, nullptr) != HEDDLE_AGAIN) self.posted.fetch_add(1);
    }
  } calls;
  const Job job(1, "shm");
  Context context = job.join(0);
  context.register_am(4, &Calls::arrived, &calls);
  Worker worker = context.open_worker();
  calls.worker = worker.handle();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        ASSERT_GE(worker.run_on_engine(&Calls::run, &calls), 0) << heddle_last_error();
        calls.posted.fetch_add(1);
        const heddle_am_message message{4, 0, nullptr, nullptr, 0};
        ASSERT_GE(heddle_am(worker.handle(), {0, 0}, &message, nullptr), 0);
        ASSERT_GE(worker.progress(), 0);
      }
    });
  }
  const std::thread::id mine = std::this_thread::get_id();
  std::vector<std::thread::id> others{mine};
  for (std::thread& thread : threads) others.push_back(thread.get_id());
  for (std::thread& thread : threads) thread.join();
  heddle_worker_stats stats{};
  stats.size = sizeof stats;
  EXPECT_TRUE(within_time([&] { return stats.received == 600; },
                          [&] { ASSERT_EQ(heddle_worker_stats_read(worker.handle(), &stats), HEDDLE_DONE); }));
  ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
  worker = {};  // orders what the calls wrote
  EXPECT_EQ(calls.ran, calls.posted.load());
  EXPECT_GE(calls.ran, 600U);
  EXPECT_EQ(calls.elsewhere, 0U);
  for (const std::thread::id& other : others) EXPECT_NE(calls.first, other);
}

// Nobody calls the library on the receiver's side, and nothing of its own is under way: its
// executor sleeps, and wakes for each.
TEST_F(Executors, WhatArrivesWakesASleepingExecutor) {
  for (const char* transport : {"shm", "loopback", "fault+shm"}) {
    std::atomic<int> count{0};
    const Job job(2, transport);
    job.run([&](Context& context, Worker& worker) {
      context.register_am(
          3, [](const heddle_am_arrival*, void* arg) { ++*static_cast<std::atomic<int>*>(arg); }, &count);
      context.barrier(worker);
      for (int i = 0; i < 10; ++i) {
        if (context.rank() == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(i));  // most often it sleeps by now
          const heddle_am_message message{3, 0, nullptr, nullptr, 0};
          ASSERT_GE(heddle_am(worker.handle(), {1, 0}, &message, nullptr), 0) << heddle_last_error();
        }
        EXPECT_TRUE(within_time([&] { return count.load() > i; }, look_once)) << transport;
      }
      context.barrier(worker);
    });
  }
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Processor time is counted, so others on the machine do not matter; ThreadSanitizer has a thread
// of its own.
TEST_F(Executors, UseNoProcessorWhileNothingHappens) {
  constexpr double kSeconds = 1;
  const double bound = kSeconds * (base::kThreadSanitizer ? 0.05 : 0.005);
  const Job job(1, "shm");
  Context context = job.join(0);
  std::vector<Worker> workers;
  for (int i = 0; i < 3; ++i) workers.push_back(context.open_worker());
  double used = bound;
  // They go to sleep when they get round to it; if they never did, no window would be quiet.
  for (int window = 0; window < 10 && used >= bound; ++window) {
    const double before = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
    used = cpu_seconds() - before;
  }
  std::printf("%.4f %% of a core\n", used / kSeconds * 100);
  EXPECT_LT(used, bound);
}

}  // namespace
}  // namespace heddle::test::executors_test
