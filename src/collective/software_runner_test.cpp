// The way by software, on the memory of two members in one process; and the table of ways.
#include "collective/software_runner.hpp"

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstring>
#include <functional>
#include <thread>

#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "collective/collective.hpp"
#include "collective/reduction.hpp"
#include "collective/team.hpp"

namespace heddle::collective::software_runner_test {
namespace {

constexpr std::uint32_t kMembers = 2;

// An operation that a member prepares by hand.
class Part {
 public:
  Part(Team& team, const char* algorithm, const Call& call)
      : team_(team), call_(call), algorithm_(*find_algorithm(algorithm)), places_(team) {
    request_ = {call.operation, team.rank(), team.size(), call.root, call.bytes, call.element_bytes, 0, {0, 0, 0}};
    places_.look(plan());
    request_.reachable = !places_.staged();
    schedule_ = algorithm_.schedule(request_);
    EXPECT_EQ(places_.take(plan(), &record_), HEDDLE_DONE);
    runner_ = ways().back().open(plan(), places_);
  }
  [[nodiscard]] Plan plan() { return {team_, call_, Use::kept, algorithm_, false, request_, schedule_}; }
  [[nodiscard]] const SetupRecord& record() const { return record_; }
  [[nodiscard]] Places& places() { return places_; }
  [[nodiscard]] Runner& runner() { return *runner_; }
  base::Status bind(std::span<const SetupRecord> records) { return runner_->bind(schedule_, records); }
  void run() {
    runner_->start();
    EXPECT_TRUE(test::within_time([this] { return runner_->advance(); }));
    EXPECT_EQ(runner_->status(), HEDDLE_DONE);
  }
  // Ends the operation as a Collective does.
  void end(const Runner::Past& past, Runner::Memory expected) {
    const Runner::Memory memory = runner_->retire(past);
    EXPECT_EQ(memory, expected);
    auto counters = final_counters(schedule_, runner_->runs());
    runner_.reset();
    places_.give_back(memory, std::move(counters));
  }

