// Inclusive scan by recursive doubling [Hillis, Steele 1986]: in step j a rank gives the sum of its
// last 2^j values to the rank 2^j after it, which adds that sum on the left. One slot per step,
// filled by one rank, initially free.
//   counter 2j      slot of step j is full
//   counter 2j + 1  the slot of step j that this rank fills is free
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {

Schedule scan_doubling(const AlgorithmRequest& request) {
  Builder builder(request);
  const std::uint64_t bytes = request.bytes;
  const Block sum{Place::receive, 0, bytes};
  builder.copy(0, {Place::send, 0, bytes}, sum);
  std::uint32_t step = 0;
  for (std::uint64_t distance = 1; distance < request.ranks; distance *= 2, ++step) {
    const std::uint32_t full = 2 * step;
    const Block slot =
        bytes <= kBesideBytes ? beside(full, bytes) : Block{Place::scratch, builder.scratch(bytes), bytes};
    const std::uint32_t free = 2 * step + 1;
    if (request.rank + distance < request.ranks) {
      builder.counter(free, 1, 1);
      const auto next = static_cast<Rank>(request.rank + distance);
      wait(give(builder.put(0, sum, next, slot), full), free, 1);
    }
    if (request.rank < distance) continue;
    builder.counter(full, 1);
    wait(builder.reduce(0, slot, sum), full, 1);
    builder.signal(0, static_cast<Rank>(request.rank - distance), free);
  }
  return builder.take();
}

}  // namespace heddle::collective
