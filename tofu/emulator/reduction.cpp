#include "tofu/emulator/reduction.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tofu_emulator {
namespace {

__extension__ using Wide = __int128;

constexpr int kDigitBits = 32;
constexpr std::uint64_t kDigitMask = 0xFFFFFFFF;

std::uint64_t combined(std::uint8_t op, std::uint64_t a, std::uint64_t b) {
  switch (op) {
    case UTOFU_REDUCE_OP_BAND:
      return a & b;
    case UTOFU_REDUCE_OP_BOR:
      return a | b;
    case UTOFU_REDUCE_OP_BXOR:
      return a ^ b;
    case UTOFU_REDUCE_OP_MAX:
      return std::max(a, b);
    default:
      return a + b;  // SUM
  }
}

}  // namespace

BlockSum BlockSum::of(double value) {
  BlockSum sum;
  if (value == 0) return sum;
  // value = mantissa * 2^(32 * place + shift)
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);
  const auto mantissa = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
  exponent -= 53;
  const int place = exponent >= 0 ? exponent / kDigitBits : -((-exponent + kDigitBits - 1) / kDigitBits);
  const int shift = exponent - place * kDigitBits;
  const Wide wide = Wide{mantissa} << shift;  // below 2^84: three digits
  const std::int64_t sign = std::signbit(value) ? -1 : 1;
  for (int i = 0; i < 3; i++) {
    const auto digit_here = static_cast<std::uint64_t>(wide >> (kDigitBits * i)) & kDigitMask;
    sum.digit[static_cast<std::size_t>(2 - i)] = sign * static_cast<std::int64_t>(digit_here);
  }
  sum.top = place + 2;
  return sum;
}

void BlockSum::add(const BlockSum& other) {
  BlockSum low = other;
  if (low.top > top) std::swap(low, *this);
  if (low.top == kZero) return;
  const auto lower_by = static_cast<std::size_t>(top - low.top);
  for (std::size_t i = lower_by; i < digit.size(); i++) digit[i] += low.digit[i - lower_by];
}

double BlockSum::value() const {
  if (top == kZero) return 0;
  Wide wide = 0;
  for (const std::int64_t d : digit) wide = wide * (Wide{1} << kDigitBits) + d;
  return std::ldexp(static_cast<double>(wide), kDigitBits * (top - 3));
}

int GateValue::of_words(utofu_reduce_op op, const std::uint64_t* data, std::size_t count, GateValue* value) {
  if (op < UTOFU_REDUCE_OP_BAND || op > UTOFU_REDUCE_OP_SUM) return UTOFU_ERR_INVALID_OP;
  if (count < 1 || count > kMostWords) return UTOFU_ERR_INVALID_NUMBER;
  if (op == UTOFU_REDUCE_OP_MAXLOC && count % 2 != 0) return UTOFU_ERR_INVALID_NUMBER;  // pairs
  if (!data) return UTOFU_ERR_INVALID_POINTER;
  *value = {};
  value->data = GateData::words;
  value->op = static_cast<std::uint8_t>(op);
  value->count = static_cast<std::uint8_t>(count);
  std::copy_n(data, count, value->words.begin());
  return UTOFU_SUCCESS;
}

int GateValue::of_doubles(utofu_reduce_op op, const double* data, std::size_t count, GateValue* value) {
  if (op != UTOFU_REDUCE_OP_BFPSUM) return UTOFU_ERR_INVALID_OP;
  if (count < 1 || count > kMostDoubles) return UTOFU_ERR_INVALID_NUMBER;
  if (!data) return UTOFU_ERR_INVALID_POINTER;
  if (!std::all_of(data, data + count, [](double d) { return std::isfinite(d); })) return UTOFU_ERR_INVALID_DATA;
  *value = {};
  value->data = GateData::doubles;
  value->op = static_cast<std::uint8_t>(op);
  value->count = static_cast<std::uint8_t>(count);
  for (std::size_t i = 0; i < count; i++) value->sums[i] = BlockSum::of(data[i]);
  return UTOFU_SUCCESS;
}

void GateValue::combine(const GateValue& other) {
  if (other.mismatched || other.sequence != sequence || other.data != data || other.op != op || other.count != count)
    mismatched = 1;
  if (mismatched) return;
  if (data == GateData::doubles) {
    for (std::size_t i = 0; i < count; i++) sums[i].add(other.sums[i]);
  } else if (op == UTOFU_REDUCE_OP_MAXLOC) {
    // For equal values, the lower location wins, so that the result does not depend on the order.
    for (std::size_t i = 0; i < count; i += 2) {
      const bool theirs =
          other.words[i] > words[i] || (other.words[i] == words[i] && other.words[i + 1] < words[i + 1]);
      if (theirs) words[i] = other.words[i], words[i + 1] = other.words[i + 1];
    }
  } else {
    for (std::size_t i = 0; i < count; i++) words[i] = combined(op, words[i], other.words[i]);
  }
}

}  // namespace tofu_emulator
