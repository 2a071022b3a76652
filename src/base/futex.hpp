// The kernel's wait on a 32-bit word. The wait only gives the core away: its result is not used,
// since the caller reads the word again.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace heddle::base {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) &&
              std::atomic<std::uint32_t>::is_always_lock_free);

// The threads that may wait on the word and wake others: those of one process or of several.
// `process` is a little cheaper.
enum class FutexScope : std::uint8_t { process, shared };

// Returns when woken, when *word is not `expected`, after `timeout_ns` (negative: never), or for no
// reason. The kernel's comparison is a full barrier after everything that the caller did before.
inline void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::int64_t timeout_ns,
                       FutexScope scope) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const timespec timeout{static_cast<time_t>(timeout_ns / kSecond), static_cast<long>(timeout_ns % kSecond)};
  const int op = scope == FutexScope::process ? FUTEX_WAIT_PRIVATE : FUTEX_WAIT;
  ::syscall(SYS_futex, word, op, expected, timeout_ns < 0 ? nullptr : &timeout, nullptr, 0);
}

// Only some of the threads that wait on a word may be woken: those whose `bits` share a bit with
// the waker's. Threads that wait by futex_wait() have all bits. `bits` must not be 0: the kernel
// refuses that, and the wait returns at once.
inline void futex_wait_bits(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::int64_t timeout_ns,
                            std::uint32_t bits, FutexScope scope) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  timespec until{};  // this form of the wait takes a time, not a length
  if (timeout_ns >= 0) {
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    const std::int64_t ns = until.tv_nsec + timeout_ns % kSecond;
    until.tv_sec += static_cast<time_t>(timeout_ns / kSecond + ns / kSecond);
    until.tv_nsec = static_cast<long>(ns % kSecond);
  }
  const int op = scope == FutexScope::process ? FUTEX_WAIT_BITSET_PRIVATE : FUTEX_WAIT_BITSET;
  ::syscall(SYS_futex, word, op, expected, timeout_ns < 0 ? nullptr : &until, nullptr, bits);
}
// Returns how many it has woken.
inline int futex_wake_bits(std::atomic<std::uint32_t>* word, std::uint32_t bits, FutexScope scope) {
  const int op = scope == FutexScope::process ? FUTEX_WAKE_BITSET_PRIVATE : FUTEX_WAKE_BITSET;
  return static_cast<int>(::syscall(SYS_futex, word, op, INT_MAX, nullptr, nullptr, bits));
}

inline void futex_wake(std::atomic<std::uint32_t>* word, int most, FutexScope scope) {
  ::syscall(SYS_futex, word, scope == FutexScope::process ? FUTEX_WAKE_PRIVATE : FUTEX_WAKE, most, nullptr, nullptr, 0);
}
inline void futex_wake_all(std::atomic<std::uint32_t>* word, FutexScope scope) {
  futex_wake(word, INT_MAX, scope);
}

}  // namespace heddle::base
