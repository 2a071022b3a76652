// Barriers and small reductions by barrier gates: a rank that computes between start and wait is
// not needed, results are those of software to the last bit, several operations at once do not
// disturb each other, and if there are too few gates, all members use software. On the emulator of
// uTofu.
#include <array>
#include <atomic>
#include <numeric>

#include "api/test_collective.hpp"
#include "base/random.hpp"
#include "base/test_support.hpp"

namespace heddle::test::collective_gates_test {
namespace {

const heddle_reduction kSum{HEDDLE_INT64, HEDDLE_SUM, nullptr, nullptr, 0};
const heddle_reduction kMin{HEDDLE_DOUBLE, HEDDLE_MIN, nullptr, nullptr, 0};
const heddle_reduction kXor{HEDDLE_UINT16, HEDDLE_BXOR, nullptr, nullptr, 0};
const heddle_reduction kSumOfDoubles{HEDDLE_DOUBLE, HEDDLE_SUM, nullptr, nullptr, 0};

bool offloaded(heddle_collective handle) {
  int offloaded = -1;
  must(heddle_collective_offloaded(handle, &offloaded), "offloaded");
  return offloaded == 1;
}

std::string algorithm_of(heddle_collective handle) {
  const char* name = nullptr;
  must(heddle_collective_algorithm(handle, &name), "algorithm");
  return name;
}

// One member's persistent operation.
class Repeated {
 public:
  Repeated() = default;
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  ~Repeated() { EXPECT_EQ(heddle_collective_free(handle_), HEDDLE_DONE) << heddle_last_error(); }
  void start() const { must(heddle_collective_start(handle_), "start"); }
  [[nodiscard]] Status wait(std::int64_t timeout_ns = HEDDLE_FOREVER) const {
    return heddle_collective_wait(handle_, timeout_ns);
  }
  [[nodiscard]] heddle_collective handle() const { return handle_; }

 protected:
  heddle_collective handle_{};
};

class Barrier : public Repeated {
 public:
  explicit Barrier(heddle_team team) { must(heddle_barrier_init(team, nullptr, &handle_), "barrier_init"); }
};

// An allreduce of integers whose result can be said at once.
class Sum : public Repeated {
 public:
  Sum(heddle_team team, std::uint32_t rank, std::uint32_t ranks, std::size_t count = 3)
      : rank_(rank), ranks_(ranks), send_(count), receive_(count) {
    must(heddle_allreduce_init(team, send_.data(), receive_.data(), count, &kSum, nullptr, &handle_), "allreduce_init");
  }
  void start(std::int64_t run) {
    for (std::size_t i = 0; i < send_.size(); ++i) send_[i] = given(run, rank_, i);
    Repeated::start();
  }
  void finish(std::int64_t run) const {
    must(wait(), "wait");
    verify(run);
  }
  void verify(std::int64_t run) const {
    for (std::size_t i = 0; i < receive_.size(); ++i) {
      std::int64_t sum = 0;
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) sum += given(run, rank, i);
      must_be(receive_[i] == sum, "run " + std::to_string(run) + ", element " + std::to_string(i) + " is the sum");
    }
  }

