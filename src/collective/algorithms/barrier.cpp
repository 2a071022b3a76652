// Dissemination barrier [Hensgen, Finkel, Manber 1988]: with radix n, in step j each rank signals
// the ranks k * n^j after it, for k from 1 to n - 1, and waits for those equally far before it.
// Each signal has a counter of its own. A rank can be at most one run ahead; its credits are kept.
//
// The cost of a step is the time until a waiting rank gets a core, if there are fewer cores than
// ranks, or a path through the network. An additional signal costs a cache line, or a message.
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

Schedule disseminate(const AlgorithmRequest& request, std::uint64_t radix) {
  Builder builder(request);
  std::uint32_t told = 0;   // counters signalled so far
  std::uint32_t heard = 0;  // counters waited for
  for (std::uint64_t distance = 1; distance < request.ranks; distance *= radix) {
    const std::uint32_t before = told;
    for (; heard + 1 < before; ++heard) wait(builder.nop(0), heard, 1);
    for (std::uint64_t k = 1; k < radix && k * distance < request.ranks; ++k, ++told) {
      builder.counter(told, 1);
      ScheduleCommand& tell = builder.signal(0, static_cast<Rank>((request.rank + k * distance) % request.ranks), told);
      if (heard < before) wait(tell, heard++, 1);
    }
  }
  for (; heard < told; ++heard) wait(builder.nop(0), heard, 1);
  return builder.take();
}

}  // namespace

Schedule barrier_dissemination(const AlgorithmRequest& request) {
  return disseminate(request, 2);
}

Schedule barrier_wide(const AlgorithmRequest& request) {
  return disseminate(request, 8);
}

}  // namespace heddle::collective
