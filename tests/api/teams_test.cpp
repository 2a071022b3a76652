// Teams: their members and order, many at once, with threads of their own; refused calls.
#include <array>
#include <numeric>

#include "api/test_collective.hpp"
#include "base/fence.hpp"

namespace heddle::test::teams_test {
namespace {

// The members of the team by their numbers in the job, as an operation of the team itself sees
// them.
std::vector<std::uint32_t> members_of(const Member& member, const Team& team) {
  std::vector<std::uint32_t> all(team.size());
  const std::uint32_t me = member.rank();
  must(team.allgather<std::uint32_t>(std::span(&me, 1), all.data()), "allgather of a team");
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    must_be(team.translate(i, member.world) == all[i], "translate gives who is a member");
    must_be(member.world.translate(all[i], team) == i, "translate gives where");
  }
  must_be(all[team.rank()] == me, "this rank stands where the team says");
  return all;
}

void expect_members(const Member& member, const Team& team, const std::vector<std::uint32_t>& expected) {
  must_be(members_of(member, team) == expected, "the members are those that were named");
}

std::vector<std::uint32_t> numbers(std::uint32_t begin, std::uint32_t end, std::uint32_t step = 1) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = begin; i < end; i += step) all.push_back(i);
  return all;
}

class Teams : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, Teams, testing::Values("shm", "loopback", "loopback-messages"), [](const auto& row) {
  std::string name = row.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(Teams, TheWorldIsTheJob) {
  for (const std::uint32_t ranks : {1U, 2U, 5U}) {
    run_members(ranks, GetParam(), [&](const Member& member) {
      must_be(member.world.size() == ranks && member.world.rank() == member.rank(), "numbers of the job");
      expect_members(member, member.world, numbers(0, ranks));
      const Team another = Team::world(member.context);
      expect_members(member, another, numbers(0, ranks));
    });
  }
}

TEST_P(Teams, AreSplitByColourAndOrderedByKey) {
  run_members(6, GetParam(), [](const Member& member) {
    const std::uint32_t me = member.rank();
    const Team parity = member.world.split(me % 2);
    expect_members(member, parity, numbers(me % 2, 6, 2));
    const Team half = member.world.split(me / 3, me);
    expect_members(member, half, numbers(me / 3 * 3, me / 3 * 3 + 3));
    const Team reversed = member.world.split(7, -std::int64_t{me});
    expect_members(member, reversed, {5, 4, 3, 2, 1, 0});
    // The same key: in the order of the parent.
    const Team again = reversed.split(0, 1);
    expect_members(member, again, {5, 4, 3, 2, 1, 0});
    const Team alone = member.world.split(me);
    expect_members(member, alone, {me});
    const Team some = member.world.split(me < 4 ? std::optional<std::uint32_t>(9) : std::nullopt);
    must_be(static_cast<bool>(some) == (me < 4), "no colour: no team");
    if (some) expect_members(member, some, {0, 1, 2, 3});
  });
}

TEST_P(Teams, AreSubsetsInTheirOrder) {
  run_members(6, GetParam(), [](const Member& member) {
    const std::uint32_t me = member.rank();
    const Team even = member.world.strided(0, 2, 3);
    must_be(static_cast<bool>(even) == (me % 2 == 0), "strided: only those");
    if (even) expect_members(member, even, {0, 2, 4});
    const Team back = member.world.strided(5, -1, 6);
    expect_members(member, back, {5, 4, 3, 2, 1, 0});
    const Team last = back.strided(0, -3, 1);
    must_be(static_cast<bool>(last) == (me == 5), "numbers are the parent's");
    const std::array<std::uint32_t, 3> named = {4, 0, 3};
    const Team subset = member.world.subset(named);
    must_be(static_cast<bool>(subset) == (me == 4 || me == 0 || me == 3), "subset: only those");
    if (subset) {
      expect_members(member, subset, {4, 0, 3});
      must_be(member.world.translate(1, subset) == HEDDLE_NO_RANK, "who is no member has no number");
      for (const Operation operation : all_operations()) {
        Part part(member.context, subset, {operation, 100, 1, Memory::own, false, nullptr, 0});
        part.run(Form::persistent, 2);
        part.run(Form::blocking, 2);
      }
    }
  });
}

TEST_P(Teams, ManyAreOpenAtOnce) {
  run_members(3, GetParam(), [](const Member& member) {
    std::vector<Team> teams;
    for (int i = 0; i < 64; ++i) teams.push_back(i % 2 == 0 ? member.world.split(0) : Team::world(member.context));
    std::vector<heddle_collective> started(teams.size());
    std::vector<std::uint64_t> words(teams.size());
    for (std::size_t i = 0; i < teams.size(); ++i) {
      words[i] = member.rank() == 1 ? 1000 + i : 0;
      must(heddle_broadcast_start(teams[i].handle(), &words[i], sizeof words[i], 1, &started[i]), "start");
    }
    // In another order at each rank.
    for (std::size_t i = 0; i < teams.size(); ++i) {
      const std::size_t at = (i + member.rank() * 20) % teams.size();
      must(heddle_collective_wait(started[at], HEDDLE_FOREVER), "wait");
      must_be(words[at] == 1000 + at, "each team has its own");
    }
    for (Team& team : teams) {
      must(heddle_team_free(team.release()), "free");
    }
    // And the room of those that were freed is there again.
    for (int i = 0; i < 200; ++i) {
      const Team team = member.world.split(0);
      must(team.barrier(), "barrier");
    }
  });
}

// Each thread of a rank with a team of its own.
TEST_P(Teams, AreIndependentInDifferentThreads) {
  constexpr std::uint32_t kThreads = 3;
  // There each rank has mappings of its own of the memory that all share. ThreadSanitizer knows
  // memory by its address. So it does not see that a peer has told one thread of this rank, through
  // its mapping, that another thread has finished with a place that both write to.
  if (base::kThreadSanitizer && std::string(GetParam()) == "shm")
    GTEST_SKIP() << "skipped: ThreadSanitizer sees no order through two mappings of one memory";
  run_members(3, GetParam(), [](const Member& member) {
    std::vector<Team> teams;
    for (std::uint32_t i = 0; i < kThreads; ++i)
      teams.push_back(member.world.split(0, i == 1 ? -std::int64_t{member.rank()} : 0));
    std::array<std::string, kThreads> wrong;
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        try {
          const Operation operation = i == 0   ? Operation::allreduce
                                      : i == 1 ? Operation::broadcast
                                               : Operation::alltoall;
          Part part(member.context, teams[i], {operation, 333, 2, Memory::own, false, nullptr, 0});
          part.run(Form::persistent, 50);
          part.run(Form::blocking, 50);
          part.run(Form::nonblocking, 10);
        } catch (const std::exception& error) {
          wrong[i] = error.what();
          static_cast<void>(heddle_inproc_fail(member.job, member.rank()));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& each : wrong) must_be(each.empty(), each);
  });
}

// ---- what is refused ----------------------------------------------------------------------------

void expect_error(Status status, Status expected, const char* words) {
  EXPECT_EQ(status, expected) << heddle_status_name(status) << ": " << heddle_last_error();
  EXPECT_NE(std::string(heddle_last_error()).find(words), std::string::npos) << heddle_last_error();
}

TEST(TeamArguments, AreNamedWithTheirValues) {
  const Context context = Context::join();
  const Team world = Team::world(context);
  heddle_team made{77};
  const std::array<std::uint32_t, 2> beyond = {0, 1};
  const std::array<std::uint32_t, 2> twice = {0, 0};
  expect_error(heddle_team_world({}, &made), HEDDLE_ERR_HANDLE, "null handle");
  expect_error(heddle_team_world(context.handle(), nullptr), HEDDLE_ERR_ARGUMENT, "team is null");
  expect_error(heddle_team_split({context.handle().id}, 0, 0, &made), HEDDLE_ERR_HANDLE, "team 0x");
  expect_error(heddle_team_split(world.handle(), 0, 0, nullptr), HEDDLE_ERR_ARGUMENT, "team is null");
  expect_error(heddle_team_strided(world.handle(), 1, 1, 1, &made), HEDDLE_ERR_RANK,
               "start 1: the team has members 0-0");
  expect_error(heddle_team_strided(world.handle(), 0, 1, 2, &made), HEDDLE_ERR_RANK, "size 2 end at member 1");
  expect_error(heddle_team_strided(world.handle(), 0, -3, 2, &made), HEDDLE_ERR_RANK, "end at member -3");
  expect_error(heddle_team_strided(world.handle(), 0, INT32_MAX, UINT32_MAX, &made), HEDDLE_ERR_RANK, "end at member");
  expect_error(heddle_team_strided(world.handle(), 0, 0, 2, &made), HEDDLE_ERR_ARGUMENT, "stride 0 with size 2");
  expect_error(heddle_team_strided(world.handle(), 0, 1, 0, &made), HEDDLE_ERR_ARGUMENT, "size 0");
  expect_error(heddle_team_subset(world.handle(), beyond.data(), 2, &made), HEDDLE_ERR_RANK, "rank 1: the team has");
  expect_error(heddle_team_subset(world.handle(), twice.data(), 2, &made), HEDDLE_ERR_ARGUMENT,
               "rank 0 is named twice");
  expect_error(heddle_team_subset(world.handle(), twice.data(), 0, &made), HEDDLE_ERR_ARGUMENT, "count 0");
  expect_error(heddle_team_subset(world.handle(), nullptr, 1, &made), HEDDLE_ERR_ARGUMENT, "ranks is null");
  EXPECT_EQ(made.id, 0U) << "what has failed gives the null handle";
  expect_error(heddle_team_rank(world.handle(), nullptr), HEDDLE_ERR_ARGUMENT, "rank is null");
  expect_error(heddle_team_size(world.handle(), nullptr), HEDDLE_ERR_ARGUMENT, "size is null");
  std::uint32_t number = 0;
  expect_error(heddle_team_translate(world.handle(), 1, world.handle(), &number), HEDDLE_ERR_RANK, "members 0-0");
  expect_error(heddle_team_translate(world.handle(), 0, world.handle(), nullptr), HEDDLE_ERR_ARGUMENT,
               "to_rank is null");
  const Context other = Context::join();
  const Team foreign = Team::world(other);
  expect_error(heddle_team_translate(world.handle(), 0, foreign.handle(), &number), HEDDLE_ERR_ARGUMENT,
               "different contexts");
  Team freed = world.split(0);
  const heddle_team handle = freed.handle();
  EXPECT_EQ(heddle_team_free(freed.release()), HEDDLE_DONE);
  expect_error(heddle_team_free(handle), HEDDLE_ERR_HANDLE, "is not open");
  expect_error(heddle_barrier(handle), HEDDLE_ERR_HANDLE, "is not open");
}

TEST(TeamArguments, ATeamWithOpenOperationsIsNotFreed) {
  const Context context = Context::join();
  Team team = Team::world(context);
  heddle_collective barrier{};
  ASSERT_EQ(heddle_barrier_init(team.handle(), nullptr, &barrier), HEDDLE_DONE) << heddle_last_error();
  EXPECT_EQ(heddle_team_free(team.handle()), HEDDLE_ERR_STATE);
  EXPECT_EQ(heddle_collective_free(barrier), HEDDLE_DONE);
  EXPECT_EQ(heddle_team_free(team.release()), HEDDLE_DONE) << heddle_last_error();
}

}  // namespace
}  // namespace heddle::test::teams_test
