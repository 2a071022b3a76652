// The results of barrier gates must be those of software, to the last bit: elements become words,
// words are combined as gates do, and the result is compared with that of the kernels.
#include "collective/gate_offload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "collective/reduction.hpp"

namespace heddle::collective::gate_reduction_test {
namespace {

constexpr std::uint32_t kWords = 6;
constexpr std::array kTypes = {HEDDLE_INT8,   HEDDLE_INT16,  HEDDLE_INT32,  HEDDLE_INT64, HEDDLE_UINT8,
                               HEDDLE_UINT16, HEDDLE_UINT32, HEDDLE_UINT64, HEDDLE_FLOAT, HEDDLE_DOUBLE};

std::uint64_t by_gate(transport::GateOperator op, std::uint64_t a, std::uint64_t b) {
  switch (op) {
    case transport::GateOperator::band:
      return a & b;
    case transport::GateOperator::bor:
      return a | b;
    case transport::GateOperator::bxor:
      return a ^ b;
    case transport::GateOperator::max:
      return std::max(a, b);
    case transport::GateOperator::sum:
      return a + b;
    case transport::GateOperator::barrier:
      break;
  }
  return 0;
}

Call call_of(heddle_type type, heddle_operator op, std::uint64_t bytes) {
  const auto named = named_reduction("test", {type, op, nullptr, nullptr, 0});
  Call call;
  call.operation = Operation::allreduce;
  call.bytes = bytes;
  call.element_bytes = named->element_bytes;
  call.reduction = named->reduction;
  call.reduction_name = named->name;
  return call;
}

// Bytes that make special values likely: zeros of both signs, infinities, NaNs, largest and
// smallest.
void fill(base::Random& random, heddle_type type, std::span<std::byte> bytes) {
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() >> 40);
  const std::uint64_t element = element_bytes(type);
  for (std::size_t at = 0; at < bytes.size(); at += element) {
    if (random.below(2) == 0) continue;
    constexpr std::array<std::uint8_t, 4> kEdges = {0x00, 0xFF, 0x7F, 0x80};
    std::memset(&bytes[at], random.below(2) == 0 ? 0x00 : 0xFF, element);
    bytes[at + element - 1] = static_cast<std::byte>(kEdges[random.below(kEdges.size())]);
    if (type != HEDDLE_FLOAT && type != HEDDLE_DOUBLE) continue;
    const double edges[] = {0.0, -0.0, INFINITY, -INFINITY, 1.5, -1.5, std::numeric_limits<double>::denorm_min()};
    const double value = edges[random.below(std::size(edges))];
    const auto narrow = static_cast<float>(value);
    std::memcpy(&bytes[at], type == HEDDLE_FLOAT ? static_cast<const void*>(&narrow) : &value, element);
  }
}

// All NaNs count as equal.
template <class T, class Bits>
bool same_values(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  for (std::size_t at = 0; at < a.size(); at += sizeof(T)) {
    T x;
    T y;
    std::memcpy(&x, &a[at], sizeof x);
    std::memcpy(&y, &b[at], sizeof y);
    if (std::isnan(x) != std::isnan(y)) return false;
    if (!std::isnan(x) && std::bit_cast<Bits>(x) != std::bit_cast<Bits>(y)) return false;
  }
  return true;
}
bool same(heddle_type type, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  if (type == HEDDLE_FLOAT) return same_values<float, std::uint32_t>(a, b);
  if (type == HEDDLE_DOUBLE) return same_values<double, std::uint64_t>(a, b);
  return a == b;
}

TEST(GateReduction, GivesWhatSoftwareGives) {
  base::Random random(7);
  int compared = 0;
  for (const heddle_type type : kTypes) {
    for (int op = HEDDLE_SUM; op <= HEDDLE_LXOR; ++op) {
      if (kernel(type, static_cast<heddle_operator>(op)).combine == nullptr) continue;
      for (int round = 0; round < 200; ++round) {
        const std::uint64_t bytes = element_bytes(type) * (1 + random.below(48 / element_bytes(type)));
        const Call call = call_of(type, static_cast<heddle_operator>(op), bytes);
        const auto how = GateReduction::of(call, kWords);
        if (!how) continue;
        ++compared;
        ASSERT_LE(how->words(), kWords);
        const std::size_t ranks = 2 + random.below(6);
        std::vector<std::byte> expected;
        std::array<std::uint64_t, kWords> sum{};
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          // The alignment that any vector of these types may need.
          alignas(16) std::array<std::byte, 48> given{};
          fill(random, type, std::span(given).first(bytes));
          std::array<std::uint64_t, kWords> words{};
          how->give(given.data(), std::span(words).first(how->words()));
          for (std::size_t i = 0; i < how->words(); ++i)
            sum[i] = rank == 0 ? words[i] : by_gate(how->op(), sum[i], words[i]);
          alignas(16) std::array<std::byte, 48> so_far{};
          std::copy(expected.begin(), expected.end(), so_far.begin());
          if (rank == 0) so_far = given;
          if (rank > 0) call.reduction.combine(so_far.data(), given.data(), bytes, nullptr);
          expected.assign(so_far.begin(), so_far.begin() + static_cast<std::ptrdiff_t>(bytes));
        }
        std::vector<std::byte> result(bytes + 1, std::byte{0x5A});
        how->take(std::span(sum).first(how->words()), result.data());
        ASSERT_EQ(result.back(), std::byte{0x5A}) << "written beyond the end";
        result.pop_back();
        ASSERT_TRUE(same(type, result, expected)) << reduction_text(call.reduction_name).data() << ", " << bytes;
      }
    }
  }
  EXPECT_GT(compared, 5000);
}

