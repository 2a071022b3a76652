// Handles of operators, and the calls on operators.

#include "mpi/collective/op.hpp"

#include <climits>
#include <cstring>
#include <units/reductions.hpp>

#include "mpi/core/arguments.hpp"
#include "mpi/core/check.hpp"
#include "mpi/core/job.hpp"
#include "mpi/core/objects.hpp"

namespace heddle::mpi {

namespace {

constexpr std::uint32_t kMostOps = 1U << 16;
ObjectPool<Op, kMostOps> g_ops;

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

// The kernels of predefined operators.

namespace {

// An element may lie anywhere, as the program has it.
template <class T>
T load_element(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
struct Complex {
  T real;
  T imaginary;
};

// As MPI_FLOAT_INT and others lie in memory.
template <class Value, class Index>
struct Pair {
  Value value;
  Index index;
};

template <int bytes>
struct Logical;  // Fortran's and C's: zero is false
template <>
struct Logical<1> {
  using type = std::uint8_t;
};
template <>
struct Logical<2> {
  using type = std::uint16_t;
};
template <>
struct Logical<4> {
  using type = std::uint32_t;
};
template <>
struct Logical<8> {
  using type = std::uint64_t;
};

// Null: the operator does not take the type.
using Kernel = void (*)(const void* in, void* inout, MPI_Count count);

template <class T, class Combine>
void each(const void* in, void* inout, MPI_Count count) {
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(inout);
  for (MPI_Count i = 0; i < count; ++i, from += sizeof(T), to += sizeof(T)) {
    const T result = Combine{}(load_element<T>(from), load_element<T>(to));
    std::memcpy(to, &result, sizeof result);
  }
}

// Integers wrap around.
template <class T>
using Wrapping =
    std::conditional_t<std::is_integral_v<T>, std::conditional_t<(sizeof(T) < 8), std::uint32_t, std::uint64_t>, T>;

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
  template <class T>
  Complex<T> operator()(Complex<T> a, Complex<T> b) const {
    return {static_cast<T>(a.real + b.real), static_cast<T>(a.imaginary + b.imaginary)};
  }
};
struct Product {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
  template <class T>
  Complex<T> operator()(Complex<T> a, Complex<T> b) const {
    return {static_cast<T>(a.real * b.real - a.imaginary * b.imaginary),
            static_cast<T>(a.real * b.imaginary + a.imaginary * b.real)};
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct And {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct ExclusiveOr {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
struct LogicalAnd {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a != 0 && b != 0);
  }
};
struct LogicalOr {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a != 0 || b != 0);
  }
};
struct LogicalExclusiveOr {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>((a != 0) != (b != 0));
  }
};
// If the values are equal, the smaller index wins.
struct MinLocation {
  template <class T>
  T operator()(T a, T b) const {
    if (a.value == b.value) return a.index <= b.index ? a : b;
    return a.value < b.value ? a : b;
  }
};
struct MaxLocation {
  template <class T>
  T operator()(T a, T b) const {
    if (a.value == b.value) return a.index <= b.index ? a : b;
    return a.value > b.value ? a : b;
  }
};

template <class T>
Kernel logical(OpKind kind) {
  switch (kind) {
    case OpKind::land:
      return each<T, LogicalAnd>;
    case OpKind::lor:
      return each<T, LogicalOr>;
    case OpKind::lxor:
      return each<T, LogicalExclusiveOr>;
    default:
      return nullptr;
  }
}

template <class T>
Kernel bits(OpKind kind) {
  switch (kind) {
    case OpKind::band:
      return each<T, And>;
    case OpKind::bor:
      return each<T, Or>;
    case OpKind::bxor:
      return each<T, ExclusiveOr>;
    default:
      return nullptr;
  }
}

template <class T>
Kernel ordered(OpKind kind) {
  switch (kind) {
    case OpKind::sum:
      return each<T, Sum>;
    case OpKind::prod:
      return each<T, Product>;
    case OpKind::min:
      return each<T, Min>;
    case OpKind::max:
      return each<T, Max>;
    default:
      return nullptr;
  }
}

template <class T>
Kernel integer(OpKind kind) {
  if (const Kernel found = ordered<T>(kind); found != nullptr) return found;
  if (const Kernel found = bits<T>(kind); found != nullptr) return found;
  return logical<T>(kind);
}

template <class T>
Kernel complex(OpKind kind) {
  if (kind == OpKind::sum) return each<Complex<T>, Sum>;
  return kind == OpKind::prod ? each<Complex<T>, Product> : nullptr;
}

template <class Value, class Index>
Kernel location(OpKind kind) {
  if (kind == OpKind::minloc) return each<Pair<Value, Index>, MinLocation>;
  return kind == OpKind::maxloc ? each<Pair<Value, Index>, MaxLocation> : nullptr;
}

Kernel pair_kernel(OpKind kind, const Type& type) {
  const MPI_Datatype handle = handle_of(&type);
  if (handle == MPI_FLOAT_INT) return location<float, int>(kind);
  if (handle == MPI_DOUBLE_INT) return location<double, int>(kind);
  if (handle == MPI_LONG_INT) return location<long, int>(kind);
  if (handle == MPI_2INT || handle == MPI_2INTEGER) return location<int, int>(kind);
  if (handle == MPI_SHORT_INT) return location<short, int>(kind);
  if (handle == MPI_LONG_DOUBLE_INT) return location<long double, int>(kind);
  if (handle == MPI_2REAL) return location<float, float>(kind);
  if (handle == MPI_2DOUBLE_PRECISION) return location<double, double>(kind);
  return nullptr;
}

Kernel logical_kernel(OpKind kind, MPI_Count bytes) {
  switch (bytes) {
    case 1:
      return logical<Logical<1>::type>(kind);
    case 2:
      return logical<Logical<2>::type>(kind);
    case 4:
      return logical<Logical<4>::type>(kind);
    case 8:
      return logical<Logical<8>::type>(kind);
    case 16:
      return logical<UnsignedInt128>(kind);
    default:
      return nullptr;
  }
}

Kernel float_kernel(OpKind kind, Basic basic) {
  switch (basic) {
    case Basic::float32:
      return ordered<float>(kind);
    case Basic::float64:
      return ordered<double>(kind);
    case Basic::long_double:
      return ordered<long double>(kind);
    case Basic::complex_float:
      return complex<float>(kind);
    case Basic::complex_double:
      return complex<double>(kind);
    case Basic::complex_long_double:
      return complex<long double>(kind);
#ifdef __FLT16_MAX__
    case Basic::float16:
      return ordered<_Float16>(kind);
    case Basic::complex_half:
      return complex<_Float16>(kind);
#endif
#ifdef __SIZEOF_FLOAT128__
    case Basic::float128:
      return ordered<__float128>(kind);
    case Basic::complex_quad:
      return complex<__float128>(kind);
#elif __LDBL_MANT_DIG__ == 113
    case Basic::float128:
      return ordered<long double>(kind);
    case Basic::complex_quad:
      return complex<long double>(kind);
#endif
    default:
      return nullptr;
  }
}

Kernel kernel_of(OpKind kind, const Type& type) {
  switch (type.basic) {
    case Basic::int8:
      return integer<std::int8_t>(kind);
    case Basic::int16:
      return integer<std::int16_t>(kind);
    case Basic::int32:
      return integer<std::int32_t>(kind);
    case Basic::int64:
      return integer<std::int64_t>(kind);
    case Basic::uint8:
      return integer<std::uint8_t>(kind);
    case Basic::uint16:
      return integer<std::uint16_t>(kind);
    case Basic::uint32:
      return integer<std::uint32_t>(kind);
    case Basic::uint64:
      return integer<std::uint64_t>(kind);
    case Basic::logical:
      return logical_kernel(kind, type.size);
    case Basic::byte:
      return type.size == 1 ? bits<std::uint8_t>(kind) : nullptr;
    case Basic::pair:
      return pair_kernel(kind, type);
    case Basic::int128:
      return integer<Int128>(kind);
    default:
      return float_kernel(kind, type.basic);
  }
}

void apply_user(const Op& op, const void* in, void* inout, MPI_Count count, const Type& type) {
  MPI_Datatype handle = handle_of(&type);
  auto* from = static_cast<std::byte*>(const_cast<void*>(in));
  auto* to = static_cast<std::byte*>(inout);
  if (op.fn_large != nullptr) return op.fn_large(from, to, &count, &handle);
  while (count > 0) {
    int now = count > INT_MAX ? INT_MAX : static_cast<int>(count);
    const int made = now;
    op.fn(from, to, &now, &handle);
    from += made * type.extent;
    to += made * type.extent;
    count -= made;
  }
}

}  // namespace

const char* name_of(OpKind kind) {
  constexpr const char* kNames[] = {"the user's operator",
                                    "MPI_SUM",
                                    "MPI_MIN",
                                    "MPI_MAX",
                                    "MPI_PROD",
                                    "MPI_BAND",
                                    "MPI_BOR",
                                    "MPI_BXOR",
                                    "MPI_LAND",
                                    "MPI_LOR",
                                    "MPI_LXOR",
                                    "MPI_MINLOC",
                                    "MPI_MAXLOC",
                                    "MPI_REPLACE",
                                    "MPI_NO_OP"};
  return kNames[static_cast<std::size_t>(kind)];
}

int check_op(const Op& op, const Type& type) {
  if (op.kind == OpKind::user || op.kind == OpKind::replace || op.kind == OpKind::no_op) return MPI_SUCCESS;
  if (!type.predefined)
    return error(MPI_ERR_OP,
                 "%s: it takes predefined types, and this one is derived; make an operator by MPI_Op_create",
                 name_of(op.kind));
  if (kernel_of(op.kind, type) != nullptr) return MPI_SUCCESS;
  return error(MPI_ERR_OP, "%s: it does not take elements of %s", name_of(op.kind),
               type.name.empty() ? "this type" : type.name.c_str());
}

void apply(const Op& op, const void* in, void* inout, MPI_Count count, const Type& type) {
  switch (op.kind) {
    case OpKind::user:
      return apply_user(op, in, inout, count, type);
    case OpKind::replace:
      return copy(in, count, type, inout, count, type);
    case OpKind::no_op:
      return;
    default:
      break;
  }
  const Kernel kernel = kernel_of(op.kind, type);
  if (kernel != nullptr) kernel(in, inout, count);
}

}  // namespace heddle::mpi
