// Few bytes between many ranks, in log2 n steps instead of n - 1 [Bruck et al. 1997]. All data goes
// through memory of the schedule's own, so no rank waits until a peer begins.
//   counter 2k      the data of step k has arrived
//   counter 2k + 1  the memory for step k at this rank's target is free; initially free
#include <bit>

#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

// Steps until each of n ranks has data from all.
std::uint32_t steps_for(Rank n) {
  return n <= 1 ? 0 : static_cast<std::uint32_t>(std::bit_width(n - 1));
}

}  // namespace

// Block i of the scratch is that of rank (this + i) mod n. In step k a rank sends its first 2^k
// blocks, or as many as are missing, to the rank 2^k before it, where they follow the blocks
// already there.
Schedule allgather_bruck(const AlgorithmRequest& request) {
  const Rank n = request.ranks;
  const Rank rank = request.rank;
  const std::uint64_t bytes = request.bytes;
  const std::uint32_t steps = steps_for(n);
  Builder builder(request);
  builder.scratch(n * bytes);
  const auto blocks = [&](Rank first, Rank count) { return Block{Place::scratch, first * bytes, count * bytes}; };
  builder.copy(0, {Place::send, 0, bytes}, blocks(0, 1));
  for (std::uint32_t step = 0; step < steps; ++step) {
    const Rank distance = Rank{1} << step;
    const Rank count = std::min(distance, n - distance);
    builder.counter(full_counter(step), 1).counter(free_counter(step), 1, 1);
    const Rank target = (rank + n - distance) % n;
    wait(give(builder.put(0, blocks(0, count), target, blocks(distance, count)), full_counter(step)),
         free_counter(step), 1);
    wait(builder.nop(0), full_counter(step), 1);
  }
  builder.copy(0, blocks(0, n - rank), {Place::receive, rank * bytes, (n - rank) * bytes});
  if (rank > 0) builder.copy(0, blocks(n - rank, rank), {Place::receive, 0, rank * bytes});
  for (std::uint32_t step = 0; step < steps; ++step)
    builder.signal(0, (rank + (Rank{1} << step)) % n, free_counter(step));
  return builder.take();
}

// Block i goes to the rank i after this one. In step k the blocks whose i has bit k go 2^k ranks
// further: packed together, then sent.
Schedule alltoall_bruck(const AlgorithmRequest& request) {
  const Rank n = request.ranks;
  const Rank rank = request.rank;
  const std::uint64_t bytes = request.bytes;
  const std::uint32_t steps = steps_for(n);
  Builder builder(request);
  std::vector<Block> at(n);  // where block i is now
  for (Rank i = 0; i < n; ++i) at[i] = {Place::send, (rank + i) % n * bytes, bytes};
  for (std::uint32_t step = 0; step < steps; ++step) {
    const Rank distance = Rank{1} << step;
    std::vector<Rank> going;
    for (Rank i = distance; i < n; ++i)
      if ((i & distance) != 0) going.push_back(i);
    const std::uint64_t all = going.size() * bytes;
    const std::uint64_t packed = builder.scratch(all);
    const std::uint64_t slot = builder.scratch(all);
    for (std::size_t j = 0; j < going.size(); ++j)
      builder.copy(0, at[going[j]], {Place::scratch, packed + j * bytes, bytes});
    builder.counter(full_counter(step), 1).counter(free_counter(step), 1, 1);
    wait(give(builder.put(0, {Place::scratch, packed, all}, (rank + distance) % n, {Place::scratch, slot, all}),
              full_counter(step)),
         free_counter(step), 1);
    wait(builder.nop(0), full_counter(step), 1);
    for (std::size_t j = 0; j < going.size(); ++j) at[going[j]] = {Place::scratch, slot + j * bytes, bytes};
  }
  // Block i has come from the rank i before this one.
  for (Rank i = 0; i < n; ++i) builder.copy(0, at[i], {Place::receive, (rank + n - i) % n * bytes, bytes});
  for (std::uint32_t step = 0; step < steps; ++step)
    builder.signal(0, (rank + n - (Rank{1} << step) % n) % n, free_counter(step));
  return builder.take();
}

}  // namespace heddle::collective
