// Jobs of many ranks, and how their ranks meet: the cost, and the errors when one of them, or the
// launcher, is stopped, dies or never comes (decision 0045).
#include <sys/resource.h>

#include "launched.hpp"

namespace heddle::tests::ranks_test {
namespace {

// Peers are met at the first access, whatever the size of the job.
constexpr const char* kLate = "HEDDLE_MEET_RANKS=0";

std::vector<std::string> words(int ranks, std::vector<std::string> mode, const char* variable = nullptr) {
  std::vector<std::string> all = {HEDDLE_TOOL, "run", "-n", std::to_string(ranks), "--timeout", "80"};
  if (variable != nullptr) all.insert(all.end(), {"--env", variable});
  all.emplace_back(HEDDLE_RANKS_RANK);
  all.insert(all.end(), mode.begin(), mode.end());
  return all;
}

void expect_all(const Launched& job, const char* word, long long ranks) {
  auto left = job.numbers(word);
  std::sort(left.begin(), left.end());
  ASSERT_EQ(left.size(), static_cast<std::size_t>(ranks)) << job.out() << job.err();
  for (long long rank = 0; rank < ranks; ++rank) EXPECT_EQ(left[static_cast<std::size_t>(rank)], rank);
}

long long said(const Launched& job, const char* word) {
  const auto numbers = job.numbers(word);
  EXPECT_EQ(numbers.size(), 1U) << word << ": " << job.out();
  return numbers.empty() ? -1 : numbers[0];
}

struct Costs {
  // how often all ranks slept for the region exchange, and for the first puts to two peers
  long long exchange = 0;
  long long puts = 0;
  // how many peers they met by these
  long long peers = 0;
  long long more = 0;
};

Costs whole(int ranks, const char* variable = nullptr) {
  Launched job(words(ranks, {"whole"}, variable));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
  expect_all(job, "left", ranks);
  const Costs costs{said(job, "exchange"), said(job, "puts"), said(job, "peers"), said(job, "more")};
  const auto each = [&](long long all) { return static_cast<double>(all) / ranks; };
  std::printf("%d ranks, each: %.1f sleeps for the exchange, %.1f for the first puts to two peers; met %.1f, %.1f\n",
              ranks, each(costs.exchange), each(costs.puts), each(costs.peers), each(costs.more));
  return costs;
}

// Bounds on counts, since other load on the machine changes times. A rank that asked the launcher
// now and then slept a dozen times for each of its peers.
TEST(Ranks, SixtyFourMeetAtTheExchange) {
  const Costs costs = whole(64);
  EXPECT_GE(costs.peers, 64 * 62) << "all but rank 0, which they know already";
  EXPECT_LT(costs.exchange, 3 * 64 * 63) << "for each contact";
  EXPECT_EQ(costs.more, 0) << "all have met";
  EXPECT_LT(costs.puts, 64) << "stores";
}

TEST(Ranks, TwoHundredFiftySixMeetWhomTheyAccess) {
  const Costs costs = whole(256);
  EXPECT_EQ(costs.peers, 0);
  EXPECT_GE(costs.more, 2 * 256 - 3) << "two a rank, if it did not know rank 0 already";
  EXPECT_LE(costs.more, 2 * 256);
  // A wait of seconds takes a hundred naps, each longer than the one before.
  EXPECT_LT(costs.exchange, 150 * 256);
  EXPECT_LT(costs.puts, 300 * 256);
}

TEST(Ranks, TwoHundredFiftySixThatAllMeet) {
  const Costs costs = whole(256, "HEDDLE_MEET_RANKS=256");
  EXPECT_GE(costs.peers, 256 * 254);
  EXPECT_LT(costs.exchange, 4LL * 256 * 255) << "for each contact";
  EXPECT_EQ(costs.more, 0) << "all have met";
  EXPECT_LT(costs.puts, 256) << "stores";
}

// The launcher needs six descriptors a rank.
bool enough_descriptors(rlim_t wanted) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max >= wanted;
}

TEST(SlowRanks, ThousandFromStartToEnd) {
  if (!enough_descriptors(6 * 1024 + 128)) GTEST_SKIP() << "raise the hard limit of descriptors (ulimit -Hn)";
  const std::uint64_t start = base::SystemClock().now_ns();
  const Costs costs = whole(1024);
  std::printf("1024 ranks: %.1f s\n", static_cast<double>(base::SystemClock().now_ns() - start) / 1e9);
  EXPECT_EQ(costs.peers, 0);
  EXPECT_LE(costs.more, 2 * 1024);
}

TEST(Ranks, ThreadsMeetOnePeerAtOnce) {
  Launched job(words(4, {"threads"}, kLate));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
  expect_all(job, "left", 4);
}

TEST(Ranks, APeerThatDiesBetweenExchangeAndFirstAccess) {
  Launched job({HEDDLE_TOOL, "run", "-n", "3", "--grace", "80", "--env", kLate, HEDDLE_RANKS_RANK, "between"});
  EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.err();
  EXPECT_EQ(job.numbers("survived").size(), 2U) << job.out() << job.err();
}

class Absent : public testing::TestWithParam<std::pair<const char*, int>> {};

// It is waited for, for its card, and then it is killed, or ends, or stays for ever.
TEST_P(Absent, ARankThatNeverJoins) {
  const auto [how, code] = GetParam();
  Launched job({HEDDLE_TOOL, "run", "-n", "3", "--grace", "80", HEDDLE_RANKS_RANK, "absent", how});
  EXPECT_EQ(job.wait(), code) << job.err();
  EXPECT_EQ(job.numbers("survived").size(), 2U) << job.out() << job.err();
  EXPECT_NE(job.err().find("rank "), std::string::npos) << job.err();
}
INSTANTIATE_TEST_SUITE_P(Ranks, Absent,
                         testing::Values(std::pair("killed", 128 + SIGKILL), std::pair("ended", 0),
                                         std::pair("stays", 5)),
                         [](const auto& one) { return std::string(one.param.first); });

// One rank has other settings than the rest: no rank joins, and each is told.
void expect_no_rank_joins(const char* all, const char* of_one, const std::string& told) {
  const std::string script =
      std::string("test $HEDDLE_LOCAL_RANK = 1 && export ") + of_one + "; exec " + HEDDLE_RANKS_RANK + " settings";
  Launched job({HEDDLE_TOOL, "run", "-n", "3", "--grace", "80", "--env", all, "--env", "HEDDLE_NODE_RANKS=1", "/bin/sh",
                "-c", script});
  EXPECT_EQ(job.wait(), 3) << job.err();
  EXPECT_EQ(job.numbers("joined").size(), 0U) << job.out();
  for (const std::string& line : {"rank 1 has " + told, std::string("rank 0 has ")}) {
    EXPECT_NE(job.err().find(line), std::string::npos) << line << ": " << job.err();
  }
}
TEST(Ranks, OtherTransportsInOneRank) {
  expect_no_rank_joins("HEDDLE_TRANSPORTS=shm,ofi", "HEDDLE_TRANSPORT=ucx HEDDLE_TRANSPORTS=",
                       "HEDDLE_TRANSPORT=ucx and HEDDLE_NODE_RANKS=1, this rank HEDDLE_TRANSPORTS=shm,ofi");
  expect_no_rank_joins("HEDDLE_TRANSPORT=shm", "HEDDLE_TRANSPORT=loopback",
                       "HEDDLE_TRANSPORT=loopback and HEDDLE_NODE_RANKS=1, this rank HEDDLE_TRANSPORT=shm");
}

TEST(Ranks, TheLauncherIsStoppedWhileRanksMeet) {
  Launched job(words(4, {"stopped"}, kLate));
  ASSERT_TRUE(job.await_lines(4)) << job.err();
  job.signal(SIGSTOP);
  EXPECT_TRUE(job.await_lines(8)) << "all have tried, and wait: " << job.err();
  ::usleep(50'000);
  EXPECT_TRUE(job.numbers("left").empty()) << "nobody can have met anybody";
  job.signal(SIGCONT);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
  expect_all(job, "left", 4);
}

// All meet all, and it is stopped at any time of that.
TEST(Ranks, TheLauncherIsStoppedAgainAndAgain) {
  Launched job(words(40, {"whole"}));
  for (int i = 0; i < 12; ++i) {
    job.signal(SIGSTOP);
    ::usleep(30'000);
    job.signal(SIGCONT);
    ::usleep(20'000);
  }
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
  expect_all(job, "left", 40);
}

TEST(Ranks, TheLauncherIsKilledWhileRanksMeet) {
  Launched job(words(4, {"stopped"}, kLate));
  ASSERT_TRUE(job.await_lines(4)) << job.err();
  job.signal(SIGSTOP);
  ::usleep(300'000);
  job.signal(SIGKILL);
  // it waits until all who hold the output have ended: the ranks, too
  EXPECT_EQ(job.wait(), 1000 + SIGKILL);
  EXPECT_TRUE(job.numbers("left").empty());
}

}  // namespace
}  // namespace heddle::tests::ranks_test
