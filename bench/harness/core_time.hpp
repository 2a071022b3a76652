// The time of a core: a computation of a given length, and stamps of single operations.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/channel.hpp"
#include "harness/statistics.hpp"

namespace heddle::bench::harness {

// Cycles of this core per nanosecond, now: what a chain of additions runs at, one a cycle, so that
// no access to counters is needed.
double core_ghz();

// A computation of a given length: an amount of work, not of time, so a thread that loses its core
// meanwhile takes longer. Also the speed of the core.
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

// Times of single operations: a counter that is read within nanoseconds, what reading it costs, and
// the core's own clock.

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace heddle::bench::harness {

// Returns ticks. All instructions before it have been executed, and none after it has begun.
inline std::uint64_t stamp() {
#if defined(__x86_64__)
  unsigned int processor = 0;
  const std::uint64_t ticks = __rdtscp(&processor);
  _mm_lfence();
  return ticks;
#elif defined(__aarch64__)
  std::uint64_t ticks = 0;
  asm volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks) : : "memory");
  return ticks;
#else
  return now_ns();
#endif
}

struct TickRate {
  double ns_per_tick = 1;
  // between two stamps with nothing between them: to be taken off each measured time
  double empty_ns = 0;
  double core_ghz = 1;  // cycles of this core per nanosecond, now
};

// Takes about 4 ms.
TickRate measure_ticks();

// The three figures of posting and waiting: t1 - t0 in ns and in cycles, t2 - t0 in ns. Of ticks.
std::vector<double> times_of(const Spread& post, const Spread& total, const TickRate& rate);

}  // namespace heddle::bench::harness
