// Leaving beside a rank that is stopped on its way out.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "protocol/tagged.hpp"
#include "worker/context.hpp"
#include "worker/extension.hpp"
#include "worker/worker.hpp"

namespace heddle::worker::leave_test {
namespace {

constexpr std::size_t kLong = 300'000;

// A tenth of a second goes by with each look.
class StepClock final : public base::Clock {
 public:
  std::uint64_t now_ns() override { return 100'000'000 * ++looks_; }

 private:
  std::uint64_t looks_ = 0;
};

// Everything that makes progress in this rank is stopped, as its process would be.
class Stop final : public Attachment {
 public:
  Stop(std::atomic<bool>* reached, const std::atomic<bool>* over) : reached_(reached), over_(over) {}
  Found advance() override {
    reached_->store(true, std::memory_order_release);
    while (!over_->load(std::memory_order_acquire)) std::this_thread::yield();
    return Found::nothing;
  }
  void end() override {}
  [[nodiscard]] bool active() const override { return false; }
  [[nodiscard]] std::uint64_t moves() const override { return 0; }
  void tell(tap::Snapshot* /*snapshot*/) const override {}

 private:
  std::atomic<bool>* reached_;
  const std::atomic<bool>* over_;
};

struct Rank {
  Rank(bootstrap::inproc::ThreadJob* job, std::uint32_t rank) {
    auto joined = Context::join({{"inproc", job, rank}, "shm", "none"});
    EXPECT_TRUE(joined.ok()) << base::last_message();
    context = std::move(*joined);
    worker = *context->open_worker({});
  }
  std::unique_ptr<Context> context;
  Worker* worker = nullptr;
};

// Rank 0 has sent rank 1 a message that rank 1 never receives. Rank 1 comes to the first meeting,
// and is stopped before it hears that all have come.
TEST(Leave, DoesNotWaitForEverForARankThatIsStoppedBetweenTheMeetings) {
  bootstrap::inproc::ThreadJob job(2);
  Rank mine(&job, 0);
  Rank theirs(&job, 1);
  std::atomic<bool> reached{false};
  std::atomic<bool> over{false};
  theirs.context->attach(std::make_unique<Stop>(&reached, &over));
  std::vector<std::byte> source(kLong);
  base::Status status = HEDDLE_AGAIN;
  ASSERT_TRUE(test::within_time([&] { return status == HEDDLE_POSTED; },
                                [&] {
                                  status = mine.worker->tagged().offer({{1, 0}, 1, source.data(), kLong}, {});
                                  EXPECT_GE(theirs.worker->progress(), 0);
                                }));
  std::atomic<int> left{0};
  std::thread stopped([&] {
    EXPECT_EQ(theirs.context->leave(), HEDDLE_DONE) << base::last_message();
    left.fetch_add(1);
  });
  ASSERT_TRUE(test::within_time([&] { return reached.load(std::memory_order_acquire); }));
  StepClock clock;
  mine.context->environment().clock = &clock;
  testing::internal::CaptureStderr();
  std::thread leaves([&] {
    EXPECT_EQ(mine.context->leave(), HEDDLE_DONE) << base::last_message();
    left.fetch_add(1);
  });
  EXPECT_TRUE(test::within_time([&] { return left.load() == 1; }));
  const std::string said = testing::internal::GetCapturedStderr();
  over.store(true, std::memory_order_release);  // whatever has come out: all ends
  leaves.join();
  stopped.join();
  mine.context->environment().clock = &mine.context->clock();
  EXPECT_NE(said.find("worker 0 has operations that nobody will complete"), std::string::npos) << said;
  EXPECT_NE(said.find("missing is rank 1"), std::string::npos) << said;
}

}  // namespace
}  // namespace heddle::worker::leave_test
