// Dissemination barrier [Hensgen, Finkel, Manber 1988]: in step j everybody tells the rank 2^j
// further on, and waits for the one 2^j before. Counter j counts step j; a rank can be one run
// ahead at most, whose credits are kept.
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {

Schedule barrier_dissemination(const Request& request) {
  Builder builder(request);
  std::uint32_t step = 0;
  for (std::uint64_t distance = 1; distance < request.ranks; distance *= 2, ++step) {
    builder.counter(step, 1);
    Command& tell = builder.signal(0, static_cast<Rank>((request.rank + distance) % request.ranks), step);
    if (step > 0) wait(tell, step - 1, 1);
  }
  if (step > 0) wait(builder.nop(0), step - 1, 1);
  return builder.take();
}

// The same with seven in each step: those k * 8^j further on, for k from 1 to 7. A step is the time
// until a rank that has none gets a core, where there are fewer cores than ranks, or a way through
// the network; a signal more is a line.
Schedule barrier_wide(const Request& request) {
  constexpr std::uint64_t kRadix = 8;
  Builder builder(request);
  std::uint32_t counters = 0;
  std::uint32_t heard = 0;  // counters that were waited for
  const auto hear = [&] {
    for (; heard < counters; ++heard) wait(builder.nop(0), heard, 1);
  };
  for (std::uint64_t distance = 1; distance < request.ranks; distance *= kRadix) {
    hear();
    for (std::uint64_t k = 1; k < kRadix && k * distance < request.ranks; ++k) {
      builder.counter(counters, 1);
      builder.signal(0, static_cast<Rank>((request.rank + k * distance) % request.ranks), counters++);
    }
  }
  hear();
  return builder.take();
}

}  // namespace heddle::collective
