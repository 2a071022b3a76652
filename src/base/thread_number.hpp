// A small number for the calling thread, unique among the live threads that have one, so that
// per-thread places can be an array. A thread that ends gives its number to a later one, which then
// sees all that was written there.
//
// Process-wide, like the threads themselves: a number says nothing about any context.
#pragma once

#include <cstdint>

namespace heddle::base {

inline constexpr std::uint32_t kThreadNumbers = 128;
// all are taken: more threads than numbers
inline constexpr std::uint32_t kNoThreadNumber = kThreadNumbers;

namespace detail {
// number + 1; 0: none was asked for yet. initial-exec: reached without a call, as libraries that
// are linked may.
extern thread_local constinit std::uint32_t t_thread_number [[gnu::tls_model("initial-exec")]];
std::uint32_t take_thread_number();
}  // namespace detail

// Below kThreadNumbers, or kNoThreadNumber. Constant for a thread, but for one that found none: it
// keeps kNoThreadNumber.
inline std::uint32_t thread_number() {
  const std::uint32_t known = detail::t_thread_number;
  return known != 0 ? known - 1 : detail::take_thread_number();
}

// 1 + the calling thread's number if it is known and has one, else 0: for hot paths, one comparison
// instead of thread_number()'s two.
inline std::uint32_t known_thread_number() {
  const std::uint32_t known = detail::t_thread_number;
  return known - 1 < kThreadNumbers ? known : 0;
}

// Names the calling thread, whether or not it has a number. Never null.
inline const void* thread_mark() {
  return &detail::t_thread_number;
}

}  // namespace heddle::base
