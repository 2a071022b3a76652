// Times of single operations: a counter that is read within nanoseconds, what reading it costs, and
// the core's own clock.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include <vector>

#include "harness/channel.hpp"
#include "harness/spread.hpp"

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
