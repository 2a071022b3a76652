// A thread comes to a worker while another one is inside: the order of commands, and the work that
// is left for helpers.
#include "worker/gate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "engine/handlers.hpp"
#include "worker/context.hpp"
#include "worker/worker.hpp"

namespace heddle::worker::gate_test {
namespace {

struct Rank {
  Rank(bootstrap::inproc::ThreadJob* job, std::uint32_t rank, Sharing sharing) {
    auto joined = Context::join({{"inproc", job, rank}, "loopback", "none"});
    EXPECT_TRUE(joined.ok()) << base::last_message();
    context = std::move(*joined);
    Context::WorkerOptions options;
    options.sharing = sharing;
    worker = *context->open_worker(options);
  }
  std::unique_ptr<Context> context;
  Worker* worker = nullptr;
};

// A tagged message of 8 bytes to rank 1.
base::Status send(Worker& worker, std::uint64_t tag) {
  const std::uint64_t word = tag;
  const protocol::SendRequest request{{1, 0}, tag, &word, sizeof word};
  EXPECT_TRUE(worker.tagged().reserve<true>(request.target, request.bytes));
  transport::Command command = protocol::Tagged::message(request);
  return post(worker, command, engine::kNoCompletion);
}

class GateTest : public testing::TestWithParam<Sharing> {
 protected:
  bootstrap::inproc::ThreadJob job{2};
  Rank mine{&job, 0, GetParam()};
  Rank theirs{&job, 1, Sharing::exclusive};
};

// heddle.h: messages of one worker to one worker are matched in the order of the calls.
TEST_P(GateTest, CodeInsideDoesNotOvertakeTaggedMessagesThatWait) {
  std::array<heddle_receive, 2> receives{};
  for (heddle_receive& receive : receives) {
    receive.status = HEDDLE_POSTED;
    ASSERT_EQ(theirs.worker->tagged().receive({0, 0, protocol::source_of({0, 0})}, {nullptr, 0, &receive, {}}),
              HEDDLE_POSTED);
  }
  mine.worker->gate()->visit([&] {
    const engine::Inside inside(mine.worker->core());  // as in a handler
    std::thread other([&] { EXPECT_GE(send(*mine.worker, 1), HEDDLE_DONE); });
    other.join();
    EXPECT_GT(mine.worker->gate()->queued_records(), 0U) << "this thread is inside";
    EXPECT_GE(send(*mine.worker, 2), HEDDLE_DONE);
  });
  const auto both_here = [&] { return receives[0].status != HEDDLE_POSTED && receives[1].status != HEDDLE_POSTED; };
  ASSERT_TRUE(test::within_time(both_here, [&] {
    EXPECT_GE(mine.worker->progress(), 0);
    EXPECT_GE(theirs.worker->progress(), 0);
  }));
  EXPECT_EQ(receives[0].tag, 1U);
  EXPECT_EQ(receives[1].tag, 2U);
}

// Helpers take a worker for neglected whose polls do not change.
TEST(DelegateGate, AttendingCountsAsAPollAndLeavesAWorkerAloneThatIsPolled) {
  bootstrap::inproc::ThreadJob job(2);
  const Rank mine(&job, 0, Sharing::delegate);
  const Rank theirs(&job, 1, Sharing::exclusive);
  Gate& gate = *mine.worker->gate();
  Helpers& helpers = mine.context->helpers();
  const auto attends = [&] {
    const std::uint64_t before = gate.polls();
    static_cast<void>(helpers.attend(false));
    return gate.polls() - before;
  };
  EXPECT_EQ(attends(), 1U);
  EXPECT_EQ(attends(), 1U) << "its own poll is nobody else's";
  EXPECT_EQ(mine.worker->progress(), 0);
  EXPECT_EQ(attends(), 0U) << "somebody polls it";
  EXPECT_EQ(attends(), 1U) << "nobody has since";
  const std::uint64_t before = gate.polls();
  static_cast<void>(helpers.attend(true));
  EXPECT_EQ(gate.polls(), before) << "a thorough look may be the last for long";
}

// A helper that executes commands of others on its way out has to be seen by the helpers' next
// look.
TEST(DelegateGate, WhatAHelperExecutesOnItsWayOutIsCounted) {
  bootstrap::inproc::ThreadJob job(2);
  const Rank mine(&job, 0, Sharing::delegate);
  const Rank theirs(&job, 1, Sharing::exclusive);
  Gate& gate = *mine.worker->gate();
  const std::uint64_t before = gate.entries();
  ASSERT_TRUE(gate.try_visit(1, false, [&] {
    std::thread other([&] { EXPECT_GE(send(*mine.worker, 1), HEDDLE_DONE); });
    other.join();
  }));
  EXPECT_EQ(gate.queued_records(), 0U);
  EXPECT_GT(gate.entries(), before);
}

// Where threads share cores, the executor leaves its work to the threads that poll, for as long as
// they poll. Calls that only its thread may make, it makes nevertheless.
TEST(OffloadGate, TheExecutorStandsAsideForThoseWhoPoll) {
  bootstrap::inproc::ThreadJob job(2);
  const Rank mine(&job, 0, Sharing::offload);
  const Rank theirs(&job, 1, Sharing::exclusive);
  Gate& gate = *mine.worker->gate();
  std::atomic<bool> stop{false};
  std::thread waiter([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      mine.context->crowd().yielded(1'000'000);  // another thread had the core for so long
      EXPECT_GE(mine.worker->progress(), 0);
    }
  });
  std::atomic<int> calls{0};
  int called = 0;
  const auto call = [&] {
    const auto count = [](void* arg) { static_cast<std::atomic<int>*>(arg)->fetch_add(1); };
    if (start(*mine.worker, CallStart{count, &calls, 0, {}}) == HEDDLE_POSTED) ++called;
  };
  // A call wakes it, should it sleep already.
  EXPECT_TRUE(test::within_time([&] { return !gate.executor_polls(); }, call)) << "it stands aside";
  for (int i = 0; i < 100; ++i) {
    const int before = called;
    call();
    ASSERT_EQ(called, before + 1);
    ASSERT_TRUE(test::within_time([&] { return calls.load() == called; })) << "it comes back for a call";
  }
  const auto arrives = [&](std::uint64_t tag) {
    heddle_receive receive{};
    receive.status = HEDDLE_POSTED;
    EXPECT_EQ(theirs.worker->tagged().receive({tag, ~0ULL, protocol::source_of({0, 0})}, {nullptr, 0, &receive, {}}),
              HEDDLE_POSTED);
    EXPECT_GE(send(*mine.worker, tag), HEDDLE_DONE);
    return test::within_time([&] { return receive.status != HEDDLE_POSTED; },
                             [&] { EXPECT_GE(theirs.worker->progress(), 0); });
  };
  EXPECT_TRUE(arrives(1)) << "who polls starts it";
  stop = true;
  waiter.join();
  EXPECT_TRUE(arrives(2)) << "the executor is back";
  EXPECT_TRUE(test::within_time([&] { return gate.executor_polls(); }));
}

// Its claims would make the owner wait for ever, one after the other.
TEST(AutoGate, AThreadThatMakesProgressOnTheContextSharesTheWorker) {
  bootstrap::inproc::ThreadJob job{1};
  const Rank mine{&job, 0, Sharing::automatic};
  if (!mine.worker->gate()->may_be_owned()) GTEST_SKIP() << "skipped: this kernel has no membarrier";
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop.load()) mine.context->helpers().advance_all();
  });
  EXPECT_TRUE(test::within_time([&] { return !mine.worker->gate()->may_be_owned(); },
                                [&] { EXPECT_GE(mine.worker->progress(), 0); }));
  stop = true;
  other.join();
}

