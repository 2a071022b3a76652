// Statistics of repeated measurements: the median, and how far it may be off.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace heddle::bench::harness {

struct Summary {
  double median = 0;
  double low95 = 0;
  double high95 = 0;
  std::size_t repeats = 0;
};

// Median of the values (0 if there are none); the mean of the middle two for an even number.
double median_of(std::vector<double> values);

// 0 if there are none.
double mean_of(const std::vector<double>& values);
// The standard deviation of just these values.
double deviation_of(const std::vector<double>& values);

// The median and the narrowest pair of order statistics that holds the true median with at least 95
// % confidence, whatever the distribution (the binomial sign interval). With fewer than six values
// no pair does: then the extremes.
Summary summarize(std::span<const double> values);

}  // namespace heddle::bench::harness
