// Accumulates on memory that is mapped here. Each element is changed atomically with respect to all
// others that change it so, from any rank: by one atomic instruction if it is an aligned word of 1,
// 2, 4 or 8 bytes, else under the target's guard.
#pragma once

#include <cstddef>

#include "mpi/collective/op.hpp"
#include "mpi/rma/win.hpp"

namespace heddle::mpi {

// The window, the rank that owns the memory, and the control block that guards it.
struct Guarded {
  Win& win;
  int rank;
  Control& control;
  bool in_handler = false;
};

// Both functions return an error and do nothing if a dead rank holds the guard. Elements of the
// target may be half written then, so the guard stays held.
//
// target[i] = operand[i] op target[i] for `count` elements of a predefined type, which lie their
// extent apart in memory. `operands` is in packed form (null: MPI_NO_OP). `old` gets the former
// values in packed form; it may be null.
int accumulate_here(const Guarded& where, const Op& op, const Type& element, const std::byte* operands,
                    std::byte* target, std::byte* old, MPI_Count count);
int compare_swap_here(const Guarded& where, const Type& element, const void* compare, const void* value,
                      std::byte* target, void* old);

}  // namespace heddle::mpi
