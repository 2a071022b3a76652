// Compares every kernel with a separate computation, element by element; checks the bits of
// results, and what is rejected.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "collective/reduction.hpp"

namespace heddle::collective::reduction_kernels_test {
namespace {

template <class T>
struct Numbers;
template <class T>
  requires std::is_integral_v<T>
struct Numbers<T> {
  // All bits: most sums and products wrap around.
  static T any(std::mt19937_64& random) { return random() % 5 == 0 ? T{0} : static_cast<T>(random()); }
};
template <class T>
  requires std::is_floating_point_v<T>
struct Numbers<T> {
  static T any(std::mt19937_64& random) {
    return static_cast<T>(static_cast<std::int64_t>(random() % 2000) - 1000) / T{16};
  }
};
template <class T>
struct Numbers<std::complex<T>> {
  static std::complex<T> any(std::mt19937_64& random) { return {Numbers<T>::any(random), Numbers<T>::any(random)}; }
};

// The result of an integer operator, computed in 128 bits and then cut off.
template <class T>
T expected_of(heddle_operator op, T a, T b)
  requires std::is_integral_v<T>
{
  using Wide = __uint128_t;
  const auto wide_a = static_cast<Wide>(a);
  const auto wide_b = static_cast<Wide>(b);
  switch (op) {
    case HEDDLE_SUM:
      return static_cast<T>(wide_a + wide_b);
    case HEDDLE_PRODUCT:
      return static_cast<T>(wide_a * wide_b);
    case HEDDLE_MIN:
      return std::min(a, b);
    case HEDDLE_MAX:
      return std::max(a, b);
    case HEDDLE_BAND:
      return static_cast<T>(wide_a & wide_b);
    case HEDDLE_BOR:
      return static_cast<T>(wide_a | wide_b);
    case HEDDLE_BXOR:
      return static_cast<T>(wide_a ^ wide_b);
    case HEDDLE_LAND:
      return a && b ? T{1} : T{0};
    case HEDDLE_LOR:
      return a || b ? T{1} : T{0};
    case HEDDLE_LXOR:
      return !a != !b ? T{1} : T{0};
  }
  return T{};
}
template <class T>
T expected_of(heddle_operator op, T a, T b)
  requires std::is_floating_point_v<T>
{
  if (op == HEDDLE_SUM) return a + b;
  if (op == HEDDLE_PRODUCT) return a * b;
  return op == HEDDLE_MIN ? std::fmin(a, b) : std::fmax(a, b);
}
template <class T>
std::complex<T> expected_of(heddle_operator op, std::complex<T> a, std::complex<T> b) {
  return op == HEDDLE_SUM ? a + b : a * b;
}

template <class T>
bool takes(heddle_operator op) {
  if (std::is_integral_v<T>) return true;
  return op == HEDDLE_SUM || op == HEDDLE_PRODUCT ||
         (std::is_floating_point_v<T> && (op == HEDDLE_MIN || op == HEDDLE_MAX));
}

// Lengths around those of vector registers, from every address that the type's alignment allows.
template <class T>
void check_all(heddle_type type, const char* name) {
  EXPECT_STREQ(name_of(type), name);
  EXPECT_EQ(element_bytes(type), sizeof(T));
  std::mt19937_64 random(7);
  for (int number = HEDDLE_SUM; number <= HEDDLE_LXOR; ++number) {
    const auto op = static_cast<heddle_operator>(number);
    const Reduction reduction = kernel(type, op);
    ASSERT_EQ(reduction.combine != nullptr, takes<T>(op)) << name << ' ' << name_of(op);
    if (reduction.combine == nullptr) continue;
    for (const std::size_t length : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 1000}) {
      for (std::size_t shift = 0; shift < 3; ++shift) {
        std::vector<T> to(length + 4);
        std::vector<T> from(length + 4);
        for (T& each : to) each = Numbers<T>::any(random);
        for (T& each : from) each = Numbers<T>::any(random);
        std::vector<T> expected = to;
        for (std::size_t i = 0; i < length; ++i) {
          expected[shift + i] = expected_of(op, to[shift + i], from[i]);
        }
        reduction.combine(to.data() + shift, from.data(), length * sizeof(T), reduction.argument);
        ASSERT_EQ(to, expected) << name << ' ' << name_of(op) << ", " << length << " from " << shift;
      }
    }
  }
}

TEST(Reduction, EveryKernelDoesWhatItIsCalled) {
  check_all<std::int8_t>(HEDDLE_INT8, "int8");
  check_all<std::int16_t>(HEDDLE_INT16, "int16");
  check_all<std::int32_t>(HEDDLE_INT32, "int32");
  check_all<std::int64_t>(HEDDLE_INT64, "int64");
  check_all<std::uint8_t>(HEDDLE_UINT8, "uint8");
  check_all<std::uint16_t>(HEDDLE_UINT16, "uint16");
  check_all<std::uint32_t>(HEDDLE_UINT32, "uint32");
  check_all<std::uint64_t>(HEDDLE_UINT64, "uint64");
  check_all<float>(HEDDLE_FLOAT, "float");
  check_all<double>(HEDDLE_DOUBLE, "double");
  check_all<std::complex<float>>(HEDDLE_COMPLEX_FLOAT, "complex float");
  check_all<std::complex<double>>(HEDDLE_COMPLEX_DOUBLE, "complex double");
}

template <class T>
T result(heddle_type type, heddle_operator op, T a, T b) {
  // As many as fill a register, so that the vector instructions are tested.
  std::vector<T> to(16, a);
  const std::vector<T> from(16, b);
  const Reduction reduction = kernel(type, op);
  reduction.combine(to.data(), from.data(), to.size() * sizeof(T), nullptr);
  for (const T& each : to) EXPECT_EQ(std::memcmp(&each, to.data(), sizeof(T)), 0);
  return to[0];
}

template <class T>
void check_zeros_and_nan(heddle_type type) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const T infinity = std::numeric_limits<T>::infinity();
  for (const heddle_operator op : {HEDDLE_MIN, HEDDLE_MAX}) {
    for (const T other : {T{1}, T{0}, T{-1}, -infinity, infinity, nan}) {
      EXPECT_TRUE(std::isnan(result(type, op, nan, other)));
      EXPECT_TRUE(std::isnan(result(type, op, other, nan)));
    }
    const bool sign = op == HEDDLE_MIN;
    EXPECT_EQ(std::signbit(result(type, op, T{0}, -T{0})), sign);
    EXPECT_EQ(std::signbit(result(type, op, -T{0}, T{0})), sign);
    EXPECT_TRUE(std::signbit(result(type, op, -T{0}, -T{0})));
    EXPECT_FALSE(std::signbit(result(type, op, T{0}, T{0})));
    EXPECT_EQ(result(type, op, infinity, -infinity), sign ? -infinity : infinity);
    EXPECT_EQ(result(type, op, T{3}, T{3}), T{3});
    EXPECT_EQ(result(type, op, -infinity, -infinity), -infinity);
  }
}

