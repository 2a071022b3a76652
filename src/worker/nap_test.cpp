// How long a thread sleeps that waits on a worker in which another one is.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "worker/context.hpp"
#include "worker/gate.hpp"
#include "worker/worker.hpp"

namespace heddle::worker::nap_test {
namespace {

constexpr std::int64_t kNapNs = 900'000'000;

class Naps : public testing::TestWithParam<Sharing> {};
INSTANTIATE_TEST_SUITE_P(Modes, Naps, testing::Values(Sharing::shared, Sharing::delegate, Sharing::automatic),
                         [](const auto& tested) {
                           return "mode_" + std::to_string(static_cast<unsigned>(tested.param));
                         });

// The shortest of several: the machine may be busy.
std::uint64_t shortest_nap(Context& context, Worker* worker) {
  std::uint64_t shortest = ~std::uint64_t{0};
  for (int turn = 0; turn < 3; ++turn) {
    const std::uint64_t begin = context.clock().now_ns();
    context.nap(worker, kNapNs);
    shortest = std::min(shortest, context.clock().now_ns() - begin);
  }
  return shortest;
}

TEST_P(Naps, AreShortWhileAnotherThreadIsInside) {
  bootstrap::inproc::ThreadJob job(1);
  auto joined = Context::join({{"inproc", &job, 0}, "shm", "none"});
  ASSERT_TRUE(joined.ok()) << base::last_message();
  Context& context = **joined;
  Context::WorkerOptions options;
  options.sharing = GetParam();
  auto opened = context.open_worker(options);
  ASSERT_TRUE(opened.ok()) << base::last_message();
  Worker* const worker = *opened;
  std::atomic<bool> inside{false};
  std::atomic<bool> leaves{false};
  std::thread other([&] {
    worker->gate()->visit([&] {
      inside.store(true, std::memory_order_release);
      while (!leaves.load(std::memory_order_acquire)) std::this_thread::yield();
    });
  });
  EXPECT_TRUE(test::within_time([&] { return inside.load(std::memory_order_acquire); }));
  EXPECT_LT(shortest_nap(context, worker), kNapNs / 2);
  leaves.store(true, std::memory_order_release);
  other.join();
  // Nobody is inside: it is armed, and sleeps on.
  const std::uint64_t begin = context.clock().now_ns();
  context.nap(worker, 20'000'000);
  EXPECT_GE(context.clock().now_ns() - begin, 19'000'000U);
  EXPECT_EQ(context.close_worker(worker), HEDDLE_DONE);
  EXPECT_EQ(context.leave(), HEDDLE_DONE);
}

}  // namespace
}  // namespace heddle::worker::nap_test
