#include "diagnosis/owed.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace heddle::diagnosis::owed_test {
namespace {

using tap::Cause;
using Ranks = std::vector<std::uint32_t>;

tap::Awaited thing_of(Cause cause, std::uint32_t rank) {
  tap::Awaited thing;
  thing.cause = cause;
  thing.rank = rank;
  return thing;
}

Debtor debtor(Cause cause, std::uint32_t rank, const Ranks& able = {0, 1, 2, 3}) {
  return debtor_of(thing_of(cause, rank), 1, 4, able);
}

tap::Step step_of(std::uint64_t team, std::uint32_t size, const char* name = "") {
  return {team, 4, size, name, "barrier"};
}

TEST(Owed, EachCauseButTheUnknownOneIsADuty) {
  for (std::uint8_t cause = 1; cause <= static_cast<std::uint8_t>(tap::kLastCause); ++cause) {
    EXPECT_NE(duty_of(static_cast<Cause>(cause)), Duty::unknown) << int{cause};
  }
  EXPECT_EQ(duty_of(Cause::unknown), Duty::unknown);
}

// A long message is received by a look at the worker once its receive is posted; credit comes back
// by receives alone.
TEST(Owed, WhatItTakes) {
  EXPECT_TRUE(is_by_receiving(duty_of(Cause::unreceived)));
  EXPECT_TRUE(is_by_receiving(duty_of(Cause::credit)));
  EXPECT_FALSE(is_by_receiving(duty_of(Cause::tasks)));
  EXPECT_TRUE(is_by_looking(duty_of(Cause::unreceived)));
  EXPECT_TRUE(is_by_looking(duty_of(Cause::room)));
  EXPECT_FALSE(is_by_looking(duty_of(Cause::receive)));
  EXPECT_TRUE(is_standing(duty_of(Cause::lock)));
  EXPECT_FALSE(is_standing(duty_of(Cause::receive)));
}

TEST(Owed, TheRankThatTheThingNames) {
  const Debtor named = debtor(Cause::receive, 3);
  EXPECT_EQ(named.rank, 3U);
  EXPECT_TRUE(named.named);
  EXPECT_FALSE(named.itself);
}

TEST(Owed, ARankThatOwesItToItself) {
  EXPECT_TRUE(debtor(Cause::lock, 1).itself);
  const Debtor threads = debtor(Cause::own, tap::kNobody);
  EXPECT_TRUE(threads.itself);
  EXPECT_EQ(threads.rank, 1U);
}

TEST(Owed, AWordOfItsOwnMemoryIsWrittenByAnother) {
  const Debtor writer = debtor(Cause::word, 1);
  EXPECT_FALSE(writer.itself);
  EXPECT_FALSE(writer.named);
  EXPECT_EQ(writer.rank, tap::kNobody);
}

TEST(Owed, NobodyIsNamedAndOneIsLeft) {
  EXPECT_EQ(debtor(Cause::receive, tap::kNobody).rank, tap::kNobody);
  EXPECT_EQ(debtor(Cause::receive, tap::kNobody, {1, 3}).rank, 3U);
  EXPECT_FALSE(debtor(Cause::receive, tap::kNobody, {1, 3}).named);
  EXPECT_EQ(debtor(Cause::word, 1, {0, 1}).rank, 0U);
  EXPECT_EQ(debtor(Cause::receive, tap::kNobody, {0, 3}).rank, tap::kNobody) << "the waiting rank is not of these";
  EXPECT_EQ(debtor(Cause::receive, 7).rank, tap::kNobody) << "no rank of the job";
}

TEST(Absentees, OfAllRanks) {
  const Absentees absent = absentees_of(step_of(0, 4), Ranks{0, 2}, {{0, 4}, {1, 3}, {2, 4}}, 4);
  EXPECT_EQ(absent.ranks, (Ranks{1, 3}));
  EXPECT_TRUE(absent.whole);
}

TEST(Absentees, WhoIsAtALaterCallHasMadeThisOne) {
  EXPECT_EQ(absentees_of(step_of(0, 4), Ranks{0, 2}, {{1, 5}, {3, 4}}, 4).ranks, Ranks{3});
}

TEST(Absentees, OfATeamWhoseNameListsIt) {
  const Absentees absent = absentees_of(step_of(7, 2, "the team of ranks 1 and 3"), Ranks{1}, {{1, 4}}, 4);
  EXPECT_EQ(absent.ranks, Ranks{3});
  EXPECT_TRUE(absent.whole);
}

// Only ranks that were seen at some call of the team are known to be members.
TEST(Absentees, OfATeamThatNobodyNames) {
  const Absentees seen = absentees_of(step_of(7, 2), Ranks{1}, {{1, 4}, {3, 2}}, 4);
  EXPECT_EQ(seen.ranks, Ranks{3});
  EXPECT_TRUE(seen.whole);
  const Absentees unseen = absentees_of(step_of(7, 2), Ranks{1}, {{1, 4}}, 4);
  EXPECT_TRUE(unseen.ranks.empty());
  EXPECT_FALSE(unseen.whole);
}

TEST(Owed, ALockInWords) {
  EXPECT_EQ(lock_of("rank 2"), "a lock that rank 2 holds");
  EXPECT_EQ(lock_of(""), "a lock");
}

}  // namespace
}  // namespace heddle::diagnosis::owed_test
