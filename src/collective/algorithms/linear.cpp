// The root, or everybody, with each of the others: gather, scatter, alltoall.
//
// Blocks go straight into the caller's memory, so their receiver says first that its run has begun.
//   counter 0      blocks that have come
//   counter 1 + r  rank r has begun
//   queue 0        the blocks; queue 1: the news, and the wait of who only receives
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

constexpr std::uint32_t kBlocks = 0;
constexpr std::uint32_t kBegun = 1;

}  // namespace

Schedule gather_linear(const Request& request) {
  Builder builder(request);
  const Block given{Place::send, 0, request.bytes};
  const Block place{Place::receive, request.rank * request.bytes, request.bytes};
  if (request.rank != request.root) {
    builder.counter(kBegun, 1);
    wait(give_shared(builder.put(0, given, request.root, place), kBlocks), kBegun, 1);
    return builder.take();
  }
  builder.counter(kBlocks, request.ranks - 1);
  for (Rank other = 0; other < request.ranks; ++other)
    if (other != request.root) builder.signal(1, other, kBegun);
  builder.copy(1, given, place);
  if (request.ranks > 1) wait(builder.nop(1), kBlocks, request.ranks - 1);
  return builder.take();
}

Schedule scatter_linear(const Request& request) {
  Builder builder(request);
  const Block own{Place::receive, 0, request.bytes};
  const auto given = [&](Rank rank) { return Block{Place::send, rank * request.bytes, request.bytes}; };
  if (request.rank != request.root) {
    builder.counter(kBlocks, 1);
    builder.signal(1, request.root, kBegun + request.rank);
    wait(builder.nop(1), kBlocks, 1);
    return builder.take();
  }
  for (Rank step = 1; step < request.ranks; ++step) {
    const Rank other = (request.root + step) % request.ranks;
    builder.counter(kBegun + other, 1);
    wait(give(builder.put(0, given(other), other, own), kBlocks), kBegun + other, 1);
  }
  builder.copy(1, given(request.rank), own);
  return builder.take();
}

// In step i with the ranks i before and after, so that nobody is everybody's target at once.
Schedule alltoall_pairwise(const Request& request) {
  Builder builder(request);
  const Rank n = request.ranks;
  const Block place{Place::receive, request.rank * request.bytes, request.bytes};
  const auto given = [&](Rank rank) { return Block{Place::send, rank * request.bytes, request.bytes}; };
  builder.counter(kBlocks, n - 1);
  for (Rank step = 1; step < n; ++step) builder.signal(1, (request.rank + n - step) % n, kBegun + request.rank);
  builder.copy(1, given(request.rank), place);
  for (Rank step = 1; step < n; ++step) {
    const Rank other = (request.rank + step) % n;
    builder.counter(kBegun + other, 1);
    wait(give_shared(builder.put(0, given(other), other, place), kBlocks), kBegun + other, 1);
  }
  if (n > 1) wait(builder.nop(1), kBlocks, n - 1);
  return builder.take();
}

}  // namespace heddle::collective
