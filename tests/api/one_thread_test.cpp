// HEDDLE_UTOFU_SINGLE_THREAD on a library that ends the process when two threads call it
// (UTOFU_EMU_ONE_THREAD).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "api/test_job.hpp"

namespace heddle::test::one_thread_test {
namespace {

const std::vector<std::pair<const char*, const char*>> kLibrary = {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM}};
const std::vector<std::pair<const char*, const char*>> kSingle = {{"HEDDLE_UTOFU_SINGLE_THREAD", "1"}};

heddle_worker_options options_of(heddle_sharing sharing) {
  return {sizeof(heddle_worker_options), sharing, 0, HEDDLE_CHOICE_DEFAULT, nullptr, 0};
}

// Runs fn on the engine through this worker, and waits.
template <class Function>
void run_on_engine(const Context& context, Worker& worker, Function fn) {
  const Counter done = context.counter();
  const heddle_completion completion = done.completion();
  const Status status = worker.run_on_engine([](void* what) { (*static_cast<Function*>(what))(); }, &fn, &completion);
  ASSERT_GE(status, 0) << heddle_last_error();
  if (status == HEDDLE_POSTED) {
    ASSERT_EQ(worker.wait(done, 1), HEDDLE_DONE) << heddle_last_error();
  }
}

class OneThread : public testing::TestWithParam<const char*> {
 protected:
  const Variables library_{kLibrary};
  const Variables single_{kSingle};
};

TEST_P(OneThread, EveryModeIsOffloadAndSaysSo) {
  const Variables more({{"HEDDLE_SHARING", "exclusive"}, {"HEDDLE_PROGRESS", "dedicated:1"}});
  const Job job(1, GetParam());
  const Context context = job.join(0);
  std::vector<heddle_sharing> modes = all_modes();
  modes.push_back(HEDDLE_SHARING_DEFAULT);
  for (const heddle_sharing asked : modes) {
    const Worker worker = context.open_worker(options_of(asked));
    EXPECT_EQ(worker.mode(), HEDDLE_SHARING_OFFLOAD) << asked;
    EXPECT_EQ(heddle_worker_mode(worker.handle(), nullptr), HEDDLE_ERR_ARGUMENT);
  }
}

TEST(WorkerMode, IsTheOneThatWasAskedFor) {
  const Job job(1, "loopback");
  const Context context = job.join(0);
  for (const heddle_sharing asked : all_modes()) {
    EXPECT_EQ(context.open_worker(options_of(asked)).mode(), asked);
  }
  EXPECT_EQ(context.open_worker().mode(), HEDDLE_SHARING_AUTO);
  heddle_sharing mode{};
  EXPECT_EQ(heddle_worker_mode({12345}, &mode), HEDDLE_ERR_HANDLE);
}

// Functions of the application run on the thread that calls the library, through any worker of any
// context.
TEST_P(OneThread, AllFunctionsRunOnTheSameThread) {
  const Job job(2, GetParam());
  std::atomic<std::uint64_t> met{0};
  std::vector<std::thread::id> seen(6);
  std::vector<std::thread> ranks;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const Context context = job.join(rank);
      for (std::uint32_t i = 0; i < 3; ++i) {
        Worker worker = context.open_worker();
        run_on_engine(context, worker, [&] { seen[rank * 3 + i] = std::this_thread::get_id(); });
        EXPECT_NE(seen[rank * 3 + i], std::this_thread::get_id());
      }
      met.fetch_add(1);
      EXPECT_TRUE(within_time([&] { return met.load() == 2; }, [] { std::this_thread::yield(); }));
    });
  }
  for (std::thread& thread : ranks) thread.join();
  for (const std::thread::id id : seen) EXPECT_EQ(id, seen[0]);
  EXPECT_NE(seen[0], std::thread::id());
}

// Calls of the library by a function on the engine are executed at once, by the same thread.
TEST_P(OneThread, FunctionsOnTheEngineMayRegisterAndOpen) {
  const Job job(1, GetParam());
  const Context context = job.join(0);
  Worker worker = context.open_worker();
  std::optional<Region> region;
  std::optional<Worker> other;
  std::vector<std::byte> memory(5000);
  run_on_engine(context, worker, [&] {
    region = context.register_memory(memory);
    other = context.open_worker();
    region.reset();
  });
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->stats().again, 0U);
}

