#include "tofu/emulator/gates.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace tofu_emulator::reduction_test {
namespace {

double sum_of(const std::vector<double>& values) {
  BlockSum sum;
  for (const double value : values) sum.add(BlockSum::of(value));
  return sum.value();
}

TEST(BlockSum, OneNumberIsItself) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; i++) {
    double value = 0;
    const std::uint64_t bits = random();
    static_assert(sizeof bits == sizeof value);
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(sum_of({value}), value);
  }
  for (const double value : {0.0, 1.0, -1.0, std::numeric_limits<double>::max(),
                             std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::min()})
    EXPECT_EQ(sum_of({value}), value);
}

TEST(BlockSum, OrderAndGroupingDoNotMatter) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 500; round++) {
    std::vector<double> values;
    const std::size_t count = 2 + random() % 200;
    const int spread = 1 + static_cast<int>(random() % 400);
    for (std::size_t i = 0; i < count; i++)
      values.push_back(std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())),
                                  static_cast<int>(random() % static_cast<std::uint64_t>(spread)) - spread / 2));
    const double expected = sum_of(values);
    for (int order = 0; order < 5; order++) {
      std::shuffle(values.begin(), values.end(), random);
      ASSERT_EQ(sum_of(values), expected);
      std::vector<BlockSum> parts;  // combined as in a tree of random shape
      for (const double value : values) parts.push_back(BlockSum::of(value));
      while (parts.size() > 1) {
        const std::size_t at = random() % (parts.size() - 1);
        parts[at].add(parts[at + 1]);
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      }
      ASSERT_EQ(parts[0].value(), expected);
    }
  }
}

// Integers far below 2^63 as doubles of one magnitude: the exact sum is known.
TEST(BlockSum, SumsOfNumbersOfOneMagnitudeAreExact) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 1000; round++) {
    std::vector<double> values;
    std::int64_t exact = 0;
    for (int i = 0; i < 100; i++) {
      const std::int64_t value = static_cast<std::int64_t>(random()) >> 14;
      values.push_back(static_cast<double>(value));
      exact += value;
    }
    ASSERT_EQ(sum_of(values), static_cast<double>(exact));
  }
}

TEST(BlockSum, CancellationLeavesWhatIsNotBelowTheLargest) {
  EXPECT_EQ(sum_of({1e16, 1.0, -1e16}), 1.0);
  EXPECT_EQ(sum_of({1e300, 1.0, -1e300}), 0.0) << "cut: it is far below the last place of the largest";
  EXPECT_EQ(sum_of({-0.5, 0.5}), 0.0);
}

TEST(GateValue, ArgumentsAreChecked) {
  GateValue value;
  const std::uint64_t words[7] = {};
  const double doubles[4] = {};
  EXPECT_EQ(GateValue::of_words(UTOFU_REDUCE_OP_SUM, words, 0, &value), UTOFU_ERR_INVALID_NUMBER);
  EXPECT_EQ(GateValue::of_words(UTOFU_REDUCE_OP_SUM, words, 7, &value), UTOFU_ERR_INVALID_NUMBER);
  EXPECT_EQ(GateValue::of_words(UTOFU_REDUCE_OP_MAXLOC, words, 3, &value), UTOFU_ERR_INVALID_NUMBER);
  EXPECT_EQ(GateValue::of_words(UTOFU_REDUCE_OP_SUM, nullptr, 1, &value), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(GateValue::of_words(UTOFU_REDUCE_OP_BFPSUM, words, 1, &value), UTOFU_ERR_INVALID_OP);
  EXPECT_EQ(GateValue::of_words(UTOFU_REDUCE_OP_BARRIER, words, 1, &value), UTOFU_ERR_INVALID_OP);
  EXPECT_EQ(GateValue::of_words(static_cast<utofu_reduce_op>(0), words, 1, &value), UTOFU_ERR_INVALID_OP);
  EXPECT_EQ(GateValue::of_doubles(UTOFU_REDUCE_OP_SUM, doubles, 1, &value), UTOFU_ERR_INVALID_OP);
  EXPECT_EQ(GateValue::of_doubles(UTOFU_REDUCE_OP_BFPSUM, doubles, 4, &value), UTOFU_ERR_INVALID_NUMBER);
  EXPECT_EQ(GateValue::of_doubles(UTOFU_REDUCE_OP_BFPSUM, doubles, 0, &value), UTOFU_ERR_INVALID_NUMBER);
  EXPECT_EQ(GateValue::of_doubles(UTOFU_REDUCE_OP_BFPSUM, nullptr, 1, &value), UTOFU_ERR_INVALID_POINTER);
  const double endless = std::numeric_limits<double>::infinity();
  EXPECT_EQ(GateValue::of_doubles(UTOFU_REDUCE_OP_BFPSUM, &endless, 1, &value), UTOFU_ERR_INVALID_DATA);
}

}  // namespace
}  // namespace tofu_emulator::reduction_test
