// Allreduce of few bytes by recursive doubling: in step j, ranks whose numbers differ in bit j
// exchange their partial sums. Both compute the same sum of the same two, so all ranks get the same
// bits.
//
// Each rank beyond the largest power of two gives its vector to the rank that is this power below
// it, and gets the result from that rank. Slots, each filled by one rank and initially free:
//   slot 0          from the rank beyond the power; at such a rank: the result
//   slot 1 + j      step j
//   counter 2s      slot s is full
//   counter 2s + 1  the slot s that this rank fills is free
#include <bit>

#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
Schedule allreduce_doubling(const AlgorithmRequest& request) {
  const std::uint64_t bytes = request.bytes;
  const Rank power = std::bit_floor(request.ranks);
  const Rank extra = request.ranks - power;
  const Rank rank = request.rank;
  const auto steps = static_cast<std::uint32_t>(std::countr_zero(power));
  const bool small = bytes <= kBesideBytes;
  const auto slot = [&](std::uint32_t s) {
    return small ? beside(full_counter(s), bytes) : Block{Place::scratch, s * bytes, bytes};
  };
  const Block given{Place::send, 0, bytes};
  const Block sum{Place::receive, 0, bytes};
  Builder builder(request);
  if (!small) builder.scratch((1 + steps) * bytes);
  const auto exchange_with = [&](std::uint32_t s) {
    builder.counter(full_counter(s), 1).counter(free_counter(s), 1, 1);
  };
  const auto fill = [&](std::uint32_t s, const Block& from, Rank target) {
    wait(give(builder.put(0, from, target, slot(s)), full_counter(s)), free_counter(s), 1);
  };
  if (rank >= power) {
    exchange_with(0);
    fill(0, given, rank - power);
    wait(builder.copy(0, slot(0), sum), full_counter(0), 1);
    builder.signal(0, rank - power, free_counter(0));
    return builder.take();
  }
  builder.copy(0, given, sum);
  const auto add = [&](std::uint32_t s, Rank from) {
    wait(builder.reduce(0, slot(s), sum), full_counter(s), 1);
    builder.signal(0, from, free_counter(s));
  };
  if (rank < extra) {
    exchange_with(0);
    add(0, rank + power);
  }
  for (std::uint32_t step = 0; step < steps; ++step) {
    const Rank partner = rank ^ (Rank{1} << step);
    exchange_with(1 + step);
    fill(1 + step, sum, partner);
    add(1 + step, partner);
  }
  if (rank < extra) fill(0, sum, rank + power);
  return builder.take();
}

}  // namespace heddle::collective
