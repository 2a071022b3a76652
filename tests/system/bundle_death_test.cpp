// A rank is killed while short messages to it leave by bundles (decision 0038): nothing hangs, the
// sender gets the error, the messages to others arrive.
#include <algorithm>
#include <tuple>

#include "launched.hpp"
#include "networks.hpp"

namespace heddle::tests::bundle_death_test {
namespace {

struct Way {
  const char* name;
  std::vector<std::string> options;
  std::string skipped;
};
[[maybe_unused]] std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.name;
}

class BundleDeath : public testing::TestWithParam<Way> {};

TEST_P(BundleDeath, TheReceiverIsKilledInTheMidst) {
  if (!GetParam().skipped.empty()) GTEST_SKIP() << GetParam().skipped;
  std::vector<std::string> words = {HEDDLE_TOOL, "run", "-n", "3", "--grace", "50", "--env", "HEDDLE_SHARING=offload"};
  words.insert(words.end(), GetParam().options.begin(), GetParam().options.end());
  words.emplace_back(HEDDLE_BUNDLE_DEATH_RANK);
  Launched job(words);
  EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.out() << job.err();
  EXPECT_EQ(job.numbers("pid").size(), 1U) << job.out() << job.err();
  EXPECT_EQ(job.numbers("told").size(), 2U) << job.out() << job.err();
  auto survived = job.numbers("survived");
  std::sort(survived.begin(), survived.end());
  EXPECT_EQ(survived, (std::vector<long long>{0, 1})) << job.out() << job.err();
}

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const auto& [network, alone, small, joint] :
       {std::tuple{ucx(), "ucx", "ucx_small_window", "joint"}, {ofi(), "ofi", "ofi_small_window", "joint_ofi"}}) {
    Network little = network;
    little.variables.insert(little.variables.end(), {"HEDDLE_NETWORK_WINDOW_BYTES=24K", "HEDDLE_WORKER_OPERATIONS=48"});
    all.push_back({alone, network.alone(), network.skipped});
    all.push_back({small, little.alone(), network.skipped});
    all.push_back({joint, network.joined(2), network.skipped});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(each, BundleDeath, testing::ValuesIn(ways()),
                         [](const testing::TestParamInfo<Way>& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace heddle::tests::bundle_death_test
