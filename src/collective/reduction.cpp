#include "collective/reduction.hpp"

#include <bit>
#include <cstddef>
#include <cstdio>
#include <type_traits>

namespace heddle::collective {
namespace {

// Not std::complex: its product tests for infinities element by element.
template <class T>
struct Complex {
  T real;
  T imaginary;
};

template <class T>
inline constexpr bool kIsComplex = false;
template <class T>
inline constexpr bool kIsComplex<Complex<T>> = true;

// Integers wrap around: they are computed unsigned, and not as int, in which products of short
// values overflow.
template <class T>
struct Wide {
  using Type = T;
};
template <class T>
  requires std::is_integral_v<T>
struct Wide<T> {
  using Type = std::conditional_t<(sizeof(T) < sizeof(std::uint32_t)), std::uint32_t, std::make_unsigned_t<T>>;
};

struct Sum {
  template <class T>
  static T of(T a, T b) {
    if constexpr (kIsComplex<T>) {
      return {a.real + b.real, a.imaginary + b.imaginary};
    } else {
      using W = typename Wide<T>::Type;
      return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
    }
  }
};

struct Product {
  template <class T>
  static T of(T a, T b) {
    if constexpr (kIsComplex<T>) {
      return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
    } else {
      using W = typename Wide<T>::Type;
      return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
    }
  }
};

// For floating-point values of which neither is less: the same value, zeros of any sign, or a NaN.
// The OR of the bits is, in the first case, that value; for zeros -0 if any is; for a NaN a NaN.
// The AND of the bits is +0 for zeros if any is.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
template <class T>
T both(T a, T b) {
  return std::bit_cast<T>(std::bit_cast<Bits<T>>(a) | std::bit_cast<Bits<T>>(b));
}
template <class T>
T common(T a, T b) {
  return std::bit_cast<T>(std::bit_cast<Bits<T>>(a) & std::bit_cast<Bits<T>>(b));
}

struct Min {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return a < b ? a : b;
    } else {
      const T least = a < b ? a : b;
      return ((a < b) | (b < a)) ? least : both(a, b);
    }
  }
};

struct Max {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return a < b ? b : a;
    } else {
      const T most = a < b ? b : a;
      const T same = a == b ? common(a, b) : both(a, b);
      return ((a < b) | (b < a)) ? most : same;
    }
  }
};

struct BitAnd {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct And {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>((a != 0) & (b != 0));
  }
};
struct Or {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>((a | b) != 0);
  }
};
struct Xor {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>((a != 0) != (b != 0));
  }
};

template <class T, class Operator>
void combine(void* inout, const void* in, std::uint64_t bytes, const void*) {
  T* __restrict to = static_cast<T*>(inout);
  const T* __restrict from = static_cast<const T*>(in);
  const std::size_t elements = bytes / sizeof(T);
  for (std::size_t i = 0; i < elements; ++i) to[i] = Operator::of(to[i], from[i]);
}

template <class T>
Reduction kernel_of(heddle_operator op) {
  switch (op) {
    case HEDDLE_SUM:
      return {combine<T, Sum>, nullptr};
    case HEDDLE_PRODUCT:
      return {combine<T, Product>, nullptr};
    default:
      break;
  }
  if constexpr (!kIsComplex<T>) {
    if (op == HEDDLE_MIN) return {combine<T, Min>, nullptr};
    if (op == HEDDLE_MAX) return {combine<T, Max>, nullptr};
  }
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case HEDDLE_BAND:
        return {combine<T, BitAnd>, nullptr};
      case HEDDLE_BOR:
        return {combine<T, BitOr>, nullptr};
      case HEDDLE_BXOR:
        return {combine<T, BitXor>, nullptr};
      case HEDDLE_LAND:
        return {combine<T, And>, nullptr};
      case HEDDLE_LOR:
        return {combine<T, Or>, nullptr};
      case HEDDLE_LXOR:
        return {combine<T, Xor>, nullptr};
      default:
        break;
    }
  }
  return {};
}

