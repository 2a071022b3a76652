#include "harness/fairness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace heddle::bench::harness {
namespace {

std::map<std::string, double> figures(const std::vector<FairnessRun>& runs) {
  const auto names = fairness_figures();
  const auto values = fairness_values(runs);
  EXPECT_EQ(names.size(), values.size());
  std::map<std::string, double> out;
  for (std::size_t i = 0; i < std::min(names.size(), values.size()); ++i) out[names[i]] = values[i];
  EXPECT_EQ(out.size(), names.size()) << "names are different";
  return out;
}

TEST(Fairness, EvenSharesDeviateByNothing) {
  const auto all = figures(std::vector<FairnessRun>(5, {10, 10, 10, 10, 10, 10, 10, 10, 0}));
  EXPECT_EQ(all.at("deviation"), 0);
  EXPECT_EQ(all.at("between_runs"), 0);
  EXPECT_EQ(all.at("thread_7"), 10);
  EXPECT_EQ(all.at("library"), 0);
}

TEST(Fairness, OneThreadThatTakesAll) {
  const auto all = figures({{80, 0, 0, 0, 0, 0, 0, 0, 0}, {80, 0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 80, 0}});
  EXPECT_NEAR(all.at("deviation"), 26.4575, 1e-3) << "sqrt((70² + 7 · 10²) / 8), in every run";
  EXPECT_NEAR(all.at("thread_0"), 160.0 / 3, 1e-9);
  EXPECT_NEAR(all.at("between_runs"), 2 * 37.7124 / 8, 1e-3) << "of threads 0 and 7, none of the others";
}

TEST(Fairness, RunsAreSortedByThreadZero) {
  std::vector<FairnessRun> runs;
  for (const std::uint64_t count : {40U, 0U, 10U, 30U, 20U}) runs.push_back({count, 1, 1, 1, 1, 1, 1, 1, 5});
  const auto all = figures(runs);
  EXPECT_EQ(all.at("sorted_0"), 0);
  EXPECT_EQ(all.at("sorted_25"), 10);
  EXPECT_EQ(all.at("sorted_50"), 20);
  EXPECT_EQ(all.at("sorted_75"), 30);
  EXPECT_EQ(all.at("sorted_100"), 40);
  EXPECT_EQ(all.at("library"), 5);
}

TEST(Fairness, NoRunsAreZero) {
  for (const auto& [name, value] : figures({})) EXPECT_EQ(value, 0) << name;
}

}  // namespace
}  // namespace heddle::bench::harness
