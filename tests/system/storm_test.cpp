// Ranks are killed from outside, at any instruction, while all send, put, get and update of every
// kind: the survivors are told, go on with each other, and leave; the launcher names a death and
// leaves nothing behind.
#include <sched.h>

#include <cerrno>
#include <random>

#include "base/random.hpp"
#include "launched.hpp"
#include "networks.hpp"

namespace heddle::tests::storm_test {
namespace {

struct Case {
  const char* sharing;
  const char* progress;
};
[[maybe_unused]] std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.sharing << " " << one.progress;
}
std::string case_name(const testing::TestParamInfo<Case>& about) {
  std::string name = std::string(about.param.sharing) + "_" + about.param.progress;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

std::vector<Case> every_mode_and_policy() {
  std::vector<Case> all;
  for (const char* sharing : {"exclusive", "shared", "offload", "delegate", "auto"}) {
    for (const char* progress : {"none", "dedicated:1", "idle", "adaptive"}) all.push_back({sharing, progress});
  }
  return all;
}

// The seed of one run is printed, though the moment of a death will not come again.
base::Random seeded() {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  return base::Random(seed);
}

// The ranks' processes, once all are busy.
std::vector<pid_t> busy(Launched& job, int ranks) {
  EXPECT_TRUE(job.await_lines(static_cast<std::size_t>(ranks))) << job.out() << job.err();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto pid = job.numbers("busy" + std::to_string(rank));
    EXPECT_EQ(pid.size(), 1U) << job.out() << job.err();
    if (pid.size() != 1) return {};
    pids.push_back(static_cast<pid_t>(pid[0]));
  }
  return pids;
}

// Two of four ranks, at a moment that nobody has chosen.
void storm(const Case& given) {
  base::Random random = seeded();
  const auto first = static_cast<long long>(random.below(4));
  const auto second = (first + 1 + static_cast<long long>(random.below(3))) % 4;
  const bool shared = std::string(given.sharing) != "exclusive";
  Launched job({HEDDLE_TOOL, "run", "-n", "4", "--grace", "80", "--env", std::string("HEDDLE_SHARING=") + given.sharing,
                "--env", std::string("HEDDLE_PROGRESS=") + given.progress, HEDDLE_STORM_RANK,
                std::to_string(first) + "," + std::to_string(second), shared ? "shared" : "exclusive", "2", "300",
                "all"});
  const std::vector<pid_t> pids = busy(job, 4);
  ASSERT_EQ(pids.size(), 4U);
  for (const long long victim : {first, second}) {
    for (std::uint64_t turns = random.below(2000); turns > 0; --turns) sched_yield();
    ASSERT_EQ(::kill(pids[static_cast<std::size_t>(victim)], SIGKILL), 0);
  }
  EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.err();
  EXPECT_NE(job.err().find(") was killed by signal 9 (Killed)\n"), std::string::npos) << job.err();
  EXPECT_EQ(job.err().find("heddle run:"), job.err().rfind("heddle run:")) << job.err();
  EXPECT_EQ(job.err().find("wrong:"), std::string::npos) << job.err();
  auto survived = job.numbers("survived");
  std::sort(survived.begin(), survived.end());
  std::vector<long long> expected;
  for (long long rank = 0; rank < 4; ++rank) {
    if (rank != first && rank != second) expected.push_back(rank);
  }
  EXPECT_EQ(survived, expected) << job.out() << job.err();
  for (const pid_t pid : pids) EXPECT_TRUE(::kill(pid, 0) != 0 && errno == ESRCH) << pid << " is still there";
}

class Storm : public testing::TestWithParam<Case> {};
TEST_P(Storm, KilledRanksTakeNobodyWithThem) {
  storm(GetParam());
}
// One of each mode and of each policy.
INSTANTIATE_TEST_SUITE_P(Quick, Storm,
                         testing::Values(Case{"exclusive", "adaptive"}, Case{"shared", "none"}, Case{"offload", "none"},
                                         Case{"delegate", "dedicated:1"}, Case{"auto", "idle"}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Slow, Storm, testing::ValuesIn(every_mode_and_policy()), case_name);

// ---- over a network, from the first contact on --------------------------------------------------

struct Deaths {
  const char* sharing;
  const char* progress;
  const char* mix;
  std::uint32_t kills;
  std::uint64_t band_us;  // the time in which a rank is killed, from when all are busy
};
[[maybe_unused]] std::ostream& operator<<(std::ostream& out, const Deaths& one) {
  return out << one.sharing << " " << one.progress << " " << one.mix;
}
std::string deaths_name(const testing::TestParamInfo<Deaths>& about) {
  const Deaths& given = about.param;
  std::string name = std::string(given.sharing) + "_" + given.progress + "_" + given.mix + "_" +
                     std::to_string(given.band_us / 1000) + "ms";
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

// True: UCX has ended somebody.
bool kill_one(const Network& network, const Deaths& given, base::Random& random) {
  constexpr int kRanks = 3;
  const auto victim = static_cast<long long>(random.below(kRanks));
  const bool own_workers = std::string(given.sharing) == "exclusive" || random.below(2) == 0;
  std::vector<std::string> words = {HEDDLE_TOOL, "run",
                                    "-n",        std::to_string(kRanks),
                                    "--grace",   "80",
                                    "--env",     std::string("HEDDLE_SHARING=") + given.sharing,
                                    "--env",     std::string("HEDDLE_PROGRESS=") + given.progress};
  const std::vector<std::string> over = network.alone();
  words.insert(words.end(), over.begin(), over.end());
  words.insert(words.end(),
               {HEDDLE_STORM_RANK, std::to_string(victim), own_workers ? "exclusive" : "shared", "3", "1", given.mix});
  Launched job(words);
  const std::vector<pid_t> pids = busy(job, kRanks);
  if (pids.size() != kRanks) return false;
  const pid_t pid = pids[static_cast<std::size_t>(victim)];
  // One that is stopped first leaves what is sent to it half done.
  EXPECT_EQ(::kill(pid, random.below(2) == 0 ? SIGSTOP : 0), 0);
  const std::uint64_t moment = base::SystemClock().now_ns() + random.below(given.band_us) * 1000;
  while (base::SystemClock().now_ns() < moment) sched_yield();
  EXPECT_EQ(::kill(pid, SIGKILL), 0);
  const int code = job.wait();
  EXPECT_NE(code, -1) << "somebody hangs: " << job.out() << job.err();
  EXPECT_EQ(job.err().find("never ends"), std::string::npos) << job.err();
  if (std::string(network.name) == "ucx" && ended_by_ucx(job.err())) return true;
  EXPECT_EQ(code, 128 + SIGKILL) << job.err();
  EXPECT_EQ(job.err().find("wrong:"), std::string::npos) << job.err();
  EXPECT_EQ(job.numbers("survived").size(), kRanks - 1U) << job.out() << job.err();
  return false;
}

void deaths_over(const Network& network, const Deaths& given) {
  if (!network.skipped.empty()) GTEST_SKIP() << network.skipped;
  base::Random random = seeded();
  std::uint32_t by_ucx = 0;
  for (std::uint32_t i = 0; i < given.kills && !testing::Test::HasFailure(); ++i)
    by_ucx += kill_one(network, given, random) ? 1 : 0;
  std::printf("%u kills, of which UCX ended a survivor in %u\n", given.kills, by_ucx);
  EXPECT_LT(by_ucx, given.kills) << "in none of them was seen how the survivors end";
}

class UcxStorm : public testing::TestWithParam<Deaths> {};
TEST_P(UcxStorm, EveryOperationEnds) {
  deaths_over(ucx(), GetParam());
}
class OfiStorm : public testing::TestWithParam<Deaths> {};
TEST_P(OfiStorm, EveryOperationEnds) {
  deaths_over(ofi(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(Quick, UcxStorm,
                         testing::Values(Deaths{"exclusive", "none", "atomics", 6, 50'000},
                                         Deaths{"shared", "adaptive", "all", 3, 50'000},
                                         Deaths{"offload", "dedicated:1", "atomics", 3, 50'000}),
                         deaths_name);
INSTANTIATE_TEST_SUITE_P(Quick, OfiStorm,
                         testing::Values(Deaths{"exclusive", "none", "all", 4, 50'000},
                                         Deaths{"shared", "adaptive", "all", 3, 50'000},
                                         Deaths{"offload", "dedicated:1", "atomics", 2, 50'000}),
                         deaths_name);
std::vector<Deaths> all_deaths(const std::vector<const char*>& mixes) {
  std::vector<Deaths> all;
  for (const Case& one : every_mode_and_policy()) {
    for (const char* mix : mixes) {
      all.push_back({one.sharing, one.progress, mix, 15, 50'000});
      all.push_back({one.sharing, one.progress, mix, 5, 1'000'000});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Slow, UcxStorm, testing::ValuesIn(all_deaths({"all", "atomics"})), deaths_name);
INSTANTIATE_TEST_SUITE_P(Slow, OfiStorm, testing::ValuesIn(all_deaths({"all"})), deaths_name);

}  // namespace
}  // namespace heddle::tests::storm_test
