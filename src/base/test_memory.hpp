// Memory that runs out when a test says so. test_memory.cpp replaces operator new, so tests that
// use this are in programs of their own.
#pragma once

#include <gtest/gtest.h>

#include "base/test_support.hpp"

namespace heddle::test {

// Number of allocations of this thread that still succeed; negative: all succeed.
inline thread_local long allocations_left = -1;
inline thread_local bool allocation_failed = false;

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