TEST(Reduction, MinAndMaxOfZerosAndNanDoNotDependOnTheSide) {
  check_zeros_and_nan<float>(HEDDLE_FLOAT);
  check_zeros_and_nan<double>(HEDDLE_DOUBLE);
}

// Two ranks that have exchanged their parts compute the result with exchanged operands.
template <class T>
void check_sides(heddle_type type) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> any(-1, 1);
  constexpr std::size_t kLength = 501;
  std::vector<T> a(kLength);
  std::vector<T> b(kLength);
  auto* numbers_a = reinterpret_cast<typename T::value_type*>(a.data());
  auto* numbers_b = reinterpret_cast<typename T::value_type*>(b.data());
  for (std::size_t i = 0; i < 2 * kLength; ++i) {
    numbers_a[i] = static_cast<typename T::value_type>(any(random));
    numbers_b[i] = static_cast<typename T::value_type>(any(random));
  }
  for (const heddle_operator op : {HEDDLE_SUM, HEDDLE_PRODUCT}) {
    std::vector<T> here = a;
    std::vector<T> there = b;
    const Reduction reduction = kernel(type, op);
    reduction.combine(here.data(), b.data(), kLength * sizeof(T), nullptr);
    reduction.combine(there.data(), a.data(), kLength * sizeof(T), nullptr);
    EXPECT_EQ(std::memcmp(here.data(), there.data(), kLength * sizeof(T)), 0) << name_of(op);
  }
}