// A helper inside of an auto worker that the calling thread owns, until stop().
class HelperInside {
 public:
  explicit HelperInside(Worker& worker) {
    EXPECT_GE(worker.progress(), 0);
    thread_ = std::thread([this, &gate = *worker.gate()] {
      const auto number = static_cast<std::uint32_t>(test::this_thread());
      const auto stay = [&] {
        inside_ = true;
        EXPECT_TRUE(test::within_time([&] { return stop_.load(); }));
      };
      EXPECT_TRUE(test::within_time([&] { return gate.try_visit(number, false, stay); }));
    });
    EXPECT_TRUE(test::within_time([this] { return inside_.load(); }));
  }
  void stop() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> inside_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Between its looks the owner is outside.
TEST(AutoGate, AHelperSeesThatTheOwnerWaits) {
  bootstrap::inproc::ThreadJob job{1};
  const Rank mine{&job, 0, Sharing::automatic};
  Gate& gate = *mine.worker->gate();
  if (!gate.may_be_owned()) GTEST_SKIP() << "skipped: this kernel has no membarrier";
  HelperInside helper(*mine.worker);
  EXPECT_FALSE(gate.wanted());
  const auto nothing = [] { return base::Status{HEDDLE_DONE}; };
  EXPECT_EQ(gate.after_queued(nothing), HEDDLE_AGAIN);
  EXPECT_TRUE(gate.wanted());
  helper.stop();
  EXPECT_FALSE(gate.wanted());
  EXPECT_EQ(gate.after_queued(nothing), HEDDLE_DONE);
}

// It may have lost its core, and the owner may do nothing but poll.
TEST(AutoGate, ProgressFetchesAHelperThatStays) {
  bootstrap::inproc::ThreadJob job{1};
  const Rank mine{&job, 0, Sharing::automatic};
  if (!mine.worker->gate()->may_be_owned()) GTEST_SKIP() << "skipped: this kernel has no membarrier";
  HelperInside helper(*mine.worker);
  const std::uint32_t before = queue::SystemHandover::moves();
  EXPECT_TRUE(test::within_time([&] { return queue::SystemHandover::moves() != before; },
                                [&] { EXPECT_EQ(mine.worker->progress(), 0); }));
  helper.stop();
  EXPECT_GE(mine.worker->progress(), 0);
  EXPECT_TRUE(mine.worker->gate()->may_be_owned());
}

INSTANTIATE_TEST_SUITE_P(Modes, GateTest, testing::Values(Sharing::delegate, Sharing::offload),
                         [](const auto& of) { return of.param == Sharing::delegate ? "delegate" : "offload"; });

}  // namespace
}  // namespace heddle::worker::gate_test
