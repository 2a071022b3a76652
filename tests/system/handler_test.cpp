// An exception from a handler, a callback or a call on the engine ends its process, in every
// sharing mode; the others get an error.
#include <ostream>
#include <tuple>

#include "launched.hpp"

namespace heddle::tests::handler_test {
namespace {

class Handler : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Handler, WhatItThrowsEndsItsProcessAndTheOthersAreTold) {
  const auto [what, sharing] = GetParam();
  Launched job({HEDDLE_TOOL, "run", "-n", "3", "--grace", "50", "--env", std::string("HEDDLE_SHARING=") + sharing,
                HEDDLE_HANDLER_RANK, what});
  EXPECT_EQ(job.wait(), 128 + SIGABRT) << job.err();
  EXPECT_NE(job.err().find("thrown by a "), std::string::npos) << job.err();
  EXPECT_NE(job.err().find("heddle run: rank 1 (pid "), std::string::npos) << job.err();
  EXPECT_NE(job.err().find("was killed by signal 6 (Aborted"), std::string::npos) << job.err();
  auto survived = job.numbers("survived");
  std::sort(survived.begin(), survived.end());
  EXPECT_EQ(survived, (std::vector<long long>{0, 2})) << job.out() << job.err();
}

INSTANTIATE_TEST_SUITE_P(All, Handler,
                         testing::Combine(testing::Values("network", "user", "callback", "call"),
                                          testing::Values("exclusive", "shared", "offload", "delegate", "auto")),
                         [](const testing::TestParamInfo<std::tuple<const char*, const char*>>& one) {
                           return std::string(std::get<0>(one.param)) + "_" + std::get<1>(one.param);
                         });

}  // namespace
}  // namespace heddle::tests::handler_test
