#include "queue/handover.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>
#include <vector>

#include "base/fence.hpp"
#include "base/test_support.hpp"

namespace heddle::queue::handover_test {
namespace {

std::uint32_t thread_number() {
  return static_cast<std::uint32_t>(::syscall(SYS_gettid));
}

// Processor time that the calling thread has used.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

TEST(Handover, OneAtATimeAndHelpersSkip) {
  ASSERT_TRUE(base::membarrier_private_ready());
  Handover<> handover;
  handover.enter();
  EXPECT_TRUE(handover.looks_inside());
  EXPECT_FALSE(handover.try_claim(7));
  handover.leave();
  ASSERT_TRUE(handover.try_claim(7));
  EXPECT_TRUE(handover.held_by(7));
  EXPECT_FALSE(handover.held_by(8));
  EXPECT_FALSE(handover.try_claim(8));
  EXPECT_FALSE(handover.try_enter());
  EXPECT_FALSE(handover.looks_inside());
  handover.release();
  EXPECT_FALSE(handover.held_by(7));
  EXPECT_TRUE(handover.try_enter());
  handover.leave();
}

// An owner that is late finds the number of a helper that has released its claim, and has perhaps
// ended.
TEST(Handover, OnlyAHelperThatStillHasItsClaimIsMoved) {
  const std::uint32_t before = SystemHandover::moves();
  std::uint32_t ended = 0;
  std::thread([&] { ended = thread_number(); }).join();
  // For the kernel the thread ends a moment later.
  while (::syscall(SYS_tgkill, ::getpid(), ended, 0) == 0) sched_yield();
  std::atomic<std::uint32_t> claim{ended | Handover<>::kWaiting};
  // Returns by its timeout: nobody wakes it.
  SystemHandover::wait(&claim, claim.load(), ended, 1);
  EXPECT_EQ(SystemHandover::moves(), before) << "a thread that has ended";

  cpu_set_t allowed;
  cpu_set_t after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  claim = 0;
  SystemHandover::wait(&claim, thread_number() | Handover<>::kWaiting, thread_number(), 1);
  EXPECT_EQ(SystemHandover::moves(), before) << "a claim that was given back";
  ASSERT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&allowed, &after));

  claim = thread_number() | Handover<>::kWaiting;
  SystemHandover::wait(&claim, claim.load(), thread_number(), 1);
  EXPECT_EQ(SystemHandover::moves(), before + 1);
  ASSERT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_EQ(CPU_COUNT(&after), 1);
  ASSERT_EQ(::sched_setaffinity(0, sizeof allowed, &allowed), 0);
}

// Without the barrier no helper may go on: the claim is released.
struct NoBarrier : SystemHandover {
  [[nodiscard]] static bool heavy() { return false; }
};
TEST(Handover, NoHelpWithoutABarrier) {
  Handover<std::atomic, NoBarrier> handover;
  EXPECT_FALSE(handover.try_claim(7));
  EXPECT_FALSE(handover.looks_claimed());
  EXPECT_TRUE(handover.try_enter());
  handover.leave();
}

// The kernel allowed the barrier when the worker was made.
TEST(Handover, ABarrierThatIsForbiddenLaterIsToldOnce) {
  ASSERT_TRUE(base::membarrier_private_ready());
  bool filters = false;
  std::thread([&] { filters = test::forbid_call(SYS_membarrier, EPERM); }).join();
  if (!filters) GTEST_SKIP() << test::kNoFilters;
  const auto claim_twice = [](std::uint32_t error) {
    if (!test::forbid_call(SYS_membarrier, error)) ::_exit(2);
    Handover<> handover;
    const bool claimed = handover.try_claim(7) || handover.try_claim_urgently(7);
    ::_exit(claimed || handover.looks_claimed() ? 1 : 0);
  };
  EXPECT_EXIT(claim_twice(EPERM), testing::ExitedWithCode(0), "^heddle: membarrier is [^\n]*HEDDLE_SHARING=[^\n]*\n$");
  EXPECT_EXIT(claim_twice(ENOMEM), testing::ExitedWithCode(0), "^$") << "another time it may work";
}

// An owner that waits outside is seen by the helper, which is moved only if it takes long.
struct RecordingSystem : SystemHandover {
  static inline std::function<void()> while_waiting;
  static inline int fetches = 0;
  static void wait(std::atomic<std::uint32_t>*, std::uint32_t, std::uint32_t, std::uint32_t) { while_waiting(); }
  static void fetch(std::atomic<std::uint32_t>*, std::uint32_t, std::uint32_t, std::int64_t) { ++fetches; }
};
TEST(Handover, AHelperThatLeavesInAMomentIsNotMoved) {
  ASSERT_TRUE(base::membarrier_private_ready());
  Handover<std::atomic, RecordingSystem> handover;
  RecordingSystem::fetches = 0;
  ASSERT_TRUE(handover.try_claim(7));
  EXPECT_FALSE(handover.try_enter());
  EXPECT_FALSE(handover.looks_wanted());
  RecordingSystem::while_waiting = [] {};
  handover.await_helper(1);
  EXPECT_EQ(RecordingSystem::fetches, 1);
  EXPECT_TRUE(handover.looks_wanted());
  EXPECT_FALSE(handover.looks_inside());
  RecordingSystem::while_waiting = [&] { handover.release(); };
  handover.await_helper(1);
  EXPECT_EQ(RecordingSystem::fetches, 1);
  EXPECT_FALSE(handover.looks_wanted());
}

