// put, get and related functions. The direct path is here, inlined into the C functions; everything
// else goes by messages (post_put …).
#pragma once

#include <cstring>
#include <type_traits>

#include "openshmem/state.hpp"

namespace heddle::shmem {

enum class Until : bool { posted, complete };  // for nonblocking forms; for blocking forms

void post_put(Call call, ShmemContext& context, void* dest, const void* source, std::size_t bytes, int pe, Until until);
void post_get(Call call, ShmemContext& context, void* dest, const void* source, std::size_t bytes, int pe, Until until);

// `blocks` blocks, each `dest_stride` / `source_stride` bytes after the one before.
struct Strided {
  std::size_t block_bytes;
  std::size_t blocks;
  std::size_t dest_stride;
  std::size_t source_stride;
};
void post_put_strided(Call call, ShmemContext& context, void* dest, const void* source, const Strided& shape, int pe);
void post_get_strided(Call call, ShmemContext& context, void* dest, const void* source, const Strided& shape, int pe);

struct Signal {
  std::uint64_t* address;
  std::uint64_t value;
  int op;
};
void post_put_signal(Call call, ShmemContext& context, void* dest, const void* source, std::size_t bytes,
                     const Signal& signal, int pe, Until until);

[[gnu::cold]] void post_atomic(Call call, ShmemContext& context, heddle_atomic_op op, void* dest, std::uint64_t operand,
                               int pe);
// Returns the old value; a 32-bit value in the low half. `compare` is used only by compare-swap.
[[gnu::cold]] std::uint64_t post_fetch_atomic(Call call, ShmemContext& context, heddle_atomic_op op, const void* dest,
                                              std::uint64_t operand, std::uint64_t compare, int pe);
// The old value is in fetch.result when quiet returns.
[[gnu::cold]] void post_fetch_atomic_nbi(Call call, ShmemContext& context, heddle_atomic_op op, const void* dest,
                                         const heddle_fetch& fetch, int pe);

// An element of the functions whose name contains a size.
template <std::size_t kBytes>
struct SizedElement {
  std::byte bytes[kBytes];
};

// The bytes of n elements, or SIZE_MAX on overflow: more than any memory.
template <class T>
constexpr std::size_t bytes_of(std::size_t n) {
  return n > SIZE_MAX / sizeof(T) ? SIZE_MAX : n * sizeof(T);
}

void put_bytes(ShmemContext& context, void* dest, const void* source, std::size_t bytes, int pe, Call call);
void get_bytes(ShmemContext& context, void* dest, const void* source, std::size_t bytes, int pe, Call call);
void put_bytes_nbi(ShmemContext& context, void* dest, const void* source, std::size_t bytes, int pe, Call call);
void get_bytes_nbi(ShmemContext& context, void* dest, const void* source, std::size_t bytes, int pe, Call call);
void put_blocks(ShmemContext& context, void* dest, const void* source, const Strided& shape, int pe, Call call);
void get_blocks(ShmemContext& context, void* dest, const void* source, const Strided& shape, int pe, Call call);
void put_bytes_signal(ShmemContext& context, void* dest, const void* source, std::size_t bytes, const Signal& signal,
                      int pe, Until until, Call call);
// Ends the job unless both strides are at least `block_elements` elements.
Strided checked_shape(Call call, std::size_t element_bytes, std::ptrdiff_t dst, std::ptrdiff_t sst,
                      std::size_t block_elements, std::size_t blocks);

// Most small transfers are one element or 8 bytes. They have their own path, whose length is known
// at compile time.
template <class T>
inline constexpr std::size_t kFew = sizeof(T) == 1 ? 8 : 1;
template <class T>
// 0: too long
inline constexpr std::size_t kFewBytes = kFew<T> * sizeof(T) <= 8 ? kFew<T> * sizeof(T) : 0;

// False: the transfer does not have that length, or is not direct. An aligned transfer is a single
// access.
template <class T, class C>
[[gnu::always_inline]] inline bool put_few(C& context, T* dest, const T* source, std::size_t nelems, int pe) {
  if (kFewBytes<T> == 0 || nelems != kFew<T>) return false;
  std::byte* to = direct(context, dest, kFewBytes<T>, pe);
  if (to == nullptr) return false;
  std::memcpy(to, source, kFewBytes<T>);
  return true;
}
template <class T, class C>
[[gnu::always_inline]] inline bool get_few(C& context, T* dest, const T* source, std::size_t nelems, int pe) {
  if (kFewBytes<T> == 0 || nelems != kFew<T>) return false;
  const std::byte* from = direct(context, source, kFewBytes<T>, pe);
  if (from == nullptr) return false;
  std::memcpy(dest, from, kFewBytes<T>);
  return true;
}

template <class T, class C>
inline void put(Call call, C&& context, T* dest, const T* source, std::size_t nelems, int pe) {
  if (put_few(context, dest, source, nelems, pe)) return;
  put_bytes(context_of(context), dest, source, bytes_of<T>(nelems), pe, call);
}
template <class T, class C>
inline void get(Call call, C&& context, T* dest, const T* source, std::size_t nelems, int pe) {
  if (get_few(context, dest, source, nelems, pe)) return;
  get_bytes(context_of(context), dest, source, bytes_of<T>(nelems), pe, call);
}
template <class T, class C>
inline void put_nbi(Call call, C&& context, T* dest, const T* source, std::size_t nelems, int pe) {
  if (put_few(context, dest, source, nelems, pe)) return;
  put_bytes_nbi(context_of(context), dest, source, bytes_of<T>(nelems), pe, call);
}
template <class T, class C>
inline void get_nbi(Call call, C&& context, T* dest, const T* source, std::size_t nelems, int pe) {
  if (get_few(context, dest, source, nelems, pe)) return;
  get_bytes_nbi(context_of(context), dest, source, bytes_of<T>(nelems), pe, call);
}
template <class T, class C>
inline void iput(Call call, C&& context, T* dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
                 std::size_t nelems, int pe) {
  put_blocks(context_of(context), dest, source, checked_shape(call, sizeof(T), dst, sst, 1, nelems), pe, call);
}
template <class T, class C>
inline void iget(Call call, C&& context, T* dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
                 std::size_t nelems, int pe) {
  get_blocks(context_of(context), dest, source, checked_shape(call, sizeof(T), dst, sst, 1, nelems), pe, call);
}
template <class T, class C>
inline void ibput(Call call, C&& context, T* dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
                  std::size_t bsize, std::size_t nblocks, int pe) {
  put_blocks(context_of(context), dest, source, checked_shape(call, sizeof(T), dst, sst, bsize, nblocks), pe, call);
}
template <class T, class C>
inline void ibget(Call call, C&& context, T* dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
                  std::size_t bsize, std::size_t nblocks, int pe) {
  get_blocks(context_of(context), dest, source, checked_shape(call, sizeof(T), dst, sst, bsize, nblocks), pe, call);
}
inline bool is_signal(const std::uint64_t* address, int op) {
  return (op == SHMEM_SIGNAL_SET || op == SHMEM_SIGNAL_ADD) && is_aligned(address, sizeof(std::uint64_t));
}
// Requires is_signal() and direct memory.
inline void change_word(std::byte* word, std::uint64_t signal, int op) {
  auto* at = reinterpret_cast<std::uint64_t*>(word);
  // Release: the data before the signal. Partner: the acquire load of shmem_signal_fetch, of the
  // wait functions, or of the program.
  if (op == SHMEM_SIGNAL_SET) {
    __atomic_store_n(at, signal, __ATOMIC_RELEASE);
  } else {
    __atomic_fetch_add(at, signal, __ATOMIC_RELEASE);
  }
}
// False as in put_few(); then nothing has been put.
template <class T, class C>
[[gnu::always_inline]] inline bool put_few_signal(C& context, T* dest, const T* source, std::size_t nelems,
                                                  std::uint64_t* sig_addr, std::uint64_t signal, int sig_op, int pe) {
  if (kFewBytes<T> == 0 || nelems != kFew<T> || !is_signal(sig_addr, sig_op)) return false;
  std::byte* word = direct(context, sig_addr, sizeof *sig_addr, pe);
  if (word == nullptr || !put_few(context, dest, source, nelems, pe)) return false;
  change_word(word, signal, sig_op);
  return true;
}

template <class T, class C>
inline void put_signal(Call call, C&& context, T* dest, const T* source, std::size_t nelems, std::uint64_t* sig_addr,
                       std::uint64_t signal, int sig_op, int pe) {
  if (put_few_signal(context, dest, source, nelems, sig_addr, signal, sig_op, pe)) return;
  put_bytes_signal(context_of(context), dest, source, bytes_of<T>(nelems), {sig_addr, signal, sig_op}, pe,
                   Until::complete, call);
}
template <class T, class C>
inline void put_signal_nbi(Call call, C&& context, T* dest, const T* source, std::size_t nelems,
                           std::uint64_t* sig_addr, std::uint64_t signal, int sig_op, int pe) {
  if (put_few_signal(context, dest, source, nelems, sig_addr, signal, sig_op, pe)) return;
  put_bytes_signal(context_of(context), dest, source, bytes_of<T>(nelems), {sig_addr, signal, sig_op}, pe,
                   Until::posted, call);
}

// Single elements. Up to 8 bytes they are one access, so that a thread that waits for a value never
// sees half of it.
template <class T>
inline constexpr bool kSingleAccess = sizeof(T) <= 8;

// Not direct. Not inlined, so that the direct path keeps everything in registers.
template <class T>
[[gnu::noinline, gnu::cold]] void post_p(Call call, ShmemContext& context, T* dest, T value, int pe) {
  post_put(call, context, dest, &value, sizeof(T), pe, Until::complete);
}
template <class T>
[[gnu::noinline, gnu::cold]] T post_g(Call call, ShmemContext& context, const T* source, int pe) {
  T value{};
  post_get(call, context, &value, source, sizeof(T), pe, Until::complete);
  return value;
}

template <class T, class C>
inline void p(Call call, C&& context, T* dest, T value, int pe) {
  std::byte* to = direct(context, dest, sizeof(T), pe);
  if (to == nullptr) [[unlikely]] {
    return post_p(call, context_of(context), dest, value, pe);
  }
  if constexpr (kSingleAccess<T>) {
    __atomic_store(reinterpret_cast<T*>(to), &value, __ATOMIC_RELAXED);
  } else {
    std::memcpy(to, &value, sizeof(T));
  }
}

template <class T, class C>
inline T g(Call call, C&& context, const T* source, int pe) {
  const std::byte* from = direct(context, source, sizeof(T), pe);
  if (from == nullptr) [[unlikely]] {
    return post_g(call, context_of(context), source, pe);
  }
  T value;
  if constexpr (kSingleAccess<T>) {
    __atomic_load(reinterpret_cast<const T*>(from), &value, __ATOMIC_RELAXED);
  } else {
    std::memcpy(&value, from, sizeof(T));
  }
  return value;
}

void change_signal(ShmemContext& context, std::uint64_t* sig_addr, std::uint64_t signal, int op, int pe, Call call);
template <class C>
inline void signal_add(Call call, C&& context, std::uint64_t* sig_addr, std::uint64_t signal, int pe) {
  change_signal(context_of(context), sig_addr, signal, SHMEM_SIGNAL_ADD, pe, call);
}
template <class C>
inline void signal_set(Call call, C&& context, std::uint64_t* sig_addr, std::uint64_t signal, int pe) {
  change_signal(context_of(context), sig_addr, signal, SHMEM_SIGNAL_SET, pe, call);
}

}  // namespace heddle::shmem
