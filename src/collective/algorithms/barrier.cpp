// Dissemination barrier [Hensgen, Finkel, Manber 1988]: with radix n, in step j everybody tells
// those k * n^j further on, for k from 1 to n - 1, and waits for those that are as far before. Each
// tells a counter of its own; a rank can be one run ahead at most, whose credits are kept.
//
// A step is the time until a rank that has none gets a core, where there are fewer cores than
// ranks, or a way through the network; a signal more is a line, or a message.
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

Schedule disseminate(const Request& request, std::uint64_t radix) {
  Builder builder(request);
  std::uint32_t told = 0;   // counters so far
  std::uint32_t heard = 0;  // those that were waited for
  for (std::uint64_t distance = 1; distance < request.ranks; distance *= radix) {
    const std::uint32_t before = told;
    for (; heard + 1 < before; ++heard) wait(builder.nop(0), heard, 1);
    for (std::uint64_t k = 1; k < radix && k * distance < request.ranks; ++k, ++told) {
      builder.counter(told, 1);
      Command& tell = builder.signal(0, static_cast<Rank>((request.rank + k * distance) % request.ranks), told);
      if (heard < before) wait(tell, heard++, 1);
    }
  }
  for (; heard < told; ++heard) wait(builder.nop(0), heard, 1);
  return builder.take();
}

}  // namespace

Schedule barrier_dissemination(const Request& request) {
  return disseminate(request, 2);
}

Schedule barrier_wide(const Request& request) {
  return disseminate(request, 8);
}

}  // namespace heddle::collective
