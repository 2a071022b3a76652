// A rank waits in the kernel and makes no calls. All operations of others reach it as the first
// contact: puts, gets, messages, and atomics if the transport has them.
#include "launched.hpp"
#include "networks.hpp"

namespace heddle::tests::unattended_test {
namespace {

struct Way {
  const char* name;
  std::vector<std::string> options;
  std::string skipped;
};
[[maybe_unused]] std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.name;
}

class Unattended : public testing::TestWithParam<Way> {};

TEST_P(Unattended, IsReached) {
  if (!GetParam().skipped.empty()) GTEST_SKIP() << GetParam().skipped;
  std::vector<std::string> words = {HEDDLE_TOOL, "run", "-n", "2", "--timeout", "80"};
  words.insert(words.end(), GetParam().options.begin(), GetParam().options.end());
  words.emplace_back(HEDDLE_UNATTENDED_RANK);
  if (std::string(GetParam().name).find("ofi") != std::string::npos) words.emplace_back("plain");
  Launched job(words);
  EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
  EXPECT_EQ(job.numbers("left").size(), 2U) << job.out() << job.err();
}

std::vector<Way> ways() {
  const auto shared_memory = [](const char* name) {
    Network network = ucx();
    network.variables = {std::string("HEDDLE_UCX_TLS=") + name + ",self"};
    return Way{name, network.alone(), network.skipped};
  };
  return {{"tcp", ucx().alone(), ucx().skipped},
          shared_memory("posix"),
          shared_memory("sysv"),
          {"joined", ucx().joined(1), ucx().skipped},
          {"ofi", ofi().alone(), ofi().skipped},
          {"joined_ofi", ofi().joined(1), ofi().skipped}};
}
INSTANTIATE_TEST_SUITE_P(each, Unattended, testing::ValuesIn(ways()),
                         [](const testing::TestParamInfo<Way>& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace heddle::tests::unattended_test
