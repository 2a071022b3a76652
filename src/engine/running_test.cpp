#include "engine/handlers.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <latch>
#include <thread>

namespace heddle::engine::running_test {
namespace {

// Only its address is looked at.
struct TestCore {
  alignas(64) std::byte bytes[64]{};
  const Core& core = reinterpret_cast<const Core&>(bytes);
};

// A thread that is inside of something until it is let go.
template <class InsideOf>
class Busy {
 public:
  explicit Busy(const Core& core, bool listed = true)
      : thread_([this, &core, listed] {
          if (listed) look_at_this_thread();
          {
            const InsideOf inside(core);
            ready_.count_down();
            go_.wait();
          }
          left_.count_down();
          end_.wait();
        }) {
    ready_.wait();
  }
  ~Busy() {
    leave();
    end_.count_down();
    thread_.join();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  // It goes on, and has not ended.
  void leave() {
    if (!gone_) go_.count_down();
    gone_ = true;
    left_.wait();
  }

 private:
  bool gone_ = false;
  std::latch ready_{1}, go_{1}, left_{1}, end_{1};
  std::thread thread_;
};

TEST(Running, SeesWhatOtherThreadsAreIn) {
  TestCore one;
  TestCore other;
  EXPECT_FALSE(running(one.core).handler);
  {
    Busy<Inside> handler(one.core);
    EXPECT_TRUE(running(one.core).handler);
    EXPECT_FALSE(running(one.core).task);
    EXPECT_FALSE(running(other.core).handler);
    handler.leave();
    EXPECT_FALSE(running(one.core).handler);
  }
  {
    Busy<RunningTask> task(one.core);
    EXPECT_TRUE(running(one.core).task);
    EXPECT_FALSE(running(one.core).handler);
    EXPECT_FALSE(running(other.core).task);
  }
  EXPECT_FALSE(running(one.core).task) << "the thread has ended";
}

TEST(Running, ATaskWithinATaskIsTheOneThatRuns) {
  TestCore one;
  TestCore other;
  struct Both {
    explicit Both(const Core& core) : outer(core), inner(core) {}
    RunningTask outer, inner;
  };
  const Busy<Both> task(one.core);
  EXPECT_TRUE(running(one.core).task);
}

TEST(Running, TheCallingThreadDoesNotCount) {
  TestCore one;
  look_at_this_thread();
  const Inside inside(one.core);
  const RunningTask task(one.core);
  EXPECT_FALSE(running(one.core).handler);
  EXPECT_FALSE(running(one.core).task);
}

TEST(Running, ThreadsThatAreNotListedAreNotSeen) {
  TestCore one;
  const Busy<Inside> handler(one.core, false);
  EXPECT_FALSE(running(one.core).handler);
}

TEST(Running, ManyThreadsComeAndGo) {
  TestCore one;
  for (int round = 0; round < 50; ++round) {
    const Busy<Inside> first(one.core);
    const Busy<RunningTask> second(one.core);
    const Running now = running(one.core);
    EXPECT_TRUE(now.handler && now.task);
  }
}

}  // namespace
}  // namespace heddle::engine::running_test