TEST(Reduction, ComplexResultsDoNotDependOnTheSide) {
  check_sides<std::complex<float>>(HEDDLE_COMPLEX_FLOAT);
  check_sides<std::complex<double>>(HEDDLE_COMPLEX_DOUBLE);
}

void expect_rejected(const heddle_reduction& from, base::Status status, const char* words) {
  const auto named = named_reduction("heddle_allreduce", from);
  EXPECT_EQ(named.status(), status);
  EXPECT_STREQ(base::last_message(), words);
}

void first_wins(void*, const void*, std::size_t, const void*) {}

TEST(Reduction, WhatIsWrongIsNamed) {
  expect_rejected({}, HEDDLE_ERR_ARGUMENT, "heddle_allreduce: the reduction has type 0; a heddle_type is 1 to 12");
  expect_rejected({static_cast<heddle_type>(13), HEDDLE_SUM, nullptr, nullptr, 0}, HEDDLE_ERR_ARGUMENT,
                  "heddle_allreduce: the reduction has type 13; a heddle_type is 1 to 12");
  expect_rejected({HEDDLE_INT8, static_cast<heddle_operator>(11), nullptr, nullptr, 0}, HEDDLE_ERR_ARGUMENT,
                  "heddle_allreduce: the reduction has operator 11; a heddle_operator is 1 to 10");
  expect_rejected({HEDDLE_DOUBLE, HEDDLE_BXOR, nullptr, nullptr, 0}, HEDDLE_ERR_UNSUPPORTED,
                  "heddle_allreduce: the operator bxor does not take double; use a function of your own");
  expect_rejected({HEDDLE_COMPLEX_FLOAT, HEDDLE_MAX, nullptr, nullptr, 0}, HEDDLE_ERR_UNSUPPORTED,
                  "heddle_allreduce: the operator max does not take complex float; use a function of your own");
  expect_rejected(
      {HEDDLE_INT32, HEDDLE_SUM, nullptr, nullptr, 8}, HEDDLE_ERR_ARGUMENT,
      "heddle_allreduce: the reduction has element_bytes 8, but a int32 has 4; leave it 0 where there is no function");
  expect_rejected(
      {HEDDLE_INT32, HEDDLE_SUM, first_wins, nullptr, 4}, HEDDLE_ERR_ARGUMENT,
      "heddle_allreduce: the reduction has a function and type 3, operator 1; leave these two 0, or fn null");
  expect_rejected({static_cast<heddle_type>(0), static_cast<heddle_operator>(0), first_wins, nullptr, 0},
                  HEDDLE_ERR_ARGUMENT,
                  "heddle_allreduce: the reduction has a function and element_bytes 0; say how large an element is");
}

TEST(Reduction, ItsNameTellsTypesAndOperatorsApart) {
  const auto sum = named_reduction("", {HEDDLE_INT32, HEDDLE_SUM, nullptr, nullptr, 0});
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(sum->element_bytes, 4U);
  EXPECT_EQ(sum->alignment, 4U);
  EXPECT_STREQ(reduction_text(sum->name).data(), "sum of int32");
  const auto complex = named_reduction("", {HEDDLE_COMPLEX_DOUBLE, HEDDLE_PRODUCT, nullptr, nullptr, 16});
  ASSERT_TRUE(complex.ok());
  EXPECT_EQ(complex->alignment, 8U);
  EXPECT_STREQ(reduction_text(complex->name).data(), "product of complex double");
  const int arg = 5;
  const auto own =
      named_reduction("", {static_cast<heddle_type>(0), static_cast<heddle_operator>(0), first_wins, &arg, 24});
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->reduction.combine, first_wins);
  EXPECT_EQ(own->reduction.argument, &arg);
  EXPECT_EQ(own->element_bytes, 24U);
  EXPECT_STREQ(reduction_text(own->name).data(), "a function");
  EXPECT_STREQ(reduction_text(0).data(), "none");
}

}  // namespace
}  // namespace heddle::collective::reduction_kernels_test
