// How the members of a team tell each other their records: where that lies, and whom they meet.
#include "collective/assembly.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <bit>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "collective/reduction.hpp"
#include "collective/team.hpp"

namespace heddle::collective::assembly_test {
namespace {

// A piece is taken for a team of at most so many members, and prepared before the team is known.
TEST(Assembly, LiesInItsPieceWhateverTheTeam) {
  for (std::uint32_t members = 1; members <= 200; members += members < 70 ? 1 : 31) {
    for (std::uint32_t member = 0; member < members; ++member)
      ASSERT_TRUE(Assembly::fits(members, member)) << member << " of " << members;
    ASSERT_LE(Assembly::bytes(members), Assembly::bytes(members + 1)) << "so it has room for a smaller one";
  }
}

// Each member has a thread and a context.
void run_job(std::uint32_t members, const std::function<void(worker::Context&)>& part) {
  bootstrap::inproc::ThreadJob job(members);
  std::barrier<> meet(members);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < members; ++rank) {
    threads.emplace_back([&, rank] {
      auto joined = worker::Context::join({{"inproc", &job, rank}, "shm", "none"});
      EXPECT_TRUE(joined.ok()) << base::last_message();
      if (joined) part(**joined);
      meet.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Assembly, LiesInItsPieceInTheLargestTeam) {
  for (const std::uint32_t member : {0U, 1U, 31U, 511U, 1023U}) ASSERT_TRUE(Assembly::fits(1024, member)) << member;
}

base::Status sum_of_ones(Team& team, std::uint64_t* sum) {
  const std::uint64_t one = 1;
  Call call;
  call.operation = Operation::allreduce;
  call.send = &one;
  call.receive = sum;
  call.bytes = sizeof one;
  call.element_bytes = sizeof one;
  call.reduction = kernel(HEDDLE_UINT64, HEDDLE_SUM);
  return team.run(call);
}

// Meeting a rank costs a round trip to the launcher and two mappings. The first collectives of a
// job of many ranks meet few: those at distances that are powers of two, and at seven in each step
// of the barrier.
TEST(Assembly, FirstCollectivesOfALargeTeamMeetFew) {
  for (const std::uint32_t members : {16U, base::few_if_sanitized(20U, 64U), base::few_if_sanitized(33U, 256U)}) {
    run_job(members, [members](worker::Context& context) {
      auto team = Team::world(context);
      ASSERT_TRUE(team.ok()) << base::last_message();
      const std::size_t made = (*team)->commons().met();
      const auto steps = static_cast<std::size_t>(std::bit_width(members - 1));
      if (members > 16) {
        EXPECT_LE(made, 2 * steps) << "of " << members;
      }
      EXPECT_EQ((*team)->run({}), HEDDLE_DONE) << base::last_message();  // a barrier
      std::uint64_t sum = 0;
      EXPECT_EQ(sum_of_ones(**team, &sum), HEDDLE_DONE) << base::last_message();
      EXPECT_EQ(sum, members);
      EXPECT_LE((*team)->commons().met(), 4 * steps) << "of " << members;
      // A split exchanges records and verdicts. In its records each member says the same to all.
      auto half = (*team)->split(context.rank() % 2, 0);
      ASSERT_TRUE(half.ok()) << base::last_message();
      EXPECT_EQ((*half)->size(), (members + 1 - context.rank() % 2) / 2);
      EXPECT_EQ((*half)->rank(), context.rank() / 2);
      EXPECT_EQ((*half)->close(), HEDDLE_DONE);
      EXPECT_EQ((*team)->close(), HEDDLE_DONE);
    });
  }
}

// Gives five blocks to the next rank: more than one record lists.
base::Status pass_on(Team& team, std::vector<std::uint32_t>* got) {
  constexpr std::uint32_t kBlocks = 5;
  const std::uint32_t next = (team.rank() + 1) % team.size();
  const std::uint32_t before = (team.rank() + team.size() - 1) % team.size();
  std::vector<std::uint32_t> mine(kBlocks);
  got->assign(kBlocks, 0);
  Exchange lists;
  for (std::uint32_t i = 0; i < kBlocks; ++i) {
    mine[i] = 10 * team.rank() + i;
    ListedBlock block;
    block.bytes = sizeof mine[i];
    block.here = i * block.bytes;
    block.peer = next;
    lists.given.push_back(block);
    block.peer = before;
    lists.taken.push_back(block);
  }
  lay_out(team.rank(), &lists);
  Call call;
  call.operation = Operation::alltoallv;
  call.send = mine.data();
  call.receive = got->data();
  call.lists = &lists;
  return team.run(call);
}

// Blocks that members list are told to each member apart, after all have heard that such rounds
// follow; a member that does something else takes part in them.
TEST(Assembly, RoundsApartFollowWhereAMemberHasThem) {
  run_job(20, [](worker::Context& context) {
    auto team = Team::world(context);
    ASSERT_TRUE(team.ok()) << base::last_message();
    const std::size_t made = (*team)->commons().met();
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<std::uint32_t> got;
      ASSERT_EQ(pass_on(**team, &got), HEDDLE_DONE) << base::last_message();
      const std::uint32_t before = 10 * ((context.rank() + context.size() - 1) % context.size());
      EXPECT_EQ(got, (std::vector<std::uint32_t>{before, before + 1, before + 2, before + 3, before + 4}));
      if (turn == 0) {
        EXPECT_GT((*team)->commons().met(), made) << "the grid is met when it is needed";
      }
      EXPECT_EQ((*team)->run({}), HEDDLE_DONE) << base::last_message();
      std::uint64_t sum = 0;
      EXPECT_EQ(sum_of_ones(**team, &sum), HEDDLE_DONE) << base::last_message();
    }
    std::uint64_t word = 0;
    std::vector<std::uint32_t> got;
    Call other;
    other.operation = Operation::broadcast;
    other.receive = &word;
    other.bytes = sizeof word;
    EXPECT_EQ(context.rank() % 3 == 0 ? (*team)->run(other) : pass_on(**team, &got), HEDDLE_ERR_ARGUMENT);
    EXPECT_NE(std::string_view(base::last_message()).find("the same calls in the same order"), std::string_view::npos)
        << base::last_message();
    EXPECT_EQ((*team)->close(), HEDDLE_DONE);
  });
}

}  // namespace
}  // namespace heddle::collective::assembly_test
