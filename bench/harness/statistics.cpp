#include "harness/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace heddle::bench::harness {

namespace {

// How many of the smallest (and of the largest) values may be cut off: the largest k for which
// P(Binomial(n, 1/2) < k) ≤ 2.5 %, so that [value k, value n-1-k] (from 0) covers the median with ≥
// 95 %.
std::size_t cut(std::size_t n) {
  double term = std::pow(0.5, static_cast<double>(n));  // C(n, 0) / 2^n
  double tail = term;
  std::size_t k = 0;
  while (tail <= 0.025 && k < n / 2) {
    term *= static_cast<double>(n - k) / static_cast<double>(k + 1);
    tail += term;
    ++k;
  }
  return k == 0 ? 0 : k - 1;
}

}  // namespace

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const std::size_t middle = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double mean_of(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double deviation_of(const std::vector<double>& values) {
  std::vector<double> squares;
  for (const double value : values) squares.push_back(std::pow(value - mean_of(values), 2));
  return std::sqrt(mean_of(squares));
}

Summary summarize(std::span<const double> values) {
  Summary summary;
  summary.repeats = values.size();
  if (values.empty()) return summary;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t k = cut(sorted.size());
  summary.median = median_of(sorted);
  summary.low95 = sorted[k];
  summary.high95 = sorted[sorted.size() - 1 - k];
  const std::size_t beyond = sorted.size() / 100;
  summary.least = sorted.front();
  summary.most = sorted.back();
  summary.low99 = sorted[beyond];
  summary.high99 = sorted[sorted.size() - 1 - beyond];
  return summary;
}

void Spread::merge(const Spread& other) {
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    classes_[i].count += other.classes_[i].count;
    classes_[i].sum += other.classes_[i].sum;
  }
}

std::uint64_t Spread::count() const {
  std::uint64_t all = 0;
  for (const Class& one : classes_) all += one.count;
  return all;
}

double Spread::middle_mean() const {
  const std::uint64_t all = count();
  const std::uint64_t first = all / 20;
  const std::uint64_t last = all - first;
  double sum = 0;
  std::uint64_t before = 0;
  for (const Class& one : classes_) {
    const std::uint64_t begin = std::max(before, first);
    before += one.count;
    const std::uint64_t end = std::min(before, last);
    if (begin >= end) continue;
    // A class that is cut counts with a share, at its mean.
    sum += static_cast<double>(one.sum) * static_cast<double>(end - begin) / static_cast<double>(one.count);
  }
  return last == first ? 0 : sum / static_cast<double>(last - first);
}

}  // namespace heddle::bench::harness
