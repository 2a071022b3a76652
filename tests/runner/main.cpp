// The main function of a test program, which holds the tests of a whole room:
// `PROGRAM --only=FILE[,FILE…]` runs those that are written in these files, named without folder
// and ending, which is how ctest runs each file by itself. All flags of GoogleTest hold as well.
// TEST_PROCESSES=N: several at once (shards.hpp). TEST_SHARE=K/N: of tests with parameters the K-th
// of N shares of their cases. Each share has cases of each test and of each parameter, all shares
// together have all of them: what several builds run, each with a share, is looked at once.
#include <fnmatch.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "shards.hpp"

namespace heddle::tests::runner {
namespace {

constexpr std::string_view kOnly = "--only=";
constexpr const char* kShare = "TEST_SHARE";

// One of `of` shares, from 0. All tests are in the only share.
struct Share {
  int index = 0;
  int of = 1;

  // A case of a test that has parameters: the number of the test in its suite, that of the case.
  [[nodiscard]] bool has(int test, int number) const { return (test + number) % of == index; }
};

// TEST_SHARE=K/N, 1 <= K <= N <= 16. Returns false where it is something else.
bool share_asked_for(Share& share) {
  const char* text = std::getenv(kShare);
  if (text == nullptr || *text == '\0') return true;
  int kth = 0;
  int used = 0;
  if (std::sscanf(text, "%d/%d%n", &kth, &share.of, &used) != 2 || text[used] != '\0') return false;
  share.index = kth - 1;
  return share.of >= 1 && share.of <= 16 && kth >= 1 && kth <= share.of;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

bool matches_one(const std::string& name, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  }
  return false;
}

// A filter of GoogleTest: patterns, and after the first '-' those of tests that are left out.
class Filter {
 public:
  explicit Filter(const std::string& text) {
    const std::size_t dash = text.find('-');
    wanted_ = split(text.substr(0, dash), ':');
    if (wanted_.empty()) wanted_.emplace_back("*");
    if (dash != std::string::npos) left_out_ = split(text.substr(dash + 1), ':');
  }
  bool passes(const std::string& name) const { return matches_one(name, wanted_) && !matches_one(name, left_out_); }

 private:
  std::vector<std::string> wanted_;
  std::vector<std::string> left_out_;
};

// Numbers the tests with parameters of one suite, and their cases.
class Cases {
 public:
  explicit Cases(Share share) : share_(share) {}
  // Whether the share has the test. Asked for each test of the suite, in order.
  bool has(const testing::TestInfo& test) {
    if (test.value_param() == nullptr) return true;
    const std::string_view name = test.name();
    const std::string_view body = name.substr(0, name.find('/'));
    const auto [place, fresh] = tests_.try_emplace(std::string(body), Numbers{static_cast<int>(tests_.size()), 0});
    return share_.has(place->second.test, place->second.cases++);
  }

 private:
  struct Numbers {
    int test;
    int cases;
  };
  Share share_;
  std::map<std::string, Numbers> tests_;
};

// The tests of the files that pass the filter and are in the share, as a filter: whole suites by
// one pattern each, so that what GoogleTest prints of it stays short. No files: those of all.
// Stores in `found` whether the files have any test.
std::string filter_of(const std::set<std::string>& files, const Filter& filter, Share share, bool& found) {
  std::string all;
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  for (int s = 0; s < tests.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *tests.GetTestSuite(s);
    std::string single;
    bool whole = true;
    Cases cases(share);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string name = std::string(suite.name()) + "." + test.name();
      const bool mine = cases.has(test);
      const bool here = files.empty() || files.count(std::filesystem::path(test.file()).stem().string()) != 0;
      found = found || here;
      if (mine && here && filter.passes(name)) {
        single += name + ":";
      } else {
        whole = false;
      }
    }
    all += whole ? std::string(suite.name()) + ".*:" : single;
  }
  return all;
}

enum class Choice { made, none_there, bad_share };

// Takes `--only` out of the arguments, and makes GoogleTest run what that and TEST_SHARE ask for.
Choice choose(int& argc, char** argv) {
  std::set<std::string> files;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.substr(0, kOnly.size()) != kOnly) {
      argv[kept++] = argv[i];
      continue;
    }
    for (const std::string& file : split(std::string(argument.substr(kOnly.size())), ',')) files.insert(file);
  }
  argc = kept;
  Share share;
  if (!share_asked_for(share)) return Choice::bad_share;
  if (files.empty() && share.of == 1) return Choice::made;
  bool found = false;
  const std::string chosen = filter_of(files, Filter(GTEST_FLAG_GET(filter)), share, found);
  GTEST_FLAG_SET(filter, chosen.empty() ? "-*" : chosen);
  return found ? Choice::made : Choice::none_there;
}

}  // namespace
}  // namespace heddle::tests::runner

int main(int argc, char** argv) {
  using heddle::tests::runner::Choice;
  testing::InitGoogleTest(&argc, argv);
  switch (heddle::tests::runner::choose(argc, argv)) {
    case Choice::made:
      break;
    case Choice::none_there:
      if (HEDDLE_TESTS_LEFT_OUT) {
        // ctest takes the first word for a skipped test.
        std::printf("skipped: HEDDLE_TEST_LABELS has left out the tests of these files\n");
      } else {
        std::fprintf(stderr, "%s: no test is written in the files that --only names\n", argv[0]);
      }
      return 1;
    case Choice::bad_share:
      std::fprintf(stderr, "%s: TEST_SHARE is %s; it must be K/N, the K-th of N shares, such as 1/2\n", argv[0],
                   std::getenv(heddle::tests::runner::kShare));
      return 2;
  }
  if (argc > 1) {
    std::fprintf(stderr, "%s: unknown argument %s; --only=FILE[,FILE...] and GoogleTest's flags are known\n", argv[0],
                 argv[1]);
    return 2;
  }
  const int processes = heddle::tests::runner::processes_asked_for();
  return processes > 1 ? heddle::tests::runner::run_in_processes(processes) : RUN_ALL_TESTS();
}
