// Several operations under way at once, many runs of one, more ranks than cores, ranks that come
// late or early.
#include <array>
#include <atomic>

#include "api/test_collective.hpp"

namespace heddle::test::collective_order_test {
namespace {

class Outstanding : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, Outstanding, testing::Values("shm", "loopback", "loopback-messages"),
                         [](const auto& row) {
                           std::string name = row.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// All kinds of one team are begun, then ended in an order that is not that of beginning and not the
// same at all ranks.
TEST_P(Outstanding, OperationsOfOneTeamEndInAnyOrder) {
  run_members(3, GetParam(), [](const Member& member) {
    const std::vector<Operation> operations = all_operations();
    std::vector<Part> parts;
    for (const Operation operation : operations) {
      parts.emplace_back(member.context, member.world, Part::Asked{operation, 500, 2, Memory::own, false, nullptr, 0});
    }
    for (std::uint64_t run = 1; run <= 10; ++run) {
      std::vector<heddle_collective> started(parts.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        parts[i].fill(run);
        must(parts[i].start(&started[i]), parts[i].describe());
      }
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::size_t at = (parts.size() - 1 - i + member.rank() * 4 + run) % parts.size();
        must(heddle_collective_wait(started[at], HEDDLE_FOREVER), parts[at].describe());
        parts[at].verify(run);
      }
    }
  });
}

// Blocking ones between the start and the end of persistent and nonblocking ones.
TEST_P(Outstanding, FormsAreMixed) {
  run_members(4, GetParam(), [](const Member& member) {
    Part persistent(member.context, member.world, {Operation::allreduce, 3000, 0, Memory::own, false, nullptr, 0});
    Part nonblocking(member.context, member.world, {Operation::alltoall, 77, 0, Memory::own, false, nullptr, 0});
    Part blocking(member.context, member.world, {Operation::broadcast, 40, 3, Memory::own, false, nullptr, 0});
    heddle_collective made{};
    must(persistent.init(&made), "init");
    for (std::uint64_t run = 1; run <= 20; ++run) {
      heddle_collective begun{};
      persistent.fill(run);
      nonblocking.fill(run);
      must(heddle_collective_start(made), "start");
      must(nonblocking.start(&begun), "nonblocking");
      blocking.run(Form::blocking, 2);
      must(heddle_barrier(member.world.handle()), "barrier");
      must(heddle_collective_wait(begun, HEDDLE_FOREVER), "wait for the nonblocking one");
      nonblocking.verify(run);
      must(heddle_collective_wait(made, HEDDLE_FOREVER), "wait for the persistent one");
      persistent.verify(run);
    }
    must(heddle_collective_free(made), "free");
  });
}

TEST_P(Outstanding, TheEndIsFoundByTestAlone) {
  run_members(3, GetParam(), [](const Member& member) {
    Part part(member.context, member.world, {Operation::allgather, 1000, 0, Memory::own, false, nullptr, 0});
    for (std::uint64_t run = 1; run <= 10; ++run) {
      heddle_collective begun{};
      part.fill(run);
      must(part.start(&begun), "start");
      Status status = HEDDLE_AGAIN;
      must_be(within_time([&] { return (status = heddle_collective_test(begun)) != HEDDLE_AGAIN; }), "it ends in time");
      must(status, "test");
      part.verify(run);
      must_be(heddle_collective_test(begun) == HEDDLE_ERR_HANDLE, "the handle is closed with the end");
    }
  });
}

// A member that only makes progress on the context passes on data that others wait for.
TEST_P(Outstanding, ProgressOnTheContextMovesItOn) {
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> ended{0};
  run_members(3, GetParam(), [&](const Member& member) {
    Part part(member.context, member.world,
              {Operation::broadcast, 5000, 0, Memory::allocated, false, "broadcast.chain", 0});
    heddle_collective made{};
    must(part.init(&made), "init");
    for (std::uint64_t run = 1; run <= 10; ++run) {
      part.fill(run);
      // The middle of the chain has begun before the root has: its start finds nothing to pass on.
      if (member.rank() == 0) must_be(within_time([&] { return begun.load() == run; }), "the middle has begun");
      must(heddle_collective_start(made), "start");
      if (member.rank() == 1) {
        begun = run;
        must_be(within_time([&] { return ended.load() == run; }, [&] { static_cast<void>(member.context.progress()); }),
                "the last one has got it");
      }
      must(heddle_collective_wait(made, HEDDLE_FOREVER), "wait");
      if (member.rank() == 2) ended = run;
      part.verify(run);
    }
    must(heddle_collective_free(made), "free");
  });
}

TEST_P(Outstanding, AThousandStartsOfOneOperation) {
  run_members(3, GetParam(), [](const Member& member) {
    for (const Operation operation : {Operation::broadcast, Operation::allreduce}) {
      Part part(member.context, member.world, {operation, 200, 1, Memory::allocated, false, nullptr, 0});
      part.run(Form::persistent, 1000);
    }
  });
}

TEST(Collectives16, RanksOnFewerCoresComeToTheEnd) {
  run_members(16, "shm", [](const Member& member) {
    for (const Operation operation :
         {Operation::barrier, Operation::broadcast, Operation::allreduce, Operation::alltoall}) {
      Part part(member.context, member.world, {operation, 64, 5, Memory::own, false, nullptr, 0});
      part.run(Form::blocking, 30);
      part.run(Form::persistent, 30);
    }
  });
}

// No member leaves a barrier before all have come, whichever is late.
TEST(Barrier, HoldsUntilAllHaveCome) {
  constexpr std::uint32_t kRanks = 5;
  for (const char* transport : {"shm", "loopback-messages"}) {
    std::atomic<std::uint64_t> come{0};
    run_members(kRanks, transport, [&](const Member& member) {
      heddle_collective made{};
      must(heddle_barrier_init(member.world.handle(), nullptr, &made), "init");
      for (std::uint64_t round = 1; round <= 300; ++round) {
        if (round % kRanks == member.rank()) std::this_thread::yield();
        come.fetch_add(1);
        if (round % 2 == 0) {
          must(member.world.barrier(), "barrier");
        } else {
          must(heddle_collective_start(made), "start");
          must(heddle_collective_wait(made, HEDDLE_FOREVER), "wait");
        }
        must_be(come.load() >= round * kRanks, "all have come in round " + std::to_string(round));
      }
      must(heddle_collective_free(made), "free");
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

// A wait that is over before the others have come goes on later.
TEST(Waiting, TimesOutAndGoesOn) {
  for (const char* transport : {"shm", "loopback-messages"}) {
    std::atomic<bool> timed_out{false};
    run_members(2, transport, [&](const Member& member) {
      Part part(member.context, member.world, {Operation::allreduce, 100, 0, Memory::own, false, nullptr, 0});
      heddle_collective made{};
      must(part.init(&made), "init");
      part.fill(1);
      if (member.rank() == 1) must_be(within_time([&] { return timed_out.load(); }), "the other one's time is over");
      must(heddle_collective_start(made), "start");
      if (member.rank() == 0) {
        must_be(heddle_collective_wait(made, 1'000'000) == HEDDLE_ERR_TIMEOUT, "it cannot end without the other");
        must_be(heddle_collective_wait(made, 0) == HEDDLE_ERR_TIMEOUT, "no time at all");
        must_be(heddle_collective_test(made) == HEDDLE_AGAIN, "it goes on");
        timed_out = true;
      }
      must(heddle_collective_wait(made, HEDDLE_FOREVER), "wait");
      part.verify(1);
      must(heddle_collective_free(made), "free");
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

}  // namespace
}  // namespace heddle::test::collective_order_test
