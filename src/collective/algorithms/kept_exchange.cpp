// Few bytes from every rank to every rank through memory of the schedule's own: nobody waits until
// a peer begins. Each rank puts a block into its own slot at each other rank. That rank copies the
// block to the caller's memory and gives the slot back.
//   counter 0      blocks that have arrived; a rank that is a run ahead cannot add to it, since its
//                  slot is not free yet
//   counter 1 + r  my slot at rank r is free; initially free
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

// `given(r)`: the block for rank r.
Schedule exchange(const AlgorithmRequest& request, auto&& given) {
  constexpr std::uint32_t kFull = 0;
  constexpr std::uint32_t kFree = 1;
  const Rank n = request.ranks;
  const auto result = [&](Rank rank) { return Block{Place::receive, rank * request.bytes, request.bytes}; };
  const auto slot = [&](Rank rank) { return Block{Place::scratch, rank * request.bytes, request.bytes}; };
  Builder builder(request);
  builder.scratch(n * request.bytes);
  builder.counter(kFull, n - 1);
  for (Rank step = 1; step < n; ++step) {
    const Rank other = (request.rank + step) % n;
    builder.counter(kFree + other, 1, 1);
    wait(give_shared(builder.put(0, given(other), other, slot(request.rank)), kFull), kFree + other, 1);
  }
  builder.copy(0, given(request.rank), result(request.rank));
  for (Rank step = 1; step < n; ++step) {
    const Rank other = (request.rank + n - step) % n;
    wait(builder.copy(0, slot(other), result(other)), kFull, n - 1);
    builder.signal(0, other, kFree + request.rank);
  }
  return builder.take();
}

}  // namespace

Schedule allgather_kept(const AlgorithmRequest& request) {
  return exchange(request, [&](Rank) { return Block{Place::send, 0, request.bytes}; });
}

Schedule alltoall_kept(const AlgorithmRequest& request) {
  return exchange(request, [&](Rank rank) { return Block{Place::send, rank * request.bytes, request.bytes}; });
}

}  // namespace heddle::collective
