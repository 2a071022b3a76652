// Memory that runs out when a test says so. Only one file of a program may include this: it
// replaces operator new.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "base/test_sanitizer.hpp"

namespace heddle::test {

// Number of allocations of this thread that still succeed; negative: all succeed.
inline thread_local long allocations_left = -1;
inline thread_local bool allocation_failed = false;

inline void* take(std::size_t bytes) noexcept {
  if (allocations_left == 0) {
    allocation_failed = true;
    return nullptr;
  }
  if (allocations_left > 0) --allocations_left;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace heddle::test

// NOLINTBEGIN(misc-definitions-in-headers): what replaces these may not be inline
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (void* memory = heddle::test::take(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return heddle::test::take(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  return operator new(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return heddle::test::take(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
// NOLINTEND(misc-definitions-in-headers)

namespace heddle::test {

// While it lives, memory is exhausted after `allocations` more allocations.
class Exhausted {
 public:
  explicit Exhausted(long allocations) {
    allocation_failed = false;
    allocations_left = allocations;
  }
  ~Exhausted() { allocations_left = -1; }
  Exhausted(const Exhausted&) = delete;
  Exhausted& operator=(const Exhausted&) = delete;
};

// Runs `once` with 0, 1, 2, … allocations, until no allocation fails; with ThreadSanitizer with
// some of these numbers.
template <class Once>
void with_every_allocation_failing(Once&& once) {
  for (long allocations = 0; allocations < 10'000; allocations += base::few_if_sanitized(5, 1)) {
    once(allocations);
    if (testing::Test::HasFatalFailure() || !allocation_failed) return;
  }
  FAIL() << "it never had enough";
}

}  // namespace heddle::test
