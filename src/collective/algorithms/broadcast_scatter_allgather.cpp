// Broadcast of many bytes [van de Geijn]: the root gives each rank a part, then the parts go around
// a ring. Every rank sends and receives each byte about once, the root twice.
//
// Ranks are counted from the root (v). Part v comes from the root, the others from the left
// neighbour, v - 1 first.
//   counter 0        my part has arrived from the root
//   counter 1        parts that have arrived from the left
//   counter 2        the right neighbour has begun
//   counter 3 + v    at the root: rank v has begun
//   queue 0          the root's scattering, and the signals to root and left neighbour
//   queue 1          the ring
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {

Schedule broadcast_scatter_allgather(const AlgorithmRequest& request) {
  constexpr std::uint32_t kMine = 0;
  constexpr std::uint32_t kLeft = 1;
  constexpr std::uint32_t kRight = 2;
  constexpr std::uint32_t kBegun = 3;
  const Rank n = request.ranks;
  const Rank v = (request.rank + n - request.root) % n;
  const auto absolute = [&](Rank relative) { return (relative % n + request.root) % n; };
  const auto block = [&](Rank i) { return part(Place::receive, request.bytes, 1, n, i % n); };
  const bool root = v == 0;
  const bool right_is_root = v + 1 == n;
  Builder builder(request);
  if (n == 1) return builder.take();
  builder.counter(kMine, root ? 0 : 1).counter(kLeft, root ? 0 : n - 1).counter(kRight, right_is_root ? 0 : 1);
  if (root) {
    for (Rank i = 1; i < n; ++i) {
      builder.counter(kBegun + i, 1);
      wait(give(builder.put(0, block(i), absolute(i), block(i)), kMine), kBegun + i, 1);
    }
  } else {
    builder.signal(0, request.root, kBegun + v);
    builder.signal(0, absolute(v + n - 1), kRight);
  }
  for (Rank step = 0; step + 1 < n && !right_is_root; ++step) {
    const Block now = block(v + n - step);
    ScheduleCommand& put = give(builder.put(1, now, absolute(v + 1), now), kLeft);
    if (step == 0) wait(put, kRight, 1);
    if (!root) wait(put, step == 0 ? kMine : kLeft, step == 0 ? 1 : step);
  }
  if (!root) wait(wait(builder.nop(1), kLeft, n - 1), kMine, 1);
  return builder.take();
}

}  // namespace heddle::collective
