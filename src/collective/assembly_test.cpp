// How the members of a team tell each other their records: where that lies, and whom they meet.
#include "collective/assembly.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
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

// Meeting a rank costs a round trip to the launcher and two mappings.
TEST(Assembly, MembersOfALargeTeamMeetFew) {
  const std::uint32_t members = base::few_if_sanitized(40U, 64U);
  const std::uint32_t root = members == 64 ? 8 : 7;
  run_job(members, [root](worker::Context& context) {
    auto team = Team::world(context);
    ASSERT_TRUE(team.ok()) << base::last_message();
    EXPECT_LE((*team)->commons().met(), 2 * root) << "of " << context.size();
    // The split exchanges records and verdicts. In its records each member says the same to all.
    auto half = (*team)->split(context.rank() % 2, 0);
    ASSERT_TRUE(half.ok()) << base::last_message();
    EXPECT_EQ((*half)->size(), context.size() / 2);
    EXPECT_EQ((*half)->rank(), context.rank() / 2);
    EXPECT_EQ((*half)->close(), HEDDLE_DONE);
    EXPECT_EQ((*team)->close(), HEDDLE_DONE);
  });
}

}  // namespace
}  // namespace heddle::collective::assembly_test
