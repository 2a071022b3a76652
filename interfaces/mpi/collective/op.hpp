// Operators of reductions and accumulates.
#pragma once

#include <atomic>
#include <cstdint>

#include "mpi/core/errors.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

enum class OpKind : std::uint8_t {
  user,
  sum,
  min,
  max,
  prod,
  band,
  bor,
  bxor,
  land,
  lor,
  lxor,
  minloc,
  maxloc,
  replace,
  no_op
};

const char* name_of(OpKind kind);

struct Op {
  OpKind kind = OpKind::user;
  bool commutative = true;
  MPI_User_function* fn = nullptr;          // of MPI_Op_create
  MPI_User_function_c* fn_large = nullptr;  // of MPI_Op_create_c
  // the handle, and operations that use it; not counted of predefined ones
  std::atomic<int> references{1};
};

// Null: the handle names none.
Op* op_of(MPI_Op handle);
MPI_Op handle_of(const Op* op);
int bad_op(MPI_Op handle);
// The operator of an integer handle that the program made. Null: the number names none.
Op* op_at(std::uint32_t number);
std::uint32_t number_of(const Op* op);
Op* retain(Op* op);
void release(Op* op);

// MPI_SUCCESS, or why the operator does not take elements of the type. Predefined operators take
// predefined types (and, in accumulates, types made of one of them: pass that one).
int check_op(const Op& op, const Type& type);
// The same for reductions: these do not take MPI_REPLACE and MPI_NO_OP.
int check_reduction(const Op& op, const Type& type);

// inout[i] = in[i] op inout[i] for `count` elements of the type, both as they lie in memory
// (type.extent apart). For user operators the program's function runs with the handle `type`.
// check_op() was MPI_SUCCESS. Predefined: any thread. MPI_REPLACE copies, MPI_NO_OP does nothing.
void apply(const Op& op, const void* in, void* inout, MPI_Count count, const Type& type);

}  // namespace heddle::mpi
