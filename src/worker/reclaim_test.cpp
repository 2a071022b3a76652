// Objects are released while workers of several sharing modes are opened and closed.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "bootstrap/inproc/inproc.hpp"
#include "worker/context.hpp"
#include "worker/sharing.hpp"
#include "worker/worker.hpp"

namespace heddle::worker::reclaim_test {
namespace {

class Reclaim : public testing::TestWithParam<Sharing> {};

// Objects::reclaim() asks each worker which objects it names. A worker that is being opened or
// destroyed meanwhile has no gate yet, or no longer. ThreadSanitizer and AddressSanitizer check its
// answer.
TEST_P(Reclaim, AsksOnlyWorkersThatAreWhole) {
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    bootstrap::inproc::ThreadJob job(1);
    auto joined = Context::join({{"inproc", &job, 0}, "loopback", "none"});
    ASSERT_TRUE(joined.ok()) << base::last_message();
    Context& context = **joined;
    std::atomic<bool> over{false};
    std::atomic<int> released{0};
    std::thread other([&] {
      while (!over.load(std::memory_order_relaxed)) {
        auto counter = context.objects().open_counter(0, false);
        if (!counter) break;
        context.objects().close_counter(*counter);
        released.fetch_add(1, std::memory_order_relaxed);
      }
    });
    while (released.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
    for (int i = 0; i < 3; ++i) {
      const auto worker = context.open_worker({GetParam()});
      ASSERT_TRUE(worker.ok()) << base::last_message();
      EXPECT_EQ(context.close_worker(*worker), HEDDLE_DONE);
    }
    over = true;
    other.join();
    context.objects().reclaim();
    EXPECT_FALSE(context.objects().retired());
    EXPECT_EQ(context.leave(), HEDDLE_DONE);
  }
}

std::vector<Sharing> all_modes() {
  std::vector<Sharing> all;
  for (const Mode& mode : modes()) all.push_back(mode.sharing);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Modes, Reclaim, testing::ValuesIn(all_modes()));

}  // namespace
}  // namespace heddle::worker::reclaim_test
