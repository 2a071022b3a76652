// Barriers: in steps that all ranks do alike, or at one rank.
//
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

// Everything at one rank, rank by rank: for few ranks. That rank takes a cache line from each of
// the others and gives one to each. A tree's steps are cheaper only from about eight ranks on. If
// there are fewer cores than ranks, every rank needs a core only once in each run, not once in each
// step.
//   counter 0      all ranks have arrived
//   counter r      at rank 0: rank r has arrived
Schedule barrier_flat(const AlgorithmRequest& request) {
  Builder builder(request);
  if (request.rank != 0) {
    builder.counter(0, 1);
    builder.signal(0, 0, request.rank);
    wait(builder.nop(0), 0, 1);
    return builder.take();
  }
  for (Rank other = 1; other < request.ranks; ++other) {
    builder.counter(other, 1);
    wait(builder.nop(0), other, 1);
  }
  for (Rank other = 1; other < request.ranks; ++other) builder.signal(0, other, 0);
  return builder.take();
}

}  // namespace heddle::collective
