// Dissemination barrier [Hensgen, Finkel, Manber 1988]: in step j everybody tells the rank 2^j further on, and waits for the one
// 2^j before. Counter j counts step j; a rank can be one run ahead at most, whose credits are kept.
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

}  // namespace heddle::collective
