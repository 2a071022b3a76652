#include "harness/fairness.hpp"

#include <algorithm>
#include <cmath>

#include "harness/statistics.hpp"

namespace heddle::bench::harness {

namespace {

constexpr std::array<std::uint32_t, 5> kQuantiles = {0, 25, 50, 75, 100};

double mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double deviation(std::span<const double> values) {
  const double middle = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - middle) * (value - middle);
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

std::vector<double> of_thread(std::span<const FairnessRun> runs, std::size_t thread) {
  std::vector<double> out;
  for (const FairnessRun& run : runs) out.push_back(static_cast<double>(run[thread]));
  return out;
}

}  // namespace

std::vector<std::string> fairness_figures() {
  std::vector<std::string> names = {"deviation", "between_runs"};
  for (std::uint32_t i = 0; i < kFairnessThreads; ++i) names.push_back("thread_" + std::to_string(i));
  names.emplace_back("library");
  for (const std::uint32_t quantile : kQuantiles) names.push_back("sorted_" + std::to_string(quantile));
  return names;
}

std::vector<double> fairness_values(std::span<const FairnessRun> runs) {
  std::vector<double> within;
  for (const FairnessRun& run : runs) {
    within.push_back(deviation(std::vector<double>(run.begin(), run.begin() + kFairnessThreads)));
  }
  std::vector<double> between;
  std::vector<double> means;
  for (std::size_t thread = 0; thread <= kFairnessThreads; ++thread) {
    const std::vector<double> counts = of_thread(runs, thread);
    means.push_back(mean(counts));
    if (thread < kFairnessThreads) between.push_back(deviation(counts));
  }
  std::vector<double> values = {median_of(within), mean(between)};
  values.insert(values.end(), means.begin(), means.end());
  std::vector<double> first = of_thread(runs, 0);
  std::sort(first.begin(), first.end());
  for (const std::uint32_t quantile : kQuantiles) {
    values.push_back(first.empty() ? 0 : first[(first.size() - 1) * quantile / 100]);
  }
  return values;
}

}  // namespace heddle::bench::harness
