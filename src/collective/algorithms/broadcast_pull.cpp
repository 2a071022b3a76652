// Broadcast in which every rank copies the bytes from the root's memory: for ranks that map each
// other's memory. The root only signals that the bytes are there, so it may compute; and the other
// ranks copy at the same time.
//
// pull: from the root's buffer, in segments. The root's run ends when all ranks have taken them. If
// the buffer cannot be mapped, the root first copies each segment to memory that can.
//   at the others: counter 0, segments that are there
//   at the root: counter 0, ranks that have taken all
// kept_pull: from a slot at the root. The root fills it when all ranks have emptied it; so the root
// may be one run ahead.
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

constexpr std::uint32_t kThere = 0;  // at the others
constexpr std::uint32_t kTaken = 0;  // at the root

template <class Function>
void each_other(const AlgorithmRequest& request, Function&& function) {
  for (Rank step = 1; step < request.ranks; ++step) function((request.root + step) % request.ranks);
}

}  // namespace

Schedule broadcast_pull(const AlgorithmRequest& request) {
  Builder builder(request);
  const SegmentCuts segments(0, request.bytes, request.segment_bytes);
  if (request.rank != request.root) {
    builder.counter(kThere, segments.count());
    for (std::uint32_t i = 0; i < segments.count(); ++i)
      wait(builder.get(0, request.root, segments.at(Place::receive, i), segments.at(Place::receive, i)), kThere, i + 1);
    builder.signal_shared(0, request.root, kTaken);
    return builder.take();
  }
  builder.counter(kTaken, request.ranks - 1);
  if (request.reachable) {
    each_other(request, [&](Rank other) { builder.signal(0, other, kThere, segments.count()); });
  } else {
    for (std::uint32_t i = 0; i < segments.count(); ++i) {
      builder.expose(0, segments.at(Place::receive, i));
      each_other(request, [&](Rank other) { builder.signal(0, other, kThere); });
    }
  }
  if (request.ranks > 1) wait(builder.nop(0), kTaken, request.ranks - 1);
  return builder.take();
}

Schedule broadcast_kept_pull(const AlgorithmRequest& request) {
  Builder builder(request);
  const Block own{Place::receive, 0, request.bytes};
  const Block slot{Place::scratch, 0, request.bytes};
  if (request.rank != request.root) {
    builder.counter(kThere, 1);
    wait(builder.get(0, request.root, slot, own), kThere, 1);
    builder.signal_shared(0, request.root, kTaken);
    return builder.take();
  }
  if (request.ranks == 1) return builder.take();
  builder.scratch(request.bytes);
  builder.counter(kTaken, request.ranks - 1, request.ranks - 1);
  wait(builder.copy(0, own, slot), kTaken, request.ranks - 1);
  each_other(request, [&](Rank other) { builder.signal(0, other, kThere); });
  return builder.take();
}

}  // namespace heddle::collective