TEST(GateReduction, WhatTheyCannotDo) {
  const auto can = [](heddle_type type, heddle_operator op, std::uint64_t elements) {
    return GateReduction::of(call_of(type, op, elements * element_bytes(type)), kWords).has_value();
  };
  EXPECT_TRUE(can(HEDDLE_UINT64, HEDDLE_SUM, 6));
  EXPECT_FALSE(can(HEDDLE_UINT64, HEDDLE_SUM, 7));
  EXPECT_FALSE(can(HEDDLE_UINT64, HEDDLE_SUM, 0));
  EXPECT_FALSE(can(HEDDLE_UINT8, HEDDLE_SUM, 7));
  EXPECT_TRUE(can(HEDDLE_UINT8, HEDDLE_BOR, 48)) << "bits are combined in full words";
  EXPECT_FALSE(can(HEDDLE_UINT8, HEDDLE_BOR, 49));
  EXPECT_FALSE(can(HEDDLE_INT32, HEDDLE_PRODUCT, 1));
  EXPECT_FALSE(can(HEDDLE_DOUBLE, HEDDLE_SUM, 1)) << "rounded in another way";
  EXPECT_FALSE(can(HEDDLE_FLOAT, HEDDLE_SUM, 1));
  EXPECT_TRUE(can(HEDDLE_DOUBLE, HEDDLE_MIN, 6));
  EXPECT_FALSE(can(HEDDLE_COMPLEX_DOUBLE, HEDDLE_SUM, 1));
  Call call = call_of(HEDDLE_INT32, HEDDLE_SUM, 4);
  call.reduction_name = UINT32_MAX;  // a function of the program
  EXPECT_FALSE(GateReduction::of(call, kWords).has_value());
  call = call_of(HEDDLE_INT32, HEDDLE_SUM, 4);
  call.operation = Operation::scan;
  EXPECT_FALSE(GateReduction::of(call, kWords).has_value());
  call = {};
  const auto barrier = GateReduction::of(call, kWords);
  ASSERT_TRUE(barrier.has_value());
  EXPECT_EQ(barrier->words(), 0U);
}

}  // namespace
}  // namespace heddle::collective::gate_reduction_test
