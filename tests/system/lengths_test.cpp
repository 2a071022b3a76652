// Tagged messages of any length, in windows and both directions, against a plan that all ranks draw
// from one seed; over each transport and by each way; while ranks are stopped, and when one is
// killed.
#include <sched.h>

#include "base/random.hpp"
#include "launched.hpp"
#include "networks.hpp"

namespace heddle::tests::lengths_test {
namespace {

constexpr int kRanks = 3;

struct Way {
  const char* name;
  std::vector<std::string> options;  // of `heddle run`
  std::size_t most_bytes;
  std::string skipped;
};
[[maybe_unused]] std::ostream& operator<<(std::ostream& out, const Way& one) {
  return out << one.name;
}

std::vector<Way> ways() {
  constexpr std::size_t kMi = std::size_t{1} << 20;
  return {
      {"shm", {}, 8 * kMi, ""},
      {"cells", {"--env", "HEDDLE_SHM_CMA=0"}, 4 * kMi, ""},
      {"unmapped", {"--env", "HEDDLE_SHM_DIRECT=0"}, 4 * kMi, ""},
      {"parts", {"--env", "HEDDLE_TAG_CREDIT_BYTES=64M", "--env", "HEDDLE_TAG_EAGER_BYTES=32M"}, 4 * kMi, ""},
      {"offload", {"--env", "HEDDLE_SHARING=offload", "--env", "HEDDLE_PROGRESS=dedicated:1"}, 4 * kMi, ""},
      {"ofi", ofi().alone(), kMi, ofi().skipped},
      {"ucx", ucx().alone(), kMi, ucx().skipped},
      {"two_nodes", ofi().joined(2), kMi, ofi().skipped},
  };
}

std::vector<std::string> command(const Way& way, std::uint64_t seed, int rounds, long long victim) {
  std::vector<std::string> words = {HEDDLE_TOOL, "run", "-n", std::to_string(kRanks), "--grace", "80"};
  words.insert(words.end(), way.options.begin(), way.options.end());
  words.insert(words.end(), {HEDDLE_LENGTHS_RANK, std::to_string(seed), std::to_string(rounds),
                             std::to_string(way.most_bytes), std::to_string(victim)});
  return words;
}

class Lengths : public testing::TestWithParam<Way> {};

TEST_P(Lengths, ComeAsSent) {
  if (!GetParam().skipped.empty()) GTEST_SKIP() << GetParam().skipped;
  for (std::uint64_t seed = 1; seed <= 3 && !HasFailure(); ++seed) {
    Launched job(command(GetParam(), seed, 40, -1));
    EXPECT_EQ(job.wait(), 0) << "seed " << seed << ": " << job.out() << job.err();
    EXPECT_EQ(job.numbers("done").size(), std::size_t{kRanks}) << "seed " << seed << ": " << job.err();
  }
}

// One is stopped again and again, in the middle of what it sends or receives, and goes on.
TEST_P(Lengths, ComeThoughRanksAreStopped) {
  if (!GetParam().skipped.empty()) GTEST_SKIP() << GetParam().skipped;
  base::Random random(7);
  Launched job(command(GetParam(), 11, 200, -1));
  ASSERT_TRUE(job.await_lines(kRanks)) << job.out() << job.err();
  base::SystemClock clock;
  int stops = 0;
  while (stops < 12) {
    const auto pids = job.numbers("busy" + std::to_string(random.below(kRanks)));
    ASSERT_EQ(pids.size(), 1U) << job.out();
    const auto pid = static_cast<pid_t>(pids[0]);
    if (::kill(pid, SIGSTOP) != 0) break;  // it has ended and was reaped
    const std::uint64_t end = clock.now_ns() + random.below(5'000'000);
    while (clock.now_ns() < end) sched_yield();
    if (::kill(pid, SIGCONT) != 0) break;  // it had ended before the stop, and was reaped since
    ++stops;
    for (std::uint64_t turns = random.below(1000); turns > 0; --turns) sched_yield();
  }
  EXPECT_GT(stops, 0);
  EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
  EXPECT_EQ(job.numbers("done").size(), std::size_t{kRanks}) << job.err();
}

// The others are told, and go on with each other.
TEST_P(Lengths, OfTheLivingComeThoughOneDies) {
  if (!GetParam().skipped.empty()) GTEST_SKIP() << GetParam().skipped;
  for (std::uint64_t seed = 21; seed <= 25 && !HasFailure(); ++seed) {
    Launched job(command(GetParam(), seed, 30, static_cast<long long>(seed % kRanks)));
    const int code = job.wait();
    EXPECT_NE(code, -1) << "seed " << seed << ": somebody hangs: " << job.out() << job.err();
    if (std::string(GetParam().name) == "ucx" && ended_by_ucx(job.err())) continue;
    EXPECT_EQ(job.err().find("wrong:"), std::string::npos) << "seed " << seed << ": " << job.err();
    EXPECT_EQ(code, 128 + SIGKILL) << "seed " << seed << ": " << job.err();
    EXPECT_EQ(job.numbers("done").size(), kRanks - 1U) << "seed " << seed << ": " << job.out() << job.err();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Lengths, testing::ValuesIn(ways()),
                         [](const testing::TestParamInfo<Way>& one) { return one.param.name; });

}  // namespace
}  // namespace heddle::tests::lengths_test
