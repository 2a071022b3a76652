// Two ranks exchange a long tagged message, and one is killed in each stage of it: the message
// reports the death to the other, nothing is written or read afterwards, and nothing hangs.
#include <ostream>
#include <string_view>

#include "heddle/heddle.h"
#include "launched.hpp"

namespace heddle::tests::rendezvous_test {
namespace {

struct Case {
  const char* victim;
  const char* stage;
  int steps;
  const char* path;
  std::vector<const char*> variables;
  bool may_be_done;  // the message may have come before
  bool must_be_done;
};
[[maybe_unused]] std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.victim << " " << one.stage << " " << one.steps << " " << one.path;
}

std::vector<Case> cases() {
  struct Path {
    const char* name;
    std::vector<const char*> variables;
    bool fetches;  // the receiver can copy alone
  };
  const std::vector<Path> paths = {
      {"offered", {}, true},
      {"cells", {"HEDDLE_SHM_CMA=0"}, false},
      {"parts", {"HEDDLE_TAG_CREDIT_BYTES=64M", "HEDDLE_TAG_EAGER_BYTES=32M"}, false},
  };
  std::vector<Case> all;
  for (const Path& path : paths) {
    for (const char* victim : {"sender", "receiver"}) {
      const bool sender = victim[0] == 's';
      const auto add = [&](const char* stage, int steps, bool may = false, bool must = false) {
        all.push_back({victim, stage, steps, path.name, path.variables, may, must});
      };
      add("shown", 0);
      add("sent", 0);
      for (const int steps : {1, 2, 5}) add("fetched", steps);
      for (const int steps : {1, 10, 60}) {
        add("pushed", steps);
        add("both", steps, true);
      }
      // A receiver that has everything may die before its sender is told.
      if (path.fetches && !sender) add("done", 0, true);
    }
  }
  return all;
}

class Rendezvous : public testing::TestWithParam<Case> {};

TEST_P(Rendezvous, TheOtherIsKilledInAnyStage) {
  std::vector<std::string> words = {HEDDLE_TOOL, "run", "-n", "2", "--grace", "80"};
  for (const char* variable : GetParam().variables) words.insert(words.end(), {"--env", variable});
  words.insert(words.end(),
               {HEDDLE_RENDEZVOUS_RANK, GetParam().victim, GetParam().stage, std::to_string(GetParam().steps)});
  Launched job(words);
  EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.err();
  EXPECT_EQ(job.numbers("pid").size(), 1U) << job.out() << job.err();
  EXPECT_EQ(job.numbers("survived"), std::vector<long long>{0}) << job.out() << job.err();
  const auto told = job.numbers("status");
  ASSERT_EQ(told.size(), 1U) << job.out() << job.err();
  const bool right =
      told[0] == HEDDLE_DONE ? GetParam().may_be_done : told[0] == HEDDLE_ERR_PEER_FAILED && !GetParam().must_be_done;
  EXPECT_TRUE(right) << "it is told " << told[0];
}

INSTANTIATE_TEST_SUITE_P(All, Rendezvous, testing::ValuesIn(cases()), [](const testing::TestParamInfo<Case>& one) {
  return std::string(one.param.path) + "_" + one.param.victim + "_" + one.param.stage + "_" +
         std::to_string(one.param.steps);
});

}  // namespace
}  // namespace heddle::tests::rendezvous_test
