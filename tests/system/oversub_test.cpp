// 8 processes of 8 threads on the cores there are, in every sharing mode and under every progress
// policy: they finish, and nothing is lost. How long it takes is the bench's matter (`heddle bench
// oversubscription`); the times here only end what hangs.
#include "launched.hpp"

namespace heddle::tests::oversub_test {
namespace {

struct Case {
  const char* sharing;
  const char* progress;
  const char* transport;
};

std::string case_name(const testing::TestParamInfo<Case>& about) {
  std::string name = std::string(about.param.sharing) + "_" + about.param.progress + "_" + about.param.transport;
  std::replace_if(name.begin(), name.end(), [](char c) { return c == ':' || c == '+'; }, '_');
  return name;
}

class Oversubscribed : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Modes, Oversubscribed,
                         testing::Values(Case{"exclusive", "none", "shm"}, Case{"shared", "none", "shm"},
                                         Case{"offload", "none", "shm"}, Case{"delegate", "none", "shm"},
                                         Case{"auto", "none", "shm"}, Case{"auto", "dedicated:1", "shm"},
                                         Case{"exclusive", "adaptive", "shm"}, Case{"shared", "idle", "shm"},
                                         Case{"delegate", "dedicated:1", "shm"},
                                         Case{"exclusive", "none", "fault+shm"}),
                         case_name);

TEST_P(Oversubscribed, EightProcessesOfEightThreadsFinish) {
  const Case given = GetParam();
  const std::string workers = std::string(given.sharing) == "exclusive" ? "8" : "1";
  Launched job({HEDDLE_TOOL, "run", "-n", "8", "--timeout", "80", "--env",
                std::string("HEDDLE_SHARING=") + given.sharing, "--env",
                std::string("HEDDLE_PROGRESS=") + given.progress, "--env",
                std::string("HEDDLE_TRANSPORT=") + given.transport, HEDDLE_OVERSUB_RANK, workers, "8", "40"});
  ASSERT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
  auto left = job.numbers("left");
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<long long>{0, 1, 2, 3, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace heddle::tests::oversub_test
