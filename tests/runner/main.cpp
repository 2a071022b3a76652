// The main function of a test program, which holds the tests of a whole room:
// `PROGRAM --only=FILE[,FILE…]` runs those that are written in these files, named without folder
// and ending, which is how ctest runs each file by itself. All flags of GoogleTest hold as well.
// TEST_PROCESSES=N: several at once (shards.hpp).
#include <fnmatch.h>

#include <cstdio>
#include <filesystem>
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

// The tests of the files that pass the filter, as a filter: whole suites by one pattern each, so
// that what GoogleTest prints of it stays short. Stores in `found` whether the files have any test.
std::string filter_of_files(const std::set<std::string>& files, const Filter& filter, bool& found) {
  std::string all;
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  for (int s = 0; s < tests.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *tests.GetTestSuite(s);
    std::string single;
    bool whole = true;
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string name = std::string(suite.name()) + "." + test.name();
      const bool here = files.count(std::filesystem::path(test.file()).stem().string()) != 0;
      found = found || here;
      if (here && filter.passes(name)) {
        single += name + ":";
      } else {
        whole = false;
      }
    }
    all += whole ? std::string(suite.name()) + ".*:" : single;
  }
  return all;
}

// Takes `--only` out of the arguments. Returns whether the program has what it asks for.
bool choose_files(int& argc, char** argv) {
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
  if (files.empty()) return true;
  bool found = false;
  const std::string chosen = filter_of_files(files, Filter(GTEST_FLAG_GET(filter)), found);
  GTEST_FLAG_SET(filter, chosen.empty() ? "-*" : chosen);
  return found;
}

}  // namespace
}  // namespace heddle::tests::runner

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!heddle::tests::runner::choose_files(argc, argv)) {
    if (HEDDLE_TESTS_LEFT_OUT) {
      // ctest takes the first word for a skipped test.
      std::printf("skipped: HEDDLE_TEST_LABELS has left out the tests of these files\n");
    } else {
      std::fprintf(stderr, "%s: no test is written in the files that --only names\n", argv[0]);
    }
    return 1;
  }
  if (argc > 1) {
    std::fprintf(stderr, "%s: unknown argument %s; --only=FILE[,FILE...] and GoogleTest's flags are known\n", argv[0],
                 argv[1]);
    return 2;
  }
  const int processes = heddle::tests::runner::processes_asked_for();
  return processes > 1 ? heddle::tests::runner::run_in_processes(processes) : RUN_ALL_TESTS();
}
