// A rank that dies in the middle of an operation: the others are told, nobody waits for ever, and
// all can leave.
#include <array>
#include <atomic>
#include <optional>

#include "api/test_collective.hpp"

namespace heddle::test::collective_failure_test {
namespace {

constexpr std::uint32_t kRanks = 4;
constexpr std::uint32_t kDead = 1;

// Whether this member cannot end a run that the dead one has not begun.
bool needs_the_dead(Operation operation, std::uint32_t rank) {
  switch (operation) {
    case Operation::broadcast:
    case Operation::scatter:
      return true;  // it is the root
    case Operation::reduce:
    case Operation::gather:
      return false;  // the same: nobody but it waits
    case Operation::scan:
      return rank > kDead;
    case Operation::allgatherv:
    case Operation::alltoallv:
    case Operation::gatherv:
    case Operation::scatterv:
      return listed_bytes(operation, 64, kDead, kDead, rank) > 0;
    case Operation::neighbor_alltoallv: {
      const std::vector<std::uint32_t> sources = neighbors_of(rank, kRanks, false);
      for (std::uint32_t block = 0; block < sources.size(); ++block)
        if (sources[block] == kDead && listed_bytes(operation, 64, 0, kDead, block) > 0) return true;
      return false;
    }
    default:
      return true;
  }
}

// Memory that stays until all ranks are through: others may still write to the buffers of the dead
// rank.
struct Shared {
  std::atomic<std::uint32_t> begun{0};
  std::atomic<std::uint32_t> through{0};
};

// Ranks with contexts that outlive every rank's part.
template <class Body>
void run_with_a_death(const char* transport, Body&& body) {
  const Job job(kRanks, transport);
  Shared shared;
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      std::optional<Part> part;  // the dead one's run may be moved on until its context is gone
      Context context;
      try {
        context = job.join(rank);
        Team world = Team::world(context);
        const Member member{job.handle(), context, world};
        body(member, shared, part);
        shared.through.fetch_add(1);
        // Puts of other ranks to this memory need this rank's progress on a transport without
        // direct memory.
        must_be(within_time([&] { return shared.through.load() == kRanks; },
                            [&] { static_cast<void>(context.progress()); }),
                "all are through in time");
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        shared.through.fetch_add(1);
        static_cast<void>(heddle_inproc_fail(job.handle(), rank));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void die(const Member& member, const Shared& shared) {
  // It does nothing more, except sending the messages that the others need to begin.
  constexpr int kPatience = 2000;
  int turns = 0;
  const auto turn = [&] {
    if (++turns > kPatience) static_cast<void>(heddle_context_progress(member.context.handle()));
  };
  must_be(within_time([&] { return shared.begun.load() == kRanks - 1; }, turn), "the others have begun");
  must(heddle_inproc_fail(member.job, kDead), "fail");
}

void expect_told(Operation operation, const Member& member, Status status) {
  if (needs_the_dead(operation, member.rank())) {
    must_be(status == HEDDLE_ERR_PEER_FAILED,
            std::string(collective::name_of(operation)) + " without rank 1: " + heddle_status_name(status));
    must_be(std::string(heddle_last_error()).find("rank 1") != std::string::npos, heddle_last_error());
  } else {
    must_be(status == HEDDLE_DONE || status == HEDDLE_ERR_PEER_FAILED, heddle_status_name(status));
  }
}

class Death : public testing::TestWithParam<Operation> {};
INSTANTIATE_TEST_SUITE_P(In, Death, testing::ValuesIn(all_operations()),
                         [](const auto& row) { return collective::name_of(row.param); });

constexpr std::array<const char*, 2> kTransports = {"shm", "loopback-messages"};

// The dead one does not begin the run that the others are in.
TEST_P(Death, BeforeItsStartOfAPersistentRun) {
  for (const char* transport : kTransports) {
    run_with_a_death(transport, [&](const Member& member, Shared& shared, std::optional<Part>& kept) {
      Part& part = kept.emplace(member.context, member.world,
                                Part::Asked{GetParam(), 5000, kDead, Memory::own, false, nullptr, 0});
      heddle_collective made{};
      must(part.init(&made), "init");
      for (std::uint64_t run = 1; run <= 3; ++run) {
        part.fill(run);
        must(heddle_collective_start(made), "start");
        must(heddle_collective_wait(made, HEDDLE_FOREVER), "wait");
        part.verify(run);
      }
      if (member.rank() == kDead) return die(member, shared);
      must(heddle_collective_start(made), "the start that the dead one does not make");
      shared.begun.fetch_add(1);
      expect_told(GetParam(), member, heddle_collective_wait(made, HEDDLE_FOREVER));
      // From now on all know of the death without waiting.
      must_be(within_time([&] { return member.context.peer_status(kDead) == HEDDLE_ERR_PEER_FAILED; }), "it is known");
      Status next = heddle_collective_start(made);
      if (next == HEDDLE_POSTED) next = heddle_collective_wait(made, HEDDLE_FOREVER);
      expect_told(GetParam(), member, next);
      must(heddle_collective_free(made), "free");
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

// It has begun, and does not go on.
TEST_P(Death, AfterItsStart) {
  for (const char* transport : kTransports) {
    run_with_a_death(transport, [&](const Member& member, Shared& shared, std::optional<Part>& kept) {
      Part& part = kept.emplace(member.context, member.world,
                                Part::Asked{GetParam(), 100'000, 0, Memory::own, false, nullptr, 0});
      heddle_collective made{};
      must(part.init(&made), "init");
      part.fill(1);
      must(heddle_collective_start(made), "start");
      if (member.rank() == kDead) return die(member, shared);
      shared.begun.fetch_add(1);
      const Status status = heddle_collective_wait(made, HEDDLE_FOREVER);
      must_be(status == HEDDLE_DONE || status == HEDDLE_ERR_PEER_FAILED, heddle_status_name(status));
      if (status == HEDDLE_DONE) part.verify(1);
      must(heddle_collective_free(made), "free");
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

TEST_P(Death, WhileOthersAreInTheBlockingForm) {
  for (const char* transport : kTransports) {
    run_with_a_death(transport, [&](const Member& member, Shared& shared, std::optional<Part>& kept) {
      Part& part = kept.emplace(member.context, member.world,
                                Part::Asked{GetParam(), 64, kDead, Memory::own, false, nullptr, 0});
      part.run(Form::blocking, 3);
      if (member.rank() == kDead) return die(member, shared);
      part.fill(1);
      shared.begun.fetch_add(1);
      expect_told(GetParam(), member, part.blocking());
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

TEST_P(Death, WhileOthersMakeIt) {
  for (const char* transport : kTransports) {
    run_with_a_death(transport, [&](const Member& member, Shared& shared, std::optional<Part>& kept) {
      Part& part = kept.emplace(member.context, member.world,
                                Part::Asked{GetParam(), 64, kDead, Memory::own, false, nullptr, 0});
      if (member.rank() == kDead) return die(member, shared);
      shared.begun.fetch_add(1);
      heddle_collective made{};
      const Status status = part.init(&made);
      must_be(status == HEDDLE_ERR_PEER_FAILED, std::string("init: ") + heddle_status_name(status));
      must_be(made.id == 0, "no handle");
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

TEST(DeathOfAMember, WhileOthersMakeATeamAndOfNoOtherTeam) {
  for (const char* transport : kTransports) {
    run_with_a_death(transport, [&](const Member& member, Shared& shared, std::optional<Part>& kept) {
      const Team without = member.world.split(member.rank() == kDead ? 0 : 1);
      if (member.rank() == kDead) return die(member, shared);
      Part& part = kept.emplace(member.context, without,
                                Part::Asked{Operation::allreduce, 100, 0, Memory::own, false, nullptr, 0});
      heddle_collective made{};
      must(part.init(&made), "init");
      shared.begun.fetch_add(1);
      heddle_team team{};
      const Status status = heddle_team_split(member.world.handle(), 0, 0, &team);
      must_be(status == HEDDLE_ERR_PEER_FAILED, std::string("split: ") + heddle_status_name(status));
      must_be(team.id == 0, "no handle");
      // A team that it was no member of goes on.
      for (std::uint64_t run = 1; run <= 10; ++run) {
        part.fill(run);
        must(heddle_collective_start(made), "start");
        must(heddle_collective_wait(made, HEDDLE_FOREVER), "wait");
        part.verify(run);
      }
      must(heddle_collective_free(made), "free");
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

}  // namespace
}  // namespace heddle::test::collective_failure_test
