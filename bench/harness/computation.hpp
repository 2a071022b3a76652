// A computation of a given length: an amount of work, not of time, so a thread that loses its core
// meanwhile takes longer. Also the speed of the core.
#pragma once

#include <cstdint>

namespace heddle::bench::harness {

// Cycles of this core per nanosecond, now: what a chain of additions runs at, one a cycle, so that
// no access to counters is needed.
double core_ghz();

class Computation {
 public:
  Computation();  // finds how fast this core computes when nothing disturbs it; a millisecond
  // As much as an undisturbed core computes in this time.
  void run(std::uint64_t ns);

 private:
  void steps(std::uint64_t count);
  std::uint64_t state_ = 1;
  double steps_per_ns_;
};

}  // namespace heddle::bench::harness
