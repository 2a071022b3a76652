// Statistics: the median of repeated measurements and how far it may be off, and the distribution
// of many times of single operations.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle::bench::harness {

struct Summary {
  double median = 0;
  double low95 = 0;
  double high95 = 0;
  double least = 0;
  double most = 0;
  // 99 % of the values are not below the one, and not above the other (nearest rank).
  double low99 = 0;
  double high99 = 0;
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

// Many times of single operations, kept in little room: 3 % wide classes, each with its exact sum.
class Spread {
 public:
  void add(std::uint64_t value) {
    Class& one = classes_[class_of(value)];
    ++one.count;
    one.sum += value;
  }
  void merge(const Spread& other);
  [[nodiscard]] std::uint64_t count() const;
  // The mean of the middle nine tenths: the time of an operation that was not interrupted. A
  // counter's ticks may be as long as the operations, so a median would be a multiple of the tick.
  // 0 if there are none.
  [[nodiscard]] double middle_mean() const;

 private:
  struct Class {
    std::uint64_t count = 0;
    std::uint64_t sum = 0;
  };
  static constexpr std::size_t kExact = 64;  // values below have a class each
  static constexpr std::size_t kPerDoubling = 32;
  static std::size_t class_of(std::uint64_t value) {
    if (value < kExact) return static_cast<std::size_t>(value);
    const auto shift = static_cast<std::size_t>(std::bit_width(value)) - 6;
    return kExact + (shift - 1) * kPerDoubling + static_cast<std::size_t>(value >> shift) - kPerDoubling;
  }
  std::array<Class, kExact + 58 * kPerDoubling> classes_{};
};

}  // namespace heddle::bench::harness