 private:
  Team& team_;
  const Call call_;
  const Algorithm& algorithm_;
  AlgorithmRequest request_;
  Schedule schedule_;
  Places places_;
  SetupRecord record_;
  std::unique_ptr<Runner> runner_;
};

constexpr Runner::Past kRan{.never = false, .agreed = true, .rejected = false, .ran = true, .whole = true};
constexpr Runner::Past kNever{.never = true, .agreed = false, .rejected = false, .ran = false, .whole = true};
constexpr Runner::Past kUnknown{.never = false, .agreed = true, .rejected = false, .ran = false, .whole = false};

class TwoMembers : public testing::Test {
 protected:
  // Each member has a thread, a context and a team of both.
  void members(const std::function<void(Team&)>& part) {
    std::array<std::thread, kMembers> threads;
    for (std::uint32_t rank = 0; rank < kMembers; ++rank) {
      threads[rank] = std::thread([&, rank] {
        auto joined = worker::Context::join({{"inproc", &job_, rank}, "shm", "none"});
        ASSERT_TRUE(joined.ok()) << base::last_message();
        auto team = Team::world(**joined);
        ASSERT_TRUE(team.ok()) << base::last_message();
        part(**team);
        meet_.arrive_and_wait();
        EXPECT_EQ((*team)->close(), HEDDLE_DONE);
        meet_.arrive_and_wait();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // Also exchanges the records of the two members.
  base::Status bind(Part& part, std::uint32_t rank) {
    records_[rank] = part.record();
    meet_.arrive_and_wait();
    const base::Status status = part.bind(records_);
    meet_.arrive_and_wait();
    return status;
  }
  void meet() { meet_.arrive_and_wait(); }

 private:
  bootstrap::inproc::ThreadJob job_{kMembers};
  std::barrier<> meet_{kMembers};
  std::array<SetupRecord, kMembers> records_;
};

TEST_F(TwoMembers, ReduceWithTheBuffersOfEachRun) {
  members([this](Team& team) {
    const auto named = named_reduction("test", {HEDDLE_UINT64, HEDDLE_SUM, nullptr, nullptr, 0});
    ASSERT_TRUE(named.ok());
    std::uint64_t given = 0;
    std::array<std::uint64_t, 2> sums{};
    Call call;
    call.operation = Operation::allreduce;
    call.bytes = call.element_bytes = sizeof given;
    call.reduction = named->reduction;
    call.send = &given;
    call.receive = sums.data();
    Part part(team, "allreduce.doubling", call);
    ASSERT_EQ(bind(part, team.rank()), HEDDLE_DONE);
    EXPECT_FALSE(part.runner().offloaded());
    EXPECT_STREQ(part.runner().algorithm("allreduce.doubling"), "allreduce.doubling");
    for (std::uint64_t run = 0; run < 4; ++run) {
      call.receive = &sums[run % 2];
      part.runner().set_buffers(call);
      given = 10 * run + team.rank();
      part.run();
      EXPECT_EQ(sums[run % 2], 20 * run + 1);
    }
    EXPECT_EQ(part.runner().runs(), 4U);
    part.end(kRan, Runner::Memory::late);
  });
}

// No member's buffer is in a region, so data arrives in memory of the operation's own and is copied
// at the end of the run.
TEST_F(TwoMembers, StageWhatPeersCannotReach) {
  members([this](Team& team) {
    std::array<std::uint32_t, 64> data{};
    Call call;
    call.operation = Operation::broadcast;
    call.bytes = sizeof data;
    call.receive = data.data();
    Part part(team, "broadcast.chain", call);
    EXPECT_EQ(part.places().staged(), team.rank() != 0);
    EXPECT_EQ(part.places().stage() != nullptr, team.rank() != 0);
    ASSERT_EQ(bind(part, team.rank()), HEDDLE_DONE);
    for (std::uint32_t run = 1; run <= 3; ++run) {
      if (team.rank() == 0) data.fill(run);
      part.run();
      EXPECT_EQ(data.front(), run);
      EXPECT_EQ(data.back(), run);
    }
    part.end(kRan, Runner::Memory::late);
  });
}

TEST_F(TwoMembers, KeepMemoryThatOthersMayPutTo) {
  members([this](Team& team) {
    Call call;
    call.operation = Operation::barrier;
    Part told(team, "barrier.dissemination", call);
    Part unnotified(team, "barrier.dissemination", call);
    ASSERT_EQ(bind(told, team.rank()), HEDDLE_DONE);
    const CounterWord* const kept = told.places().counters();
    const CounterWord* const freed = unnotified.places().counters();
    unnotified.end(kNever, Runner::Memory::now);
    told.end(kUnknown, Runner::Memory::never);
    Part next(team, "barrier.dissemination", call);
    EXPECT_EQ(next.places().counters(), freed);
    EXPECT_NE(next.places().counters(), kept);
    next.end(kNever, Runner::Memory::now);
  });
}

// A waiting thread sleeps after a millisecond in which nothing moved, although the operation takes
// many milliseconds.
TEST_F(TwoMembers, RestOnlyWhileNothingMoves) {
  members([](Team& team) {
    const auto rests = [&](Commons::Look found) {
      constexpr int kLooks = 200;
      constexpr std::uint64_t kLookNs = 50'000;
      int looks = 0;
      std::size_t rested = 0;
      const auto look = [&] {
        const std::uint64_t since = team.context().clock().now_ns();
        while (team.context().clock().now_ns() - since < kLookNs) continue;
        return ++looks == kLooks ? Commons::Look::over : found;
      };
      const auto fetch = [&](std::int64_t) {
        ++rested;
        return true;
      };
      EXPECT_TRUE(team.commons().wait({"a test"}, look, worker::kNothingMore, fetch));
      return rested;
    };
    EXPECT_EQ(rests(Commons::Look::moved), 0U);
    EXPECT_GT(rests(Commons::Look::nothing), 0U);
  });
}

TEST_F(TwoMembers, NameTheCountersThatARunWaitsFor) {
  members([this](Team& team) {
    Call call;
    call.operation = Operation::barrier;
    Part part(team, "barrier.dissemination", call);
    ASSERT_EQ(bind(part, team.rank()), HEDDLE_DONE);
    if (team.rank() == 0) {
      part.runner().start();
      EXPECT_EQ(part.runner().awaited(), (std::vector<std::uint32_t>{0}));
      part.runner().fail(HEDDLE_ERR_PEER_FAILED);
      EXPECT_TRUE(part.runner().advance());
      EXPECT_EQ(part.runner().status(), HEDDLE_ERR_PEER_FAILED);
    }
    meet();
    part.end(kUnknown, Runner::Memory::never);
  });
}

}  // namespace
}  // namespace heddle::collective::software_runner_test
