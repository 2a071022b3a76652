// A rank is killed while short messages to it leave by bundles (decision 0038): nothing hangs, who
// sends is told, the messages to others arrive.
#include <algorithm>
#include <ostream>

#include "launched.hpp"

namespace heddle::tests {
namespace {

struct Way {
  const char* name;
  std::vector<const char*> variables;
};
[[maybe_unused]] std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.name;
}

class BundleDeath : public testing::TestWithParam<Way> {};

TEST_P(BundleDeath, TheReceiverIsKilledInTheMidst) {
  std::vector<std::string> words = {
      HEDDLE_TOOL, "run", "-n", "3", "--grace", "50", "--env", "HEDDLE_SHARING=offload", "--env", "HEDDLE_UCX_TLS=tcp"};
  for (const char* variable : GetParam().variables) words.insert(words.end(), {"--env", variable});
  words.emplace_back(HEDDLE_BUNDLE_DEATH_RANK);
  Launched job(words);
  EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.out() << job.err();
  EXPECT_EQ(job.numbers("pid").size(), 1U) << job.out() << job.err();
  EXPECT_EQ(job.numbers("told").size(), 2U) << job.out() << job.err();
  auto survived = job.numbers("survived");
  std::sort(survived.begin(), survived.end());
  EXPECT_EQ(survived, (std::vector<long long>{0, 1})) << job.out() << job.err();
}

INSTANTIATE_TEST_SUITE_P(each, BundleDeath,
                         testing::Values(Way{"ucx", {"HEDDLE_TRANSPORTS=ucx"}},
                                         Way{"ucx_small_window",
                                             {"HEDDLE_TRANSPORTS=ucx", "HEDDLE_UCX_WINDOW_BYTES=24K",
                                              "HEDDLE_WORKER_OPERATIONS=48"}},
                                         Way{"joint", {"HEDDLE_TRANSPORTS=shm,ucx", "HEDDLE_NODE_RANKS=2"}}),
                         [](const testing::TestParamInfo<Way>& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace heddle::tests