 private:
  static std::int64_t given(std::int64_t run, std::uint32_t rank, std::size_t i) {
    return (run * 1'000'003 + static_cast<std::int64_t>(i)) * (rank % 2 == 0 ? 1 : -2) - rank;
  }
  std::uint32_t rank_;
  std::uint32_t ranks_;
  std::vector<std::int64_t> send_;
  std::vector<std::int64_t> receive_;
};

class Gates : public testing::Test {
 protected:
  const Variables variables_{{{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM}, {"HEDDLE_UTOFU_GATES", "1000"}}};
};

TEST_F(Gates, AllKindsOfAnyNumberOfRanks) {
  for (const std::uint32_t ranks : {2U, 3U, 4U, 5U, 8U}) {
    run_members(ranks, "utofu", [&](const Member& member) {
      const heddle_team team = member.world.handle();
      Barrier barrier(team);
      must_be(offloaded(barrier.handle()), "the barrier is offloaded");
      must_be(algorithm_of(barrier.handle()) == "barrier.gates", "its name is " + algorithm_of(barrier.handle()));
      Sum sum(team, member.rank(), ranks, 6);
      must_be(offloaded(sum.handle()) && algorithm_of(sum.handle()) == "allreduce.gates", "the sum is offloaded");
      // In place, at a root.
      std::array<double, 2> least{};
      heddle_collective reduce{};
      must(heddle_reduce_init(team, least.data(), least.data(), 2, &kMin, ranks - 1, nullptr, &reduce), "reduce_init");
      must_be(offloaded(reduce) && algorithm_of(reduce) == "reduce.gates", "the minimum is offloaded");
      for (std::int64_t run = 1; run <= 20; ++run) {
        barrier.start();
        must(barrier.wait(), "barrier");
        sum.start(run);
        sum.finish(run);
        const auto number = static_cast<double>(run);
        const std::array given = {-0.5 * number * member.rank(), 1.0 / (number + member.rank())};
        least = given;
        must(heddle_collective_start(reduce), "start");
        must(heddle_collective_wait(reduce, HEDDLE_FOREVER), "wait");
        const bool root = member.rank() == ranks - 1;
        const std::array expected = {-0.5 * number * (ranks - 1), 1.0 / (number + ranks - 1)};
        must_be(least == (root ? expected : given), root ? "the root has the minima" : "others get nothing");
        // The blocking forms, by other gates.
        std::uint16_t word = static_cast<std::uint16_t>(run * 7 + member.rank());
        std::uint16_t all = 0;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) all ^= static_cast<std::uint16_t>(run * 7 + rank);
        must(heddle_allreduce(team, &word, &word, 1, &kXor), "blocking allreduce");
        must_be(word == all, "the blocking allreduce is right");
        must(heddle_barrier(team), "blocking barrier");
      }
      must(heddle_collective_free(reduce), "free");
    });
    ASSERT_FALSE(HasFailure()) << ranks << " ranks";
  }
}