// The thread that made a set-up call gets its error message.
TEST_P(OneThread, TheCallerIsToldWhatWasWrong) {
  const Job job(1, GetParam());
  const Context context = job.join(0);
  heddle_region region{};
  // Nothing is mapped there.
  EXPECT_LT(heddle_region_register(context.handle(), reinterpret_cast<void*>(0x1000), 64, &region), 0);
  EXPECT_NE(std::string(heddle_last_error()).find("0x1000"), std::string::npos) << heddle_last_error();
}

// Several threads of two ranks, each with workers that it opens, memory that it registers, and
// operations of every kind.
TEST_P(OneThread, ThreadsWithWorkersAndRegionsOfTheirOwn) {
  constexpr std::uint32_t kThreads = 3;
  constexpr std::uint64_t kEach = 12;
  const Job job(2, GetParam());
  std::atomic<std::uint64_t> arrived{0};
  std::atomic<std::uint64_t> served{0};
  job.run([&](Context& context, Worker& worker) {
    const std::uint32_t peer = 1 - context.rank();
    context.register_am(
        3, [](const heddle_am_arrival*, void* count) { static_cast<std::atomic<std::uint64_t>*>(count)->fetch_add(1); },
        &arrived);
    const Region shared = context.alloc(4096 * (kThreads + 1));
    const auto remotes = context.exchange(shared);
    std::vector<std::thread> threads;
    for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        Worker mine = context.open_worker(options_of(HEDDLE_SHARING_EXCLUSIVE));
        for (std::uint64_t i = 0; i < kEach; ++i) {
          std::vector<std::byte> data(1 + (i * 701) % 4096, static_cast<std::byte>(thread * 64 + i));
          std::vector<std::byte> back(data.size());
          const Region registered = context.register_memory(back);
          const heddle_remote place = remotes[peer].at(4096 * (1 + std::uint64_t{thread}));
          ASSERT_GE(mine.put(data, place), 0) << heddle_last_error();
          ASSERT_EQ(mine.flush(peer), HEDDLE_DONE) << heddle_last_error();
          ASSERT_GE(mine.get(back, place), 0) << heddle_last_error();
          ASSERT_GE(mine.atomic(HEDDLE_ADD64, remotes[peer].at(0), 1), 0);
          ASSERT_EQ(mine.quiet(), HEDDLE_DONE) << heddle_last_error();
          ASSERT_TRUE(std::ranges::equal(data, back));
          const heddle_am_message message{3, 0, nullptr, data.data(), data.size()};
          ASSERT_GE(mine.am({peer, 0}, message), 0) << heddle_last_error();
          ASSERT_EQ(mine.quiet(), HEDDLE_DONE) << heddle_last_error();
          EXPECT_GE(context.progress(), 0);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    ASSERT_TRUE(within_time([&] { return arrived.load() == 2 * kThreads * kEach; }, [&] { turn(worker); }));
    context.barrier(worker);
    EXPECT_EQ(std::atomic_ref(shared.memory<std::uint64_t>()[0]).load(), kThreads * kEach);
    EXPECT_GT(worker.stats().polls, 0U);
    served.fetch_add(1);
  });
  EXPECT_EQ(served.load(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Transports, OneThread, testing::Values("utofu", "fault+utofu"),
                         [](const auto& setting) { return std::string(setting.param[0] == 'f' ? "fault" : "plain"); });

// Without the setting the library notices the calls: so the tests above can fail.
TEST(OneThreadDeathTest, TheLibraryNotices) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const Variables library(kLibrary);
        const Job job(1, "utofu");
        const Context context = job.join(0);
        std::thread([&] { const Worker worker = context.open_worker(); }).join();
      },
      "UTOFU_EMU_ONE_THREAD=1");
}

}  // namespace
}  // namespace heddle::test::one_thread_test
