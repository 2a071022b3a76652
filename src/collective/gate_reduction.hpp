// Which reductions barrier gates do as exactly as software does, and how elements become words of
// 64 bits and back.
//
// Gates know sum, maximum and the bits' operators, of words without signs. Sums of integers are
// sums of words, cut to the element; a minimum is the maximum of complements; the order of signed
// numbers and of floating point is that of words after a change of bits, a NaN being the greatest
// of all; logical operators are those of bits on 0 and 1. Bits are combined in words as full as
// they can be.
// Not: products; sums of floating point, which gates round in their own way, differently from
// software, and refuse at the one member that gives an infinity or a NaN; functions of the program.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collective/call.hpp"
#include "transport/gates.hpp"

namespace heddle::collective {

class GateReduction {
 public:
  // Of a barrier, an allreduce or a reduce. Empty: gates with so many words cannot do it.
  static std::optional<GateReduction> of(const Call& call, std::uint32_t most_words);

  [[nodiscard]] transport::GateOperator op() const { return op_; }
  [[nodiscard]] std::uint32_t words() const { return words_; }  // 0: a barrier
  void give(const void* send, std::span<std::uint64_t> words) const;
  void take(std::span<const std::uint64_t> words, void* receive) const;

 private:
  enum class Form : std::uint8_t { none, bits, sum, truth, unsigned_order, signed_order, float_order };
  [[nodiscard]] std::uint64_t encoded(std::uint64_t element) const;
  [[nodiscard]] std::uint64_t decoded(std::uint64_t word) const;
  [[nodiscard]] std::uint64_t ones() const;  // all bits of an element

  transport::GateOperator op_ = transport::GateOperator::barrier;
  Form form_ = Form::none;
  bool least_ = false;
  std::uint32_t words_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t element_bytes_ = 8;
};

}  // namespace heddle::collective
