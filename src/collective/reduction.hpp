// How elements are combined: a kernel for every type and operator of heddle/collectives.h.
//
// Results are bitwise the same if the two operands are exchanged (except which NaN a NaN is): in
// recursive doubling two ranks combine the same values in exchanged order and must get the same
// result. So the compiler must not contract a kernel to fused operations, and min and max
// distinguish -0 and +0.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/error.hpp"
#include "collective/session_queue.hpp"
#include "heddle/collectives.h"

namespace heddle::collective {

// "int32", "sum"; for other values "no type", "no operator".
const char* name_of(heddle_type type);
const char* name_of(heddle_operator op);

// 0: no such type.
std::uint64_t element_bytes(heddle_type type);

// The kernel expects vectors aligned for their type. Null: the operator does not take the type.
Reduction kernel(heddle_type type, heddle_operator op);

// The program's arguments, checked.
struct NamedReduction {
  Reduction reduction;
  std::uint64_t element_bytes = 0;
  std::uint64_t alignment = 1;  // of the program's vectors
  std::uint32_t name = 0;       // the same for the same type and operator; one for all functions
};
// ARGUMENT: no such type or operator; a function with a type, or with elements of no bytes.
// UNSUPPORTED: the operator does not take the type. `call` names the function.
base::Result<NamedReduction> named_reduction(const char* call, const heddle_reduction& from);

struct TypeAndOperator {
  heddle_type type;
  heddle_operator op;
};
// The type and operator that NamedReduction::name stands for; empty: a function, or nothing.
std::optional<TypeAndOperator> reduction_of(std::uint32_t name);

// Text for messages, from NamedReduction::name: "sum of int32", "a function", "none" for 0.
std::array<char, 48> reduction_text(std::uint32_t name);

}  // namespace heddle::collective
