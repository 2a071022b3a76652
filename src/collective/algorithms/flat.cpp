// Everything at one rank, rank by rank: for few ranks and few bytes. That rank takes a cache line
// from each of the others and gives one to each. A tree's steps are cheaper only from about eight
// ranks on. If there are fewer cores than ranks, every rank needs a core only once in each run, not
// once in each step.
//
// No rank has to ask whether a slot is free: a rank contributes to a run when it has the result of
// the run before, and the root gives a result when it has all contributions.
//   counter 0      the result is here, or all ranks have arrived
//   counter r      at rank 0: rank r has contributed, or has arrived
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {

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

// Combines in the order of ranks, so that the bits of the result are the same in every run.
Schedule allreduce_flat(const AlgorithmRequest& request) {
  Builder builder(request);
  const std::uint64_t bytes = request.bytes;
  const Block given{Place::send, 0, bytes};
  const Block sum{Place::receive, 0, bytes};
  const bool small = bytes <= kBesideBytes;
  const auto slot = [&](Rank rank) {
    return small ? beside(rank, bytes) : Block{Place::scratch, (rank - 1) * bytes, bytes};
  };
  const Block result = small ? beside(0, bytes) : Block{Place::scratch, 0, bytes};
  if (!small) builder.scratch(request.rank == 0 ? (request.ranks - 1) * bytes : bytes);
  if (request.rank != 0) {
    builder.counter(0, 1);
    give(builder.put(0, given, 0, slot(request.rank)), request.rank);
    wait(builder.copy(0, result, sum), 0, 1);
    return builder.take();
  }
  builder.copy(0, given, sum);
  for (Rank other = 1; other < request.ranks; ++other) {
    builder.counter(other, 1);
    wait(builder.reduce(0, slot(other), sum), other, 1);
  }
  for (Rank other = 1; other < request.ranks; ++other) give(builder.put(0, sum, other, result), 0);
  return builder.take();
}

}  // namespace heddle::collective
