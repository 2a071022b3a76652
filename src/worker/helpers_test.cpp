// A helper tells the waits of its process that nobody computes on a core any more.
#include "worker/helpers.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "worker/context.hpp"

namespace heddle::worker::helpers_test {
namespace {

// Moves nothing.
class Idle final : public Attachment {
 public:
  Found advance() override { return Found::nothing; }
  void end() override {}
  [[nodiscard]] bool active() const override { return false; }
  [[nodiscard]] std::uint64_t moves() const override { return 0; }
  void tell(tap::Snapshot*) const override {}
};

// `step_ns` later at each look.
class SteppingClock final : public base::Clock {
 public:
  explicit SteppingClock(std::uint64_t step_ns) : step_ns_(step_ns) {}
  std::uint64_t now_ns() override { return now_ns_.fetch_add(step_ns_, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t peek_ns() const { return now_ns_.load(std::memory_order_relaxed); }

 private:
  const std::uint64_t step_ns_;
  std::atomic<std::uint64_t> now_ns_{1'000'000};
};

// A helper that stands aside, since threads seem to wait on one core for all, where strangers are
// suspected again and again.
class StandsAside : public testing::Test {
 protected:
  // Its clock goes on by `step_ns` at each look.
  void begin(std::uint64_t step_ns) {
    const auto used = static_cast<std::size_t>(sched_getcpu());
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(used, &one);
    pthread_getaffinity_np(pthread_self(), sizeof before_, &before_);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);  // the helper's core, too
    auto joined = Context::join({{"inproc", &job_, 0}, "shm", "none"});
    ASSERT_TRUE(joined.ok()) << base::last_message();
    context_ = std::move(*joined);
    crowd_.share(line_);
    crowd_.expect(2, 1);
    helpers_.emplace(*policy_named("adaptive"), context_->transport(), clock_.emplace(step_ns), crowd_, 1);
    suspect();
    helpers_->attach(&attachment_);
  }
  void TearDown() override {
    helpers_.reset();
    if (context_ != nullptr) {
      EXPECT_EQ(context_->leave(), HEDDLE_DONE);
    }
    pthread_setaffinity_np(pthread_self(), sizeof before_, &before_);
  }
  // A thread waits, so the helper goes on to stand aside. False: it has taken the suspicion back.
  [[nodiscard]] bool strangers() {
    crowd_.ended();
    if (line_[0].strangers_until.load(std::memory_order_relaxed) != until_) return false;
    if (clock_->peek_ns() >= until_) suspect();
    return true;
  }
  void suspect() {
    constexpr std::uint64_t kLongNs = 90'000'000;
    until_ = clock_->peek_ns() + kLongNs;
    line_[0].strangers_until.store(until_, std::memory_order_relaxed);
  }

  bootstrap::inproc::ThreadJob job_{1};
  std::unique_ptr<Context> context_;
  std::optional<SteppingClock> clock_;
  std::uint64_t until_ = 0;
  std::array<base::CoreLine, 1> line_{};
  base::Crowd crowd_;
  Idle attachment_;
  std::optional<Helpers> helpers_;
  cpu_set_t before_{};
};

TEST_F(StandsAside, ItIsAwakeInTimeSoTheCoreIsFree) {
  ASSERT_NO_FATAL_FAILURE(begin(1'200'000));
  EXPECT_TRUE(test::within_time([&] { return !strangers(); }));
}

TEST_F(StandsAside, ItIsAwakeLateSoSomebodyComputes) {
  ASSERT_NO_FATAL_FAILURE(begin(2'000'000));
  const std::uint64_t rounds = helpers_->rounds();
  constexpr std::uint64_t kMany = 8;
  EXPECT_TRUE(test::within_time([&] { return !strangers() || helpers_->rounds() > rounds + kMany; }));
  EXPECT_TRUE(strangers());
}

}  // namespace
}  // namespace heddle::worker::helpers_test
