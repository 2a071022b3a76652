#include "tap/counters.hpp"

#include <gtest/gtest.h>

#include <set>

#include "base/random.hpp"

namespace heddle::tap::counters_test {
namespace {

RankCounters rank_with(std::uint32_t number, std::uint64_t puts) {
  RankCounters rank;
  rank.rank = number;
  rank.pid = 4242;
  rank.transport = "shm";
  rank.waiting = 2;
  rank.longest_wait_ns = 5'000'000'000;
  rank.resident_bytes = 1 << 20;
  WorkerCounters& worker = rank.workers.emplace_back();
  worker.index = 63;
  worker.internal = true;
  worker.mode = "auto";
  worker.stats.puts = puts;
  worker.stats.stored = 7;
  worker.helper_polls = ~std::uint64_t{0};
  return rank;
}

TEST(Counters, AreReadAsTheyWereTold) {
  const std::vector<RankCounters> read = read_counters(to_text(rank_with(3, 12)));
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].rank, 3U);
  EXPECT_EQ(read[0].pid, 4242);
  EXPECT_EQ(read[0].transport, "shm");
  EXPECT_EQ(read[0].waiting, 2U);
  EXPECT_EQ(read[0].longest_wait_ns, 5'000'000'000U);
  EXPECT_EQ(read[0].resident_bytes, 1U << 20);
  ASSERT_EQ(read[0].workers.size(), 1U);
  const WorkerCounters& worker = read[0].workers[0];
  EXPECT_EQ(worker.index, 63U);
  EXPECT_TRUE(worker.internal);
  EXPECT_EQ(worker.mode, "auto");
  EXPECT_EQ(worker.stats.puts, 12U);
  EXPECT_EQ(worker.stats.stored, 7U);
  EXPECT_EQ(worker.helper_polls, ~std::uint64_t{0});
}

TEST(Counters, EachHasAPlaceOfItsOwn) {
  RankCounters rank = rank_with(0, 0);
  WorkerCounters& worker = rank.workers.front();
  std::set<std::string> names;
  std::uint64_t value = 100;
  for (const Count& count : counts()) {
    EXPECT_TRUE(names.insert(count.name).second) << count.name;
    (count.own != nullptr ? worker.*count.own : worker.stats.*count.field) = ++value;
  }
  const std::vector<RankCounters> read = read_counters(to_text(rank));
  value = 100;
  for (const Count& count : counts()) EXPECT_EQ(count.of(read[0].workers[0]), ++value) << count.name;
}

TEST(Counters, OfSeveralRanksAreInRisingOrder) {
  const std::vector<RankCounters> read =
      read_counters(to_text(rank_with(2, 1)) + to_text(rank_with(0, 2)) + to_text(rank_with(1, 3)));
  ASSERT_EQ(read.size(), 3U);
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(read[rank].rank, rank);
  EXPECT_EQ(read[1].workers[0].stats.puts, 3U);
}

TEST(Counters, WhatIsNotUnderstoodIsPassedOver) {
  const std::vector<RankCounters> read = read_counters(
      "nonsense 1 2\n\nworker 0 1 puts 5\nrank 4 pid x colour red waiting 3\nworker 5 0 puts 1\nworker 4 2 puts -1 "
      "gets 9 "
      "speed 12 again\nrank\nworker\nrank many");
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].rank, 4U);
  EXPECT_EQ(read[0].pid, 0);
  EXPECT_EQ(read[0].waiting, 3U);
  ASSERT_EQ(read[0].workers.size(), 1U);
  EXPECT_EQ(read[0].workers[0].stats.puts, 0U);
  EXPECT_EQ(read[0].workers[0].stats.gets, 9U);
}

TEST(Counters, NamesHaveNoCharactersThatATerminalObeysOrALabelEscapes) {
  RankCounters rank = rank_with(0, 1);
  rank.transport = "s\033[m\"\\";
  EXPECT_EQ(read_counters(to_text(rank))[0].transport, "s?[m??");
  EXPECT_EQ(read_counters("rank 0 transport a\033b")[0].transport, "a?b");
  rank.transport.clear();
  EXPECT_EQ(read_counters(to_text(rank))[0].transport, "-");
}

TEST(Counters, AnyBytesAreRead) {
  base::Random random(5);
  const std::string words[] = {"rank ", "worker ", "0 ", "1 ", "puts ", "\n", "mode ", "18446744073709551616 ", "- "};
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += words[random.below(std::size(words))];
    for (const RankCounters& rank : read_counters(text)) EXPECT_LE(rank.rank, 1U);
  }
}

}  // namespace
}  // namespace heddle::tap::counters_test
