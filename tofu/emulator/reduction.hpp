// The values that barrier gates combine: up to six words, or sums of up to three doubles whose
// result does not depend on the order.
#pragma once

#include <utofu.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tofu_emulator {

inline constexpr std::size_t kMostWords = 6;
inline constexpr std::size_t kMostDoubles = 3;

// A sum of doubles: digits of 32 bits at fixed binary places, with room for carries. Each addend is
// cut at the lowest digit for which the largest addend leaves room. So the sum is the same in any
// order and grouping, a property of the hardware's BFPSUM that programs may rely on. The hardware's
// last bits may differ.
//
// value = digit[i] * 2^(32 * (top - i)), summed over i. The largest addend is exact; the part cut
// from another addend is below 2^-32 of the largest one's last place. Valid for up to 1024 addends.
struct BlockSum {
  static constexpr std::int32_t kZero = -1'000'000;  // `top` of an empty sum
  std::array<std::int64_t, 4> digit{};
  std::int32_t top = kZero;
  std::int32_t unused = 0;

  // Finite numbers only.
  static BlockSum of(double value);
  void add(const BlockSum& other);
  [[nodiscard]] double value() const;
};

enum class GateData : std::uint8_t { none, words, doubles };

// The value of one signal.
struct GateValue {
  std::uint32_t sequence = 0;  // of the operation among those of its start gate
  GateData data = GateData::none;
  std::uint8_t op = UTOFU_REDUCE_OP_BARRIER;  // enum utofu_reduce_op
  std::uint8_t count = 0;                     // of words or doubles
  // 1: the participants do not agree on operation, count or sequence
  std::uint8_t mismatched = 0;
  std::array<std::uint64_t, kMostWords> words{};
  std::array<BlockSum, kMostDoubles> sums{};

  // UTOFU_SUCCESS, or the argument that is wrong: INVALID_OP (also for operations that are not
  // known to be supported), INVALID_NUMBER, INVALID_POINTER, INVALID_DATA (a double that is not
  // finite).
  static int of_words(utofu_reduce_op op, const std::uint64_t* data, std::size_t count, GateValue* value);
  static int of_doubles(utofu_reduce_op op, const double* data, std::size_t count, GateValue* value);

  void combine(const GateValue& other);
};

}  // namespace tofu_emulator
