// A rank that waits in the kernel and makes no calls is reached for the first time by all that
// others do: puts, gets, atomics, messages.
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

class Unattended : public testing::TestWithParam<Way> {};

TEST_P(Unattended, IsReached) {
  std::vector<std::string> words = {HEDDLE_TOOL, "run", "-n", "2", "--timeout", "80"};
  for (const char* variable : GetParam().variables) words.insert(words.end(), {"--env", variable});
  words.emplace_back(HEDDLE_UNATTENDED_RANK);
  Launched job(words);
  EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
  EXPECT_EQ(job.numbers("left").size(), 2U) << job.out() << job.err();
}

INSTANTIATE_TEST_SUITE_P(
    each, Unattended,
    testing::Values(Way{"tcp", {"HEDDLE_TRANSPORTS=ucx", "HEDDLE_UCX_TLS=tcp"}},
                    Way{"posix", {"HEDDLE_TRANSPORTS=ucx", "HEDDLE_UCX_TLS=posix,self"}},
                    Way{"sysv", {"HEDDLE_TRANSPORTS=ucx", "HEDDLE_UCX_TLS=sysv,self"}},
                    Way{"joined", {"HEDDLE_TRANSPORTS=shm,ucx", "HEDDLE_NODE_RANKS=1", "HEDDLE_UCX_TLS=tcp"}}),
    [](const testing::TestParamInfo<Way>& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace heddle::tests
