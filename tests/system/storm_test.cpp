// Ranks are killed from outside, at any instruction, while all send, put, get and update of every kind: the survivors are told, go on with
// each other, and leave; the launcher names a death and leaves nothing behind.
#include <sched.h>

#include <cerrno>
#include <ostream>
#include <random>

#include "base/random.hpp"
#include "launched.hpp"

namespace heddle::tests {
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
  for (const char* sharing : {"exclusive", "shared", "offload", "delegate", "mutex"}) {
    for (const char* progress : {"none", "dedicated:1", "idle", "adaptive"}) all.push_back({sharing, progress});
  }
  return all;
}

// Two of four ranks, at a moment that nobody has chosen; the seed is printed, though the moment will not come again.
void storm(const Case& given) {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  base::Random random(seed);
  const auto first = static_cast<long long>(random.below(4));
  const auto second = (first + 1 + static_cast<long long>(random.below(3))) % 4;
  const bool shared = std::string(given.sharing) != "exclusive";
  Launched job({HEDDLE_TOOL, "run", "-n", "4", "--grace", "80", "--env", std::string("HEDDLE_SHARING=") + given.sharing,
                "--env", std::string("HEDDLE_PROGRESS=") + given.progress, HEDDLE_STORM_RANK,
                std::to_string(first) + "," + std::to_string(second), shared ? "shared" : "exclusive"});
  ASSERT_TRUE(job.await_lines(4)) << job.out() << job.err();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 4; ++rank) {
    const auto pid = job.numbers("busy" + std::to_string(rank));
    ASSERT_EQ(pid.size(), 1U) << job.out() << job.err();
    pids.push_back(static_cast<pid_t>(pid[0]));
  }
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
                                         Case{"delegate", "dedicated:1"}, Case{"mutex", "idle"}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Slow, Storm, testing::ValuesIn(every_mode_and_policy()), case_name);

}  // namespace
}  // namespace heddle::tests
