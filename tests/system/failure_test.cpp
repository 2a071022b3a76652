// A rank is killed in the midst of each kind of operation: the others are told in time, by that
// operation, and go on.
#include <ostream>

#include "launched.hpp"

namespace heddle::tests::failure_test {
namespace {

struct Case {
  const char* operation;
  const char* path;
  std::vector<const char*> variables;
};
[[maybe_unused]] std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.operation << " " << one.path;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* operation : {"put-allocated",
                                "put-allocated-large",
                                "get-allocated",
                                "get-allocated-large",
                                "fetch-allocated",
                                "put",
                                "put-large",
                                "get",
                                "get-large",
                                "atomic",
                                "fetch",
                                "put-strided",
                                "get-strided",
                                "put-list",
                                "get-list",
                                "put-signal",
                                "am",
                                "am-large",
                                "flush",
                                "barrier"}) {
    all.push_back({operation, "default", {}});
  }
  // Where the kernel forbids its copy, the dead peer was to move the bytes.
  for (const char* operation : {"put-large", "get-large", "put-list", "put-signal", "flush"}) {
    all.push_back({operation, "bounce", {"HEDDLE_SHM_CMA=0", "HEDDLE_SHM_BOUNCE=pool=256K"}});
  }
  // Where bounce space is refused, the kernel copies from and to a process that is going away.
  for (const char* operation : {"put-large", "get-large"}) {
    all.push_back({operation, "kernel", {"HEDDLE_SHM_BOUNCE=pool=0"}});
  }
  return all;
}

class Failure : public testing::TestWithParam<Case> {};

TEST_P(Failure, ThePeerIsKilledInTheMidst) {
  std::vector<std::string> words = {HEDDLE_TOOL, "run", "-n", "3", "--grace", "80"};
  for (const char* variable : GetParam().variables) words.insert(words.end(), {"--env", variable});
  words.insert(words.end(), {HEDDLE_FAILURE_RANK, GetParam().operation});
  Launched job(words);
  EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.err();
  ASSERT_EQ(job.numbers("pid").size(), 1U) << job.out() << job.err();
  EXPECT_EQ(job.err(),
            "heddle run: rank 1 (pid " + std::to_string(job.numbers("pid")[0]) + ") was killed by signal 9 (Killed)\n");
  const auto told = job.numbers("told");
  EXPECT_EQ(told.size(), 2U) << job.out();
  // The promise is one second. A loaded machine can only show that the ranks get the error; a rank
  // gives up after a minute.
  for (const long long ns : told) std::printf("told after %.1f ms\n", static_cast<double>(ns) / 1e6);
  auto survived = job.numbers("survived");
  std::sort(survived.begin(), survived.end());
  EXPECT_EQ(survived, (std::vector<long long>{0, 2})) << job.out();
}

INSTANTIATE_TEST_SUITE_P(All, Failure, testing::ValuesIn(cases()), [](const testing::TestParamInfo<Case>& one) {
  std::string name = std::string(one.param.operation) + "_" + one.param.path;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace heddle::tests::failure_test
