// Atomic operations. On direct memory the caller executes the processor's atomic; otherwise
// rma.hpp (post_atomic …) sends a message.
//
// They are acquire and release. The standard asks for less, but programs spin on shmem_atomic_fetch
// and then read the data that the value announces; on x86 this costs nothing.
#pragma once

#include <bit>
#include <type_traits>

#include "openshmem/rma.hpp"
#include "openshmem/state.hpp"

namespace heddle::shmem {

template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T>
constexpr Bits<T> bits_of(T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  return std::bit_cast<Bits<T>>(value);
}

// The 32-bit operation of Heddle, in the width of T.
template <class T>
constexpr heddle_atomic_op wide(heddle_atomic_op of_32_bits) {
  return static_cast<heddle_atomic_op>(of_32_bits + (sizeof(T) == 8 ? HEDDLE_ADD64 - HEDDLE_ADD32 : 0));
}

// Each operation, as the processor's atomic and as Heddle's operation code.
struct Add {
  static constexpr heddle_atomic_op kOp = HEDDLE_ADD32;
  template <class B>
  static B apply(B* at, B operand) {
    return __atomic_fetch_add(at, operand, __ATOMIC_ACQ_REL);
  }
};
struct And {
  static constexpr heddle_atomic_op kOp = HEDDLE_AND32;
  template <class B>
  static B apply(B* at, B operand) {
    return __atomic_fetch_and(at, operand, __ATOMIC_ACQ_REL);
  }
};
struct Or {
  static constexpr heddle_atomic_op kOp = HEDDLE_OR32;
  template <class B>
  static B apply(B* at, B operand) {
    return __atomic_fetch_or(at, operand, __ATOMIC_ACQ_REL);
  }
};
struct Xor {
  static constexpr heddle_atomic_op kOp = HEDDLE_XOR32;
  template <class B>
  static B apply(B* at, B operand) {
    return __atomic_fetch_xor(at, operand, __ATOMIC_ACQ_REL);
  }
};
struct Swap {
  static constexpr heddle_atomic_op kOp = HEDDLE_SWAP32;
  template <class B>
  static B apply(B* at, B operand) {
    return __atomic_exchange_n(at, operand, __ATOMIC_ACQ_REL);
  }
};

template <class T>
constexpr T from_bits(std::uint64_t bits) {
  return std::bit_cast<T>(static_cast<Bits<T>>(bits));
}

// The word on PE `pe` if it is direct, else null. A misaligned word may span two cache lines: an
// atomic on it is very slow on some processors and not atomic on others. It gets null too, and the
// message path reports the error.
template <class T, class C>
[[gnu::always_inline]] inline Bits<T>* direct_word(C& context, const T* dest, int pe) {
  if (!is_aligned(dest, sizeof(T))) [[unlikely]] {
    return nullptr;
  }
  return reinterpret_cast<Bits<T>*>(direct(context, dest, sizeof(T), pe));
}

template <class Op, class T, class C>
[[gnu::always_inline]] inline void update(Call call, C& context, T* dest, T value, int pe) {
  Bits<T>* at = direct_word(context, dest, pe);
  if (at == nullptr) [[unlikely]] {
    return post_atomic(call, context_of(context), wide<T>(Op::kOp), dest, bits_of(value), pe);
  }
  Op::apply(at, bits_of(value));
}

template <class Op, class T, class C>
[[gnu::always_inline]] inline T fetch_update(Call call, C& context, T* dest, T value, int pe) {
  Bits<T>* at = direct_word(context, dest, pe);
  if (at == nullptr) [[unlikely]] {
    return from_bits<T>(post_fetch_atomic(call, context_of(context), wide<T>(Op::kOp), dest, bits_of(value), 0, pe));
  }
  return std::bit_cast<T>(Op::apply(at, bits_of(value)));
}

template <class Op, class T, class C>
[[gnu::always_inline]] inline void fetch_update_nbi(Call call, C& context, T* fetch, T* dest, T value, int pe) {
  Bits<T>* at = direct_word(context, dest, pe);
  if (at == nullptr) [[unlikely]] {
    return post_fetch_atomic_nbi(call, context_of(context), wide<T>(Op::kOp), dest, {bits_of(value), 0, fetch}, pe);
  }
  *fetch = std::bit_cast<T>(Op::apply(at, bits_of(value)));
}

template <class T>
inline T compare_swap_here(Bits<T>* at, T cond, T value) {
  Bits<T> expected = bits_of(cond);
  __atomic_compare_exchange_n(at, &expected, bits_of(value), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return std::bit_cast<T>(expected);
}

template <class T, class C>
inline T atomic_compare_swap(Call call, C&& context, T* dest, T cond, T value, int pe) {
  Bits<T>* at = direct_word(context, dest, pe);
  if (at == nullptr) [[unlikely]] {
    return from_bits<T>(post_fetch_atomic(call, context_of(context), wide<T>(HEDDLE_COMPARE_SWAP32), dest,
                                          bits_of(value), bits_of(cond), pe));
  }
  return compare_swap_here(at, cond, value);
}
template <class T, class C>
inline void atomic_compare_swap_nbi(Call call, C&& context, T* fetch, T* dest, T cond, T value, int pe) {
  Bits<T>* at = direct_word(context, dest, pe);
  if (at == nullptr) [[unlikely]] {
    return post_fetch_atomic_nbi(call, context_of(context), wide<T>(HEDDLE_COMPARE_SWAP32), dest,
                                 {bits_of(value), bits_of(cond), fetch}, pe);
  }
  *fetch = compare_swap_here(at, cond, value);
}

// Over messages a read is an addition of 0: a get of a word is a single access, but is not ordered
// with atomics.
template <class T, class C>
inline T atomic_fetch(Call call, C&& context, const T* source, int pe) {
  const Bits<T>* at = direct_word(context, source, pe);
  if (at == nullptr) [[unlikely]] {
    return from_bits<T>(post_fetch_atomic(call, context_of(context), wide<T>(HEDDLE_ADD32), source, 0, 0, pe));
  }
  return std::bit_cast<T>(__atomic_load_n(at, __ATOMIC_ACQUIRE));
}
template <class T, class C>
inline void atomic_fetch_nbi(Call call, C&& context, T* fetch, const T* source, int pe) {
  const Bits<T>* at = direct_word(context, source, pe);
  if (at == nullptr) [[unlikely]] {
    return post_fetch_atomic_nbi(call, context_of(context), wide<T>(HEDDLE_ADD32), source, {0, 0, fetch}, pe);
  }
  *fetch = std::bit_cast<T>(__atomic_load_n(at, __ATOMIC_ACQUIRE));
}
template <class T, class C>
inline void atomic_set(Call call, C&& context, T* dest, T value, int pe) {
  Bits<T>* at = direct_word(context, dest, pe);
  if (at == nullptr) [[unlikely]] {
    return post_atomic(call, context_of(context), wide<T>(HEDDLE_SWAP32), dest, bits_of(value), pe);
  }
  __atomic_store_n(at, bits_of(value), __ATOMIC_RELEASE);
}

template <class T, class C>
inline T atomic_swap(Call call, C&& context, T* dest, T value, int pe) {
  return fetch_update<Swap>(call, context, dest, value, pe);
}
template <class T, class C>
inline void atomic_swap_nbi(Call call, C&& context, T* fetch, T* dest, T value, int pe) {
  fetch_update_nbi<Swap>(call, context, fetch, dest, value, pe);
}
template <class T, class C>
inline T atomic_fetch_inc(Call call, C&& context, T* dest, int pe) {
  return fetch_update<Add>(call, context, dest, T{1}, pe);
}
template <class T, class C>
inline void atomic_fetch_inc_nbi(Call call, C&& context, T* fetch, T* dest, int pe) {
  fetch_update_nbi<Add>(call, context, fetch, dest, T{1}, pe);
}
template <class T, class C>
inline void atomic_inc(Call call, C&& context, T* dest, int pe) {
  update<Add>(call, context, dest, T{1}, pe);
}
template <class T, class C>
inline T atomic_fetch_add(Call call, C&& context, T* dest, T value, int pe) {
  return fetch_update<Add>(call, context, dest, value, pe);
}
template <class T, class C>
inline void atomic_fetch_add_nbi(Call call, C&& context, T* fetch, T* dest, T value, int pe) {
  fetch_update_nbi<Add>(call, context, fetch, dest, value, pe);
}
template <class T, class C>
inline void atomic_add(Call call, C&& context, T* dest, T value, int pe) {
  update<Add>(call, context, dest, value, pe);
}
template <class T, class C>
inline T atomic_fetch_and(Call call, C&& context, T* dest, T value, int pe) {
  return fetch_update<And>(call, context, dest, value, pe);
}
template <class T, class C>
inline void atomic_fetch_and_nbi(Call call, C&& context, T* fetch, T* dest, T value, int pe) {
  fetch_update_nbi<And>(call, context, fetch, dest, value, pe);
}
template <class T, class C>
inline void atomic_and(Call call, C&& context, T* dest, T value, int pe) {
  update<And>(call, context, dest, value, pe);
}
template <class T, class C>
inline T atomic_fetch_or(Call call, C&& context, T* dest, T value, int pe) {
  return fetch_update<Or>(call, context, dest, value, pe);
}
template <class T, class C>
inline void atomic_fetch_or_nbi(Call call, C&& context, T* fetch, T* dest, T value, int pe) {
  fetch_update_nbi<Or>(call, context, fetch, dest, value, pe);
}
template <class T, class C>
inline void atomic_or(Call call, C&& context, T* dest, T value, int pe) {
  update<Or>(call, context, dest, value, pe);
}
template <class T, class C>
inline T atomic_fetch_xor(Call call, C&& context, T* dest, T value, int pe) {
  return fetch_update<Xor>(call, context, dest, value, pe);
}
template <class T, class C>
inline void atomic_fetch_xor_nbi(Call call, C&& context, T* fetch, T* dest, T value, int pe) {
  fetch_update_nbi<Xor>(call, context, fetch, dest, value, pe);
}
template <class T, class C>
inline void atomic_xor(Call call, C&& context, T* dest, T value, int pe) {
  update<Xor>(call, context, dest, value, pe);
}

}  // namespace heddle::shmem
