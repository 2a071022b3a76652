// The address space of a receiver ends while messages that nobody takes arrive: no crash and no
// hang; each is taken later, or was dropped and counted; and the job goes on.
#include <ostream>

#include "launched.hpp"

namespace heddle::tests::exhausted_system_test {
namespace {

struct Case {
  const char* sharing;
  const char* progress;
};
[[maybe_unused]] std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.sharing << " " << one.progress;
}

class Exhausted : public testing::TestWithParam<Case> {};

TEST_P(Exhausted, AReceiverWithoutMemoryGoesOn) {
  Launched job({HEDDLE_TOOL, "run", "-n", "2", "--env", std::string("HEDDLE_SHARING=") + GetParam().sharing, "--env",
                std::string("HEDDLE_PROGRESS=") + GetParam().progress, "--env", "HEDDLE_TAG_CREDIT_BYTES=1G", "--env",
                "HEDDLE_AM_USER_BYTES=1G", HEDDLE_EXHAUSTED_RANK});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.numbers("left").size(), 2U) << job.out() << job.err();
  const auto dropped = job.numbers("dropped");
  ASSERT_EQ(dropped.size(), 1U) << job.out();
  EXPECT_GT(dropped[0], 0) << "there was memory enough, so nothing was tested";
  EXPECT_EQ(job.numbers("received").size(), 1U) << job.out();
}
INSTANTIATE_TEST_SUITE_P(Modes, Exhausted,
                         testing::Values(Case{"exclusive", "none"}, Case{"exclusive", "adaptive"},
                                         Case{"shared", "none"}, Case{"offload", "none"},
                                         Case{"delegate", "dedicated:1"}, Case{"auto", "none"}),
                         [](const testing::TestParamInfo<Case>& about) {
                           std::string name = std::string(about.param.sharing) + "_" + about.param.progress;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

}  // namespace
}  // namespace heddle::tests::exhausted_system_test