TEST_F(Gates, NobodyLeavesBeforeAllHaveCome) {
  constexpr std::uint32_t kRanks = 3;
  std::array<std::atomic<std::uint64_t>, kRanks> come{};
  const auto runs = base::few_if_sanitized<std::uint64_t>(2000, 10'000);
  run_members(kRanks, "utofu", [&](const Member& member) {
    Barrier barrier(member.world.handle());
    must_be(offloaded(barrier.handle()), "offloaded");
    for (std::uint64_t run = 1; run <= runs; ++run) {
      come[member.rank()].store(run, std::memory_order_release);
      if (run % 2 == 0) {
        must(heddle_barrier(member.world.handle()), "blocking");
      } else {
        barrier.start();
        must(barrier.wait(), "wait");
      }
      for (const auto& other : come) must_be(other.load(std::memory_order_acquire) >= run, "all have come");
    }
  });
}

TEST_F(Gates, ManyRunsAndTests) {
  run_members(2, "utofu", [&](const Member& member) {
    Sum sum(member.world.handle(), member.rank(), 2);
    const auto runs = base::few_if_sanitized<std::int64_t>(2000, 10'000);
    for (std::int64_t run = 1; run <= runs; ++run) {
      sum.start(run);
      if (run % 100 == 0) {
        Status status = HEDDLE_AGAIN;
        must_be(within_time([&] { return (status = heddle_collective_test(sum.handle())) != HEDDLE_AGAIN; }), "ends");
        must(status, "test");
        sum.verify(run);
      } else {
        sum.finish(run);
      }
    }
  });
}

// The last one has the result though the others call nothing until it says so.
TEST_F(Gates, NobodyIsNeededBetweenStartAndEnd) {
  constexpr std::uint32_t kRanks = 5;
  std::atomic<std::int64_t> arrived{0};
  run_members(kRanks, "utofu", [&](const Member& member) {
    Sum sum(member.world.handle(), member.rank(), kRanks);
    for (std::int64_t run = 1; run <= 20; ++run) {
      sum.start(run);
      if (member.rank() == run % kRanks) {
        sum.finish(run);
        arrived.store(run, std::memory_order_release);
      } else {
        must_be(within_time([&] { return arrived.load(std::memory_order_acquire) >= run; }), "it arrives");
        sum.finish(run);
      }
    }
  });
}

// Begun in one order, ended in others, blocking ones in between.
TEST_F(Gates, SeveralAtOnce) {
  constexpr std::uint32_t kRanks = 3;
  run_members(kRanks, "utofu", [&](const Member& member) {
    Sum first(member.world.handle(), member.rank(), kRanks);
    Sum second(member.world.handle(), member.rank(), kRanks, 1);
    Barrier barrier(member.world.handle());
    for (std::int64_t run = 1; run <= 200; ++run) {
      // Even the order of starts may differ: each has gates of its own.
      if (member.rank() == 1) barrier.start();
      first.start(run);
      second.start(run + 1000);
      if (member.rank() != 1) barrier.start();
      std::int64_t value = run + member.rank();
      must(heddle_allreduce(member.world.handle(), &value, &value, 1, &kSum), "blocking");
      must_be(value == run * kRanks + 3, "the blocking sum is right");
      heddle_collective begun{};
      must(heddle_barrier_start(member.world.handle(), &begun), "nonblocking");
      second.finish(run + 1000);
      must(heddle_collective_wait(begun, HEDDLE_FOREVER), "wait for the nonblocking one");
      first.finish(run);
      must(barrier.wait(), "wait for the barrier");
    }
  });
}

TEST_F(Gates, TeamsOfAnyMembers) {
  constexpr std::uint32_t kRanks = 6;
  run_members(kRanks, "utofu", [&](const Member& member) {
    base::Random random(3);  // the same at all
    for (int round = 0; round < 12; ++round) {
      std::vector<std::uint32_t> ranks(kRanks);
      std::iota(ranks.begin(), ranks.end(), 0U);
      for (std::uint32_t i = 0; i < kRanks; ++i) std::swap(ranks[i], ranks[random.below(kRanks)]);
      ranks.resize(1 + random.below(kRanks));
      const bool persistent = random.below(2) == 0;
      heddle_team team{};
      must(heddle_team_subset(member.world.handle(), ranks.data(), static_cast<std::uint32_t>(ranks.size()), &team),
           "subset");
      if (team.id == 0) continue;
      const auto size = static_cast<std::uint32_t>(ranks.size());
      const auto mine = static_cast<std::uint32_t>(std::ranges::find(ranks, member.rank()) - ranks.begin());
      if (persistent) {
        Sum sum(team, mine, size);
        must_be(offloaded(sum.handle()) == (size > 1), "offloaded, but not alone");
        for (std::int64_t run = 1; run <= 10; ++run) {
          sum.start(run);
          sum.finish(run);
        }
        must(heddle_barrier(team), "before free");
      }
      for (std::int64_t run = 1; run <= 10; ++run) {
        std::int64_t value = run * (mine + 1);
        must(heddle_allreduce(team, &value, &value, 1, &kSum), "allreduce");
        must_be(value == run * size * (size + 1) / 2, "the sum is right");
      }
      must(heddle_team_free(team), "free");
    }
  });
}

// Two threads of each rank, each with a team of its own.
TEST_F(Gates, TwoTeamsFromTwoThreads) {
  constexpr std::uint32_t kRanks = 3;
  run_members(kRanks, "utofu", [&](const Member& member) {
    std::array<heddle_team, 2> teams{};
    for (heddle_team& team : teams) {
      const std::array<std::uint32_t, kRanks> ranks = {2, 0, 1};
      must(heddle_team_subset(member.world.handle(), ranks.data(), kRanks, &team), "subset");
    }
    const std::uint32_t mine = (member.rank() + 1) % kRanks;
    std::array<std::string, 2> failures;
    const auto work = [&](std::size_t which) {
      try {
        Sum sum(teams[which], mine, kRanks);
        must_be(offloaded(sum.handle()), "offloaded");
        for (std::int64_t run = 1; run <= 300; ++run) {
          sum.start(run * (which == 0 ? 1 : -1));
          must(heddle_barrier(teams[which]), "barrier");
          sum.finish(run * (which == 0 ? 1 : -1));
        }
        must(heddle_barrier(teams[which]), "the last barrier");
      } catch (const std::exception& error) {
        failures[which] = error.what();
        static_cast<void>(heddle_inproc_fail(member.job, member.rank()));
      }
    };
    std::thread other(work, 1);
    work(0);
    other.join();
    for (const std::string& failure : failures) must_be(failure.empty(), failure);
    for (const heddle_team team : teams) must(heddle_team_free(team), "free");
  });
}

// An operation without gates is run by software, at all members.
TEST_F(Gates, MoreOperationsThanGates) {
  const Variables few{{{"HEDDLE_UTOFU_GATES", "26"}}};
  constexpr std::uint32_t kRanks = 3;  // of one process: 6 gates for each operation
  constexpr std::size_t kOperations = 8;
  std::array<std::atomic<std::uint32_t>, kOperations> by_gates{};
  run_members(kRanks, "utofu", [&](const Member& member) {
    {
      std::vector<std::unique_ptr<Sum>> all;
      for (std::size_t i = 0; i < kOperations; ++i) {
        all.push_back(std::make_unique<Sum>(member.world.handle(), member.rank(), kRanks));
        by_gates[i] += offloaded(all.back()->handle()) ? 1 : 0;
      }
      for (std::int64_t run = 1; run <= 5; ++run) {
        for (auto& sum : all) sum->start(run);
        must(heddle_barrier(member.world.handle()), "by software");
        for (std::size_t i = kOperations; i-- > 0;) all[i]->finish(run);
      }
      must(heddle_barrier(member.world.handle()), "before they are freed");
    }
    must(heddle_barrier(member.world.handle()), "all are freed");
    Sum again(member.world.handle(), member.rank(), kRanks);
    must_be(offloaded(again.handle()), "gates come back");
    again.start(1);
    again.finish(1);
    must(heddle_barrier(member.world.handle()), "before it is freed");
  });
  std::size_t most = 0;
  for (const auto& members : by_gates) {
    EXPECT_TRUE(members == 0 || members == kRanks) << "all members decide alike";
    most += members == kRanks ? 1 : 0;
  }
  EXPECT_GE(most, 1U);
  EXPECT_LE(most, 4U);
}

TEST_F(Gates, NotWhereOneMemberHasNone) {
  const Job job(2, "utofu");
  std::vector<std::thread> threads;
  std::atomic<bool> joined{false};
  for (const std::uint32_t rank : {0U, 1U}) {
    threads.emplace_back([&, rank] {
      // The environment is read when a rank joins: one after the other.
      if (rank == 1) {
        EXPECT_TRUE(within_time([&] { return joined.load(std::memory_order_acquire); }));
        setenv("HEDDLE_UTOFU_GATES", "0", 1);
      }
      Context context = job.join(rank);
      joined.store(true, std::memory_order_release);
      try {
        Team world = Team::world(context);
        {
          Sum sum(world.handle(), rank, 2);
          must_be(!offloaded(sum.handle()), "not offloaded");
          for (std::int64_t run = 1; run <= 3; ++run) {
            sum.start(run);
            sum.finish(run);
            must(heddle_barrier(world.handle()), "barrier");
          }
        }
        must(heddle_barrier(world.handle()), "the last barrier");
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        static_cast<void>(heddle_inproc_fail(job.handle(), rank));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// An algorithm that is named is used. Operations that gates cannot compute exactly are run by
// software.
TEST_F(Gates, WhatSoftwareRuns) {
  run_members(2, "utofu", [](const Member& member) {
    const heddle_team team = member.world.handle();
    heddle_collective handle{};
    const heddle_collective_options named{sizeof named, "barrier.dissemination", 0};
    must(heddle_barrier_init(team, &named, &handle), "init");
    must_be(!offloaded(handle) && algorithm_of(handle) == "barrier.dissemination", "as named");
    must(heddle_collective_free(handle), "free");
    const heddle_collective_options gates{sizeof gates, "barrier.gates", 0};
    must_be(heddle_barrier_init(team, &gates, &handle) == HEDDLE_ERR_ARGUMENT, "no name for options");
    std::array<double, 1> value = {1.5};
    must(heddle_allreduce_init(team, value.data(), value.data(), 1, &kSumOfDoubles, nullptr, &handle), "init");
    must_be(!offloaded(handle), "sums of doubles");
    must(heddle_collective_free(handle), "free");
    must(heddle_allreduce(team, value.data(), value.data(), 1, &kSumOfDoubles), "blocking");
    must_be(value[0] == 3.0, "the sum is right");
    Sum seven(team, member.rank(), 2, 7);
    must_be(!offloaded(seven.handle()), "too many words");
    seven.start(1);
    seven.finish(1);
    must(heddle_barrier(team), "before it is freed");
  });
}

TEST_F(Gates, MisuseIsRefused) {
  run_members(2, "utofu", [](const Member& member) {
    Barrier barrier(member.world.handle());
    if (member.rank() == 0) {
      barrier.start();
      must_be(heddle_collective_start(barrier.handle()) == HEDDLE_ERR_STATE, "no second start");
      must_be(barrier.wait(0) == HEDDLE_ERR_TIMEOUT, "the other one has not started");
      must_be(heddle_collective_free(barrier.handle()) == HEDDLE_ERR_STATE, "it is active");
      must(heddle_barrier(member.world.handle()), "barrier");
    } else {
      must(heddle_barrier(member.world.handle()), "barrier");
      barrier.start();
    }
    must(barrier.wait(), "wait");
    must(heddle_barrier(member.world.handle()), "before it is freed");
  });
}

// Blocking calls that do not agree, with arguments known from before: they return an error instead
// of waiting for ever.
TEST_F(Gates, CallsThatDifferAreTold) {
  run_members(2, "utofu", [](const Member& member) {
    heddle_team team{};
    const std::array<std::uint32_t, 2> ranks = {0, 1};
    must(heddle_team_subset(member.world.handle(), ranks.data(), 2, &team), "subset");
    std::int64_t value = 1;
    must(heddle_barrier(team), "barrier");
    must(heddle_allreduce(team, &value, &value, 1, &kSum), "allreduce");
    const Status status = member.rank() == 0 ? heddle_barrier(team) : heddle_allreduce(team, &value, &value, 1, &kSum);
    must_be(status == HEDDLE_ERR_ARGUMENT, std::string("told: ") + heddle_status_name(status));
    must_be(heddle_barrier(team) == HEDDLE_ERR_ARGUMENT, "and so it stays");
    must(heddle_team_free(team), "free");
  });
}

// Last in this file: an operation that has not ended keeps its gates.
TEST_F(Gates, ZTheDeathOfAMemberIsTold) {
  constexpr std::uint32_t kRanks = 3;
  for (const bool blocking : {false, true}) {
    for (const std::uint32_t dead : {0U, 2U}) {
      const Job job(kRanks, "utofu");
      std::atomic<std::uint32_t> ready{0};
      std::atomic<std::uint32_t> through{0};
      std::vector<std::thread> threads;
      for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
          Context context = job.join(rank);
          try {
            Team world = Team::world(context);
            heddle_collective handle{};
            must(heddle_barrier_init(world.handle(), nullptr, &handle), "init");
            must_be(offloaded(handle), "offloaded");
            must(heddle_barrier(world.handle()), "barrier");
            std::int64_t value = 0;
            must(heddle_allreduce(world.handle(), &value, &value, 1, &kSum), "allreduce");
            ready.fetch_add(1);
            must_be(within_time([&] { return ready.load() == kRanks; }), "all are ready");
            if (rank == dead) {
              must(heddle_inproc_fail(job.handle(), rank), "fail");
            } else if (blocking) {
              must_be(heddle_barrier(world.handle()) == HEDDLE_ERR_PEER_FAILED, "PEER_FAILED from the barrier");
              must_be(heddle_barrier(world.handle()) == HEDDLE_ERR_PEER_FAILED, "and from the next");
              must_be(heddle_allreduce(world.handle(), &value, &value, 1, &kSum) == HEDDLE_ERR_PEER_FAILED,
                      "and from another, by the same gates");
            } else {
              must(heddle_collective_start(handle), "start");
              must_be(heddle_collective_wait(handle, HEDDLE_FOREVER) == HEDDLE_ERR_PEER_FAILED, "PEER_FAILED");
              must_be(heddle_collective_start(handle) == HEDDLE_ERR_PEER_FAILED, "and from the next start");
            }
            if (rank != dead) must(heddle_collective_free(handle), "free");
            through.fetch_add(1);
            must_be(
                within_time([&] { return through.load() == kRanks; }, [&] { static_cast<void>(context.progress()); }),
                "all are through");
          } catch (const std::exception& error) {
            ADD_FAILURE() << "rank " << rank << ": " << error.what();
            through.fetch_add(kRanks);
            static_cast<void>(heddle_inproc_fail(job.handle(), rank));
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  }
}

}  // namespace
}  // namespace heddle::test::collective_gates_test
