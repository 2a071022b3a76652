#include "collective/gate_reduction.hpp"

#include <algorithm>
#include <cstring>

#include "collective/reduction.hpp"

namespace heddle::collective {
namespace {

using transport::GateOperator;

enum class Kind : std::uint8_t { other, without_sign, with_sign, floating };

Kind kind_of(heddle_type type) {
  switch (type) {
    case HEDDLE_UINT8:
    case HEDDLE_UINT16:
    case HEDDLE_UINT32:
    case HEDDLE_UINT64:
      return Kind::without_sign;
    case HEDDLE_INT8:
    case HEDDLE_INT16:
    case HEDDLE_INT32:
    case HEDDLE_INT64:
      return Kind::with_sign;
    case HEDDLE_FLOAT:
    case HEDDLE_DOUBLE:
      return Kind::floating;
    default:
      return Kind::other;
  }
}

constexpr std::uint64_t kWordBytes = sizeof(std::uint64_t);

}  // namespace

std::uint64_t GateReduction::ones() const {
  return ~std::uint64_t{0} >> (64 - 8 * element_bytes_);
}

std::optional<GateReduction> GateReduction::of(const Call& call, std::uint32_t most_words) {
  GateReduction made;
  if (call.operation == Operation::barrier) return made;
  if (call.operation != Operation::allreduce && call.operation != Operation::reduce) return std::nullopt;
  const auto named = reduction_of(call.reduction_name);
  if (!named || call.bytes == 0) return std::nullopt;
  const Kind kind = kind_of(named->type);
  if (kind == Kind::other) return std::nullopt;
  const bool whole = kind != Kind::floating;
  made.bytes_ = call.bytes;
  made.element_bytes_ = call.element_bytes;
  std::uint64_t words = call.bytes / call.element_bytes;
  const auto as = [&](GateOperator op, Form form) {
    made.op_ = op;
    made.form_ = form;
  };
  switch (named->op) {
    case HEDDLE_SUM:
      if (whole) as(GateOperator::sum, Form::sum);
      break;
    case HEDDLE_MIN:
    case HEDDLE_MAX:
      made.least_ = named->op == HEDDLE_MIN;
      as(GateOperator::max, !whole                    ? Form::float_order
                            : kind == Kind::with_sign ? Form::signed_order
                                                      : Form::unsigned_order);
      break;
    case HEDDLE_BAND:
      as(GateOperator::band, Form::bits);
      break;
    case HEDDLE_BOR:
      as(GateOperator::bor, Form::bits);
      break;
    case HEDDLE_BXOR:
      as(GateOperator::bxor, Form::bits);
      break;
    case HEDDLE_LAND:
      as(GateOperator::band, Form::truth);
      break;
    case HEDDLE_LOR:
      as(GateOperator::bor, Form::truth);
      break;
    case HEDDLE_LXOR:
      as(GateOperator::bxor, Form::truth);
      break;
    default:
      break;
  }
  if (made.form_ == Form::bits) words = (call.bytes + kWordBytes - 1) / kWordBytes;
  if (made.form_ == Form::none || words > most_words) return std::nullopt;
  made.words_ = static_cast<std::uint32_t>(words);
  return made;
}

// Returns the bits of a word that has the order, or the sum, of the element with these bits.
std::uint64_t GateReduction::encoded(std::uint64_t element) const {
  const std::uint64_t all = ones();
  const std::uint64_t sign = all ^ all >> 1;
  switch (form_) {
    case Form::truth:
      return element != 0 ? 1 : 0;
    case Form::signed_order:
      element ^= sign;
      break;
    case Form::float_order: {
      const std::uint64_t infinity = element_bytes_ == 4 ? 0x7F80'0000 : 0x7FF0'0000'0000'0000;
      if ((element & ~sign) > infinity) return all;
      element = (element & sign) != 0 ? all ^ element : element | sign;
      break;
    }
    default:
      break;
  }
  return least_ ? all ^ element : element;
}

std::uint64_t GateReduction::decoded(std::uint64_t word) const {
  const std::uint64_t all = ones();
  const std::uint64_t sign = all ^ all >> 1;
  const bool a_nan = form_ == Form::float_order && word == all;
  if (a_nan) return all ^ sign;
  if (least_) word ^= all;
  if (form_ == Form::signed_order) return word ^ sign;
  if (form_ != Form::float_order) return word;
  return (word & sign) != 0 ? word ^ sign : all ^ word;
}

void GateReduction::give(const void* send, std::span<std::uint64_t> words) const {
  const auto* from = static_cast<const std::byte*>(send);
  const std::uint64_t step = form_ == Form::bits ? kWordBytes : element_bytes_;
  for (std::uint32_t i = 0; i < words_; ++i) {
    std::uint64_t element = 0;
    // The machines are little-endian: the element's bytes are the word's lowest.
    std::memcpy(&element, from + i * step, std::min(step, bytes_ - i * step));
    words[i] = form_ == Form::bits ? element : encoded(element);
  }
}

void GateReduction::take(std::span<const std::uint64_t> words, void* receive) const {
  auto* to = static_cast<std::byte*>(receive);
  const std::uint64_t step = form_ == Form::bits ? kWordBytes : element_bytes_;
  for (std::uint32_t i = 0; i < words_; ++i) {
    const std::uint64_t element = form_ == Form::bits ? words[i] : decoded(words[i]);
    std::memcpy(to + i * step, &element, std::min(step, bytes_ - i * step));
  }
}

}  // namespace heddle::collective
