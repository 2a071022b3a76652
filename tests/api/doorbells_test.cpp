// How often the verbs transport calls its adapter for what many threads have queued.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "api/test_job.hpp"
#include "transport/test/verbs_idle.hpp"

namespace heddle::test::doorbells_test {
namespace {

constexpr std::uint64_t kThreads = 15;
constexpr std::uint64_t kPuts = 64;

// Keeps the executor busy, so that all is queued behind it.
struct Held {
  std::atomic<bool> begun{false};
  std::atomic<bool> over{false};
  static void run(void* arg) {
    auto& self = *static_cast<Held*>(arg);
    self.begun.store(true);
    while (!self.over.load()) std::this_thread::yield();
  }
};

TEST(Doorbells, PutsThatManyThreadsQueueLeaveWithTwoCalls) {
  void* const library = dlopen(HEDDLE_IDLE_VERBS, RTLD_NOW | RTLD_NODELETE);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto* idle = static_cast<transport::verbs::IdleVerbs*>(dlsym(library, "idle_verbs"));
  const Variables variables({{"HEDDLE_LIBRARIES", "verbs=" HEDDLE_IDLE_VERBS}, {"HEDDLE_SHARING", "offload"}});
  const Job job(1, "verbs");
  Context context = job.join(0);
  heddle_region region{};
  ASSERT_EQ(heddle_region_alloc(context.handle(), kPuts * sizeof(std::uint64_t), &region), HEDDLE_DONE);
  heddle_remote remote{};
  ASSERT_EQ(heddle_region_exchange(context.handle(), region, &remote.region), HEDDLE_DONE);
  Worker worker = context.open_worker();
  std::array<std::uint64_t, kPuts> values{};
  const auto put = [&](std::uint64_t i) {
    values[i] = i + 1;
    heddle_remote to = remote;
    to.offset = i * sizeof values[i];
    ASSERT_GE(heddle_put(worker.handle(), &values[i], sizeof values[i], to, nullptr), 0) << heddle_last_error();
  };
  put(0);  // connects
  ASSERT_EQ(worker.quiet(), HEDDLE_DONE);

  Held held;
  ASSERT_GE(worker.run_on_engine(&Held::run, &held), 0);
  ASSERT_TRUE(within_time([&] { return held.begun.load(); }, [] { std::this_thread::yield(); }));
  const std::uint64_t doorbells = idle->doorbells.load();
  const std::uint64_t requests = idle->requests.load();
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = thread; i < kPuts; i += kThreads) put(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(idle->doorbells.load(), doorbells);
  held.over.store(true);
  ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
  EXPECT_EQ(idle->requests.load() - requests, kPuts);
  EXPECT_LE(idle->doorbells.load() - doorbells, 2U);
}

}  // namespace
}  // namespace heddle::test::doorbells_test