// The owner is inside when the helper asks, and comes back before the helper has looked again: on
// its return the owner lets the helper in first.
TEST(Handover, AnOwnerThatComesAndGoesLetsAnUrgentHelperIn) {
  ASSERT_TRUE(base::membarrier_private_ready());
  Handover<> handover;
  std::uint64_t guarded = 0;
  std::atomic<bool> stop{false};
  std::uint64_t entered = 0;
  std::thread owner([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      handover.enter();
      ++guarded;
      ++entered;
      handover.leave();
    }
  });
  constexpr std::uint64_t kVisits = 1000;
  const test::Deadline deadline;
  std::uint64_t visits = 0;
  while (visits < kVisits && !deadline.over()) {
    if (!handover.try_claim_urgently(thread_number())) {
      std::this_thread::yield();  // the owner was preempted while inside
      continue;
    }
    ++guarded;
    ++visits;
    handover.release();
  }
  stop.store(true);
  owner.join();
  EXPECT_EQ(visits, kVisits);
  EXPECT_EQ(guarded, entered + visits);
}

// While a helper has the claim, the owner sleeps and does not spin; it goes on when the helper
// leaves.
TEST(Handover, OwnerSleepsUntilTheHelperHasLeft) {
  ASSERT_TRUE(base::membarrier_private_ready());
  Handover<> handover;
  std::atomic<bool> claimed{false};
  std::atomic<bool> left{false};
  const pid_t owner = test::this_thread();
  std::thread helper([&] {
    EXPECT_TRUE(handover.try_claim(thread_number()));
    claimed.store(true);
    EXPECT_TRUE(test::await_asleep(owner)) << "the owner does not sleep";
    left.store(true);
    handover.release();
  });
  while (!claimed.load()) std::this_thread::yield();
  handover.enter();
  EXPECT_TRUE(left.load());
  handover.leave();
  helper.join();
}

// A helper of the lowest priority, preempted in the middle on a core that others keep busy, is
// moved to the owner's core.
TEST(Handover, AHelperThatWasPutAsideDoesNotHoldUpTheOwner) {
  ASSERT_TRUE(base::membarrier_private_ready());
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &all)) cores.push_back(core);
  }
  if (cores.size() < 2) GTEST_SKIP() << "needs two cores";
  const auto pin = [](int core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
  };
  Handover<> handover;
  std::atomic<int> stage{0};
  std::atomic<bool> stop{false};
  std::thread helper([&] {
    pin(cores[1]);
    const sched_param none{};
    ASSERT_EQ(pthread_setschedparam(pthread_self(), SCHED_IDLE, &none), 0);
    ASSERT_TRUE(handover.try_claim(thread_number()));
    stage.store(1);
    while (stage.load() != 2) {
    }
    // More work than kPatienceNs. If it were left on its core, its share of about 1/700 of that
    // core would make it seconds.
    const double end = thread_seconds() + 0.005;
    while (thread_seconds() < end) {
    }
    cpu_set_t now;
    ASSERT_EQ(pthread_getaffinity_np(pthread_self(), sizeof now, &now), 0);
    EXPECT_TRUE(CPU_ISSET(cores[0], &now)) << "the owner has left it where it was";
    handover.release();
  });
  while (stage.load() != 1) std::this_thread::yield();
  std::vector<std::thread> busy;
  std::atomic<int> running{0};
  for (int i = 0; i < 2; ++i) {
    busy.emplace_back([&] {
      pin(cores[1]);
      ++running;
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  while (running.load() < 2) std::this_thread::yield();
  std::thread owner([&] {
    pin(cores[0]);
    stage.store(2);
    handover.enter();
    handover.leave();
  });
  owner.join();
  stop.store(true);
  helper.join();
  for (std::thread& thread : busy) thread.join();
}

// `guarded` is plain: ThreadSanitizer checks that the hand-over orders it; the sum shows whether
// two threads were ever inside at once.
TEST(Handover, StressOwnerAgainstHelpers) {
  ASSERT_TRUE(base::membarrier_private_ready());
  constexpr int kHelpers = 3;
  const int rounds = base::kThreadSanitizer ? 20000 : 400000;
  Handover<> handover;
  std::uint64_t guarded = 0;
  std::uint64_t helped = 0;
  std::atomic<bool> stop{false};
  std::vector<std::thread> helpers;
  for (int i = 0; i < kHelpers; ++i) {
    helpers.emplace_back([&] {
      const std::uint32_t self = thread_number();
      while (!stop.load(std::memory_order_relaxed)) {
        if (!handover.try_claim(self)) {
          std::this_thread::yield();
          continue;
        }
        ++guarded;
        ++helped;
        handover.release();
      }
    });
  }
  for (int i = 0; i < rounds; ++i) {
    handover.enter();
    ++guarded;
    handover.leave();
    if (i % 1000 == 0) std::this_thread::yield();
  }
  while (true) {  // the helpers get their turn
    handover.enter();
    const bool enough = helped > 1000;
    handover.leave();
    if (enough) break;
    std::this_thread::yield();
  }
  stop.store(true);
  for (std::thread& helper : helpers) helper.join();
  EXPECT_EQ(guarded, static_cast<std::uint64_t>(rounds) + helped);
}

}  // namespace
}  // namespace heddle::queue::handover_test
