// Handles of operators, and the calls on operators.
#include "mpi/collective/op.hpp"

#include <units/reductions.hpp>
#include "mpi/check/leaks.hpp"
#include "mpi/core/job.hpp"
#include "mpi/core/pool.hpp"

namespace heddle::mpi {
namespace {

constexpr std::uint32_t kMostOps = 1U << 16;
Pool<Op, kMostOps> g_ops;

constexpr std::uintptr_t kFirstOp = 0x20;
constexpr std::uintptr_t kOpValues = 0x20;

// Predefined ones by their handles' values; `present`: the value names one.
struct Predefined {
  bool present = false;
  Op op;
};
Predefined g_predefined[kOpValues];

[[gnu::constructor]] void name_predefined() {
  const auto set = [](MPI_Op handle, OpKind kind) {
    Predefined& one = g_predefined[value_of(handle) - kFirstOp];
    one.present = true;
    one.op.kind = kind;
  };
  set(MPI_SUM, OpKind::sum);
  set(MPI_MIN, OpKind::min);
  set(MPI_MAX, OpKind::max);
  set(MPI_PROD, OpKind::prod);
  set(MPI_BAND, OpKind::band);
  set(MPI_BOR, OpKind::bor);
  set(MPI_BXOR, OpKind::bxor);
  set(MPI_LAND, OpKind::land);
  set(MPI_LOR, OpKind::lor);
  set(MPI_LXOR, OpKind::lxor);
  set(MPI_MINLOC, OpKind::minloc);
  set(MPI_MAXLOC, OpKind::maxloc);
  set(MPI_REPLACE, OpKind::replace);
  set(MPI_NO_OP, OpKind::no_op);
}

int create_op(MPI_User_function* fn, MPI_User_function_c* fn_large, int commute, MPI_Op* handle) {
  if (fn == nullptr && fn_large == nullptr) return null_argument("user_fn");
  if (handle == nullptr) return null_argument("op");
  Op* const op = g_ops.take();
  if (op == nullptr) return error(MPI_ERR_NO_MEM, "there is no memory for another operator; free some");
  op->commutative = commute != 0;
  op->fn = fn;
  op->fn_large = fn_large;
  *handle = handle_of(op);
  return MPI_SUCCESS;
}

int free_op(MPI_Op* handle) {
  if (handle == nullptr) return null_argument("op");
  Op* const op = op_of(*handle);
  if (op == nullptr) return bad_op(*handle);
  if (op->kind != OpKind::user) return error(MPI_ERR_OP, "a predefined operator cannot be freed");
  release(op);
  *handle = MPI_OP_NULL;
  return MPI_SUCCESS;
}

int combine_locally(const void* in, void* inout, MPI_Count count, MPI_Datatype datatype, MPI_Op handle) {
  if (count < 0) return error(MPI_ERR_COUNT, "count %lld: it must not be negative", static_cast<long long>(count));
  Type* type = nullptr;
  if (const int code = committed_type(datatype, "datatype", &type); code != MPI_SUCCESS) return code;
  const Op* const op = op_of(handle);
  if (op == nullptr) return bad_op(handle);
  if (const int code = check_op(*op, *type); code != MPI_SUCCESS) return code;
  if (in == MPI_IN_PLACE || inout == MPI_IN_PLACE)
    return error(MPI_ERR_BUFFER, "MPI_IN_PLACE: not allowed here; pass both buffers");
  if (count == 0 || type->size == 0) return MPI_SUCCESS;
  if (begin_of(in, *type) == nullptr || begin_of(inout, *type) == nullptr)
    return error(MPI_ERR_BUFFER, "a buffer is null; pass memory for %lld elements", static_cast<long long>(count));
  if (in == inout) return error(MPI_ERR_BUFFER, "inbuf and inoutbuf are the same memory; pass two buffers");
  apply(*op, in, inout, count, *type);
  return MPI_SUCCESS;
}

}  // namespace

std::size_t live_ops() {
  std::size_t live = 0;
  g_ops.each([&](const Op& /*op*/) { ++live; });
  return live;
}

Op* op_of(MPI_Op handle) {
  const std::uintptr_t number = value_of(handle) - kFirstOp;
  if (number < kOpValues) [[likely]]
    return g_predefined[number].present ? &g_predefined[number].op : nullptr;
  return g_ops.find(handle);
}

MPI_Op handle_of(const Op* op) {
  if (op->kind == OpKind::user) return reinterpret_cast<MPI_Op>(const_cast<Op*>(op));
  for (std::uintptr_t i = 0; i < kOpValues; ++i)
    if (&g_predefined[i].op == op) return handle_from<MPI_Op>(kFirstOp + i);
  return MPI_OP_NULL;
}

int bad_op(MPI_Op handle) {
  if (handle == MPI_OP_NULL) return error(MPI_ERR_OP, "the operator is MPI_OP_NULL");
  return error(MPI_ERR_OP, "%p names no operator; it was freed, or never made by MPI_Op_create",
               static_cast<void*>(handle));
}

Op* op_at(std::uint32_t number) {
  return g_ops.at(number);
}
std::uint32_t number_of(const Op* op) {
  return g_ops.number(op);
}

Op* retain(Op* op) {
  if (op->kind == OpKind::user) op->references.fetch_add(1, std::memory_order_relaxed);
  return op;
}

void release(Op* op) {
  if (op->kind != OpKind::user) return;
  if (op->references.fetch_sub(1, std::memory_order_acq_rel) == 1) g_ops.give_back(op);
}

int check_reduction(const Op& op, const Type& type) {
  if (op.kind == OpKind::replace || op.kind == OpKind::no_op)
    return error(MPI_ERR_OP, "%s: for accumulates only, not for reductions",
                 op.kind == OpKind::replace ? "MPI_REPLACE" : "MPI_NO_OP");
  return check_op(op, type);
}

int op_create(Call call, MPI_User_function* user_fn, int commute, MPI_Op* op) {
  return told(call, create_op(user_fn, nullptr, commute, op));
}
int op_create(Call call, MPI_User_function_c* user_fn, int commute, MPI_Op* op) {
  return told(call, create_op(nullptr, user_fn, commute, op));
}

int op_free(Call call, MPI_Op* op) {
  return told(call, free_op(op));
}

int op_commutative(Call call, MPI_Op handle, int* commute) {
  const Op* const op = op_of(handle);
  if (op == nullptr) return told(call, bad_op(handle));
  if (commute == nullptr) return told(call, null_argument("commute"));
  *commute = op->commutative ? 1 : 0;
  return MPI_SUCCESS;
}

int reduce_local(Call call, const void* inbuf, void* inoutbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op) {
  if (const int code = check_running(); code != MPI_SUCCESS) return told(call, code);
  return told(call, combine_locally(inbuf, inoutbuf, count, datatype, op));
}

}  // namespace heddle::mpi