struct Type {
  heddle_type type;
  const char* name;
  std::uint64_t bytes;
  std::uint64_t alignment;
  Reduction (*kernel)(heddle_operator op);
};
template <class T>
constexpr Type row(heddle_type type, const char* name) {
  return {type, name, sizeof(T), alignof(T), kernel_of<T>};
}
constexpr std::array kTypes = {
    row<std::int8_t>(HEDDLE_INT8, "int8"),
    row<std::int16_t>(HEDDLE_INT16, "int16"),
    row<std::int32_t>(HEDDLE_INT32, "int32"),
    row<std::int64_t>(HEDDLE_INT64, "int64"),
    row<std::uint8_t>(HEDDLE_UINT8, "uint8"),
    row<std::uint16_t>(HEDDLE_UINT16, "uint16"),
    row<std::uint32_t>(HEDDLE_UINT32, "uint32"),
    row<std::uint64_t>(HEDDLE_UINT64, "uint64"),
    row<float>(HEDDLE_FLOAT, "float"),
    row<double>(HEDDLE_DOUBLE, "double"),
    row<Complex<float>>(HEDDLE_COMPLEX_FLOAT, "complex float"),
    row<Complex<double>>(HEDDLE_COMPLEX_DOUBLE, "complex double"),
};
constexpr std::array kOperators = {"sum", "product", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor"};

// The value comes from a program: it may be anything.
const Type* find_type(heddle_type type) {
  for (const Type& row : kTypes)
    if (row.type == type) return &row;
  return nullptr;
}
bool exists(heddle_operator op) {
  const auto number = static_cast<std::uint32_t>(op);
  return number >= 1 && number <= kOperators.size();
}

constexpr std::uint32_t kFunction = UINT32_MAX;
constexpr std::uint32_t kOperatorBits = 8;

}  // namespace

const char* name_of(heddle_type type) {
  const Type* found = find_type(type);
  return found == nullptr ? "no type" : found->name;
}

const char* name_of(heddle_operator op) {
  return exists(op) ? kOperators[static_cast<std::uint32_t>(op) - 1] : "no operator";
}

std::uint64_t element_bytes(heddle_type type) {
  const Type* found = find_type(type);
  return found == nullptr ? 0 : found->bytes;
}

Reduction kernel(heddle_type type, heddle_operator op) {
  const Type* found = find_type(type);
  return found == nullptr ? Reduction{} : found->kernel(op);
}

base::Result<NamedReduction> named_reduction(const char* call, const heddle_reduction& from) {
  const auto type_number = static_cast<std::uint32_t>(from.type);
  const auto op_number = static_cast<std::uint32_t>(from.op);
  if (from.fn != nullptr) {
    if (type_number != 0 || op_number != 0) {
      return base::fail(HEDDLE_ERR_ARGUMENT,
                        "%s: the reduction has a function and type %u, operator %u; leave these two 0, or fn null",
                        call, type_number, op_number);
    }
    if (from.element_bytes == 0) {
      return base::fail(HEDDLE_ERR_ARGUMENT,
                        "%s: the reduction has a function and element_bytes 0; say how large an element is", call);
    }
    return NamedReduction{{from.fn, from.arg}, from.element_bytes, 1, kFunction};
  }
  const Type* type = find_type(from.type);
  if (type == nullptr) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s: the reduction has type %u; a heddle_type is 1 to %zu", call,
                      type_number, kTypes.size());
  }
  if (!exists(from.op)) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s: the reduction has operator %u; a heddle_operator is 1 to %zu", call,
                      op_number, kOperators.size());
  }
  const Reduction reduction = type->kernel(from.op);
  if (reduction.combine == nullptr) {
    return base::fail(HEDDLE_ERR_UNSUPPORTED, "%s: the operator %s does not take %s; use a function of your own", call,
                      name_of(from.op), type->name);
  }
  if (from.element_bytes != 0 && from.element_bytes != type->bytes) {
    return base::fail(
        HEDDLE_ERR_ARGUMENT,
        "%s: the reduction has element_bytes %zu, but a %s has %llu; leave it 0 where there is no function", call,
        from.element_bytes, type->name, static_cast<unsigned long long>(type->bytes));
  }
  return NamedReduction{reduction, type->bytes, type->alignment, type_number << kOperatorBits | op_number};
}

std::optional<TypeAndOperator> reduction_of(std::uint32_t name) {
  if (name == 0 || name == kFunction) return std::nullopt;
  return TypeAndOperator{static_cast<heddle_type>(name >> kOperatorBits),
                         static_cast<heddle_operator>(name & ((1U << kOperatorBits) - 1))};
}

std::array<char, 48> reduction_text(std::uint32_t name) {
  std::array<char, 48> text{};
  if (const auto named = reduction_of(name)) {
    std::snprintf(text.data(), text.size(), "%s of %s", name_of(named->op), name_of(named->type));
    return text;
  }
  std::snprintf(text.data(), text.size(), "%s", name == 0 ? "none" : "a function");
  return text;
}

}  // namespace heddle::collective
