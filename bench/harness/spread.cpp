#include "harness/spread.hpp"

#include <algorithm>

namespace heddle::bench::harness {

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
