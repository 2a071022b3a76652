// Decides which reductions barrier gates do exactly as software does, and converts elements to
// words of 64 bits and back.
//
// Gates do sum, maximum and the bitwise operators, on unsigned words. A sum of integers is a sum of
// words, cut to the element. A minimum is the maximum of complements. Signed and floating-point
// numbers have the order of words after a change of bits; a NaN is the greatest of all. Logical
// operators are bitwise operators on 0 and 1. Elements for bitwise operators are packed tightly
// into words.
// Not done by gates: products; functions of the program; sums of floating point, since gates round
// differently from software and refuse an infinity or a NaN at the member that gives it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collective/call.hpp"
#include "transport/gates.hpp"

namespace heddle::collective {

class GateReduction {
 public:
  // For a barrier, an allreduce or a reduce. Empty: gates with that many words cannot do it.
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
