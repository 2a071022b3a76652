#include "observe/live/table.hpp"

#include <gtest/gtest.h>

namespace heddle::observe::live::table_test {
namespace {

using tap::RankCounters;

RankCounters rank_with(std::uint32_t number, std::uint64_t puts, std::uint64_t polls = 0, std::uint64_t helpers = 0) {
  RankCounters rank;
  rank.rank = number;
  rank.pid = 100 + number;
  rank.transport = "shm";
  rank.resident_bytes = 2'000'000;
  rank.workers.emplace_back();
  rank.workers[0].stats.puts = puts;
  rank.workers[0].stats.polls = polls;
  rank.workers[0].helper_polls = helpers;
  return rank;
}

TEST(Answered, NamesWhoIsMissing) {
  const std::vector<RankCounters> none;
  const std::vector<RankCounters> one{rank_with(0, 0)};
  const std::vector<RankCounters> two{rank_with(0, 0), rank_with(2, 0)};
  EXPECT_EQ(answered_text(one, 1), "1 rank has answered");
  EXPECT_EQ(answered_text(one, 0), "1 rank has answered");
  EXPECT_EQ(answered_text(one, 2), "1 of 2 ranks has answered; missing: rank 1");
  EXPECT_EQ(answered_text(two, 3), "2 of 3 ranks have answered; missing: rank 1");
  EXPECT_EQ(answered_text(two, 6), "2 of 6 ranks have answered; missing: ranks 1, 3-5");
  EXPECT_EQ(answered_text(none, 2), "0 of 2 ranks have answered; missing: ranks 0, 1");
}

TEST(Amount, HasThreeDigits) {
  EXPECT_EQ(amount(0), "0");
  EXPECT_EQ(amount(7), "7");
  EXPECT_EQ(amount(0.5), "0.50");
  EXPECT_EQ(amount(12.34), "12.3");
  EXPECT_EQ(amount(998.7), "999");
  EXPECT_EQ(amount(999.6), "1.00k");
  EXPECT_EQ(amount(1254), "1.25k");
  EXPECT_EQ(amount(37'100'000), "37.1M");
  EXPECT_EQ(amount(250e9), "250G");
  EXPECT_EQ(amount(5e18), "5000P");
}

TEST(Rows, HaveWhatWasDoneInASecond) {
  const std::vector<RankCounters> before{rank_with(0, 100), rank_with(1, 50)};
  const std::vector<RankCounters> now{rank_with(0, 300), rank_with(1, 50)};
  const std::vector<Row> rows = rows_of(before, now, 2);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].name, "0");
  EXPECT_DOUBLE_EQ(rows[0].puts, 100);
  EXPECT_DOUBLE_EQ(rows[1].puts, 0);
  EXPECT_DOUBLE_EQ(sum_of(rows).puts, 100);
  EXPECT_EQ(sum_of(rows).resident_bytes, 4'000'000U);
}

TEST(Rows, AddUpTheWorkersOfARank) {
  RankCounters rank = rank_with(0, 10);
  rank.workers.push_back(rank.workers[0]);
  rank.workers[1].index = 1;
  EXPECT_DOUBLE_EQ(rows_of({}, std::vector{rank}, 1)[0].puts, 20);
}

TEST(Rows, AWorkerThatWasNotThereBeforeCountsFromItsOpening) {
  std::vector<RankCounters> before{rank_with(0, 100)};
  const std::vector<RankCounters> now{rank_with(0, 30)};
  EXPECT_DOUBLE_EQ(rows_of(before, now, 1)[0].puts, 30) << "another one has its number";
  before[0].pid = 5;
  before[0].workers[0].stats.puts = 20;
  EXPECT_DOUBLE_EQ(rows_of(before, now, 1)[0].puts, 30) << "another process has the rank";
}

TEST(Table, HasALineForEachRankAndOneForAll) {
  const std::vector<RankCounters> now{rank_with(0, 1500, 200, 50), rank_with(1, 500)};
  const std::vector<std::string> lines = table_of(rows_of({}, now, 1), 10);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_NE(lines[0].find("puts/s"), std::string::npos);
  EXPECT_NE(lines[1].find("all"), std::string::npos);
  EXPECT_NE(lines[1].find("2.00k"), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("1.50k"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("25%"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("2.00M"), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find(" -"), std::string::npos) << lines[3];
  for (const std::string& line : lines) EXPECT_EQ(line.size(), lines[0].size());
}

TEST(Table, HasNoMoreLinesThanThereIsRoomFor) {
  std::vector<RankCounters> now;
  for (std::uint32_t rank = 0; rank < 40; ++rank) now.push_back(rank_with(rank, 1));
  const std::vector<std::string> lines = table_of(rows_of({}, now, 1), 10);
  ASSERT_EQ(lines.size(), 10U);
  EXPECT_EQ(lines.back(), "and 33 more ranks");
  EXPECT_EQ(table_of(rows_of({}, now, 1), 42).size(), 42U);
  EXPECT_EQ(table_of(rows_of({}, now, 1), 0).size(), 4U);
}

TEST(Table, OfNoRanksHasASum) {
  EXPECT_EQ(table_of({}, 10).size(), 2U);
}

}  // namespace
}  // namespace heddle::observe::live::table_test
