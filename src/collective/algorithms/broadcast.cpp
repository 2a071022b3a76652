// Broadcasts, but those by session queues (broadcast_session.cpp): down trees, from the root's
// memory, and around a ring.
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {

// ---- down a tree --------------------------------------------------------------------------------

// Broadcast down a tree, in segments that follow each other (pipeline): chain, binomial, trinary,
// and three trees at once.
//
// Every rank signals to its parent that its run has begun; then the parent puts segments directly
// into the caller's memory:
//   counter 0      segments that have arrived, one credit each
//   counter 1 + i  child i has begun
//   queue 0        forwarding: segment by segment, to each child
//   queue 1        the signal to the parent; a rank without children also waits here
// Several trees have one set of these each.

namespace {

struct Base {
  std::uint32_t counter = 0;
  std::uint32_t queue = 0;
};

// The same number at all ranks, so that each can name the others' counters.
constexpr std::uint32_t kMostChildren = 64;  // binomial: at most one per bit of a rank
constexpr std::uint32_t kCountersPerTree = 1 + kMostChildren;

void add_tree(Builder& builder, Base base, const TreeNode& node, const SegmentCuts& pieces) {
  const std::uint32_t arrivals = base.counter;
  const std::uint32_t begun = base.counter + 1;
  builder.counter(arrivals, node.root ? 0 : pieces.count());
  for (std::uint32_t child = 0; child < node.children.size(); ++child) builder.counter(begun + child, 1);
  if (!node.root) builder.signal(base.queue + 1, node.parent, begun + node.place);
  for (std::uint32_t i = 0; i < pieces.count(); ++i)
    for (std::uint32_t child = 0; child < node.children.size(); ++child) {
      const Block block = pieces.at(Place::receive, i);
      ScheduleCommand& put = give(builder.put(base.queue, block, node.children[child], block), arrivals);
      if (!node.root) wait(put, arrivals, i + 1);
      if (i == 0) wait(put, begun + child, 1);
    }
  if (!node.root && node.children.empty()) wait(builder.nop(base.queue + 1), arrivals, pieces.count());
}

Schedule one_tree(const AlgorithmRequest& request, const TreeNode& node) {
  Builder builder(request);
  add_tree(builder, {}, node, SegmentCuts(0, request.bytes, request.segment_bytes));
  return builder.take();
}

}  // namespace

Schedule broadcast_chain(const AlgorithmRequest& request) {
  return one_tree(request, k_ary_tree(request, 1));
}

Schedule broadcast_binomial(const AlgorithmRequest& request) {
  return one_tree(request, binomial_tree(request));
}

Schedule broadcast_trinary(const AlgorithmRequest& request) {
  return one_tree(request, k_ary_tree(request, 3));
}

Schedule broadcast_trinaryx3(const AlgorithmRequest& request) {
  Builder builder(request);
  for (unsigned tree = 0; tree < 3; ++tree) {
    const Block fragment = part(Place::receive, request.bytes, 1, 3, tree);
    add_tree(builder, {tree * kCountersPerTree, tree * 2}, torus_tree(request, tree),
             SegmentCuts(fragment.offset, fragment.bytes, request.segment_bytes));
  }
  return builder.take();
}

// ---- down a tree, through kept memory -----------------------------------------------------------

// Broadcast of few bytes down a tree (binomial, or only the root and its children), through memory
// of the schedule's own: nobody waits until a peer begins.
//
// Each rank has one slot for its parent. It forwards from the slot, copies to the caller's memory
// and gives the slot back; so the parent may be one run ahead.
//   counter 0      parts in the slot
//   counter 1 + i  the slot of child i is free; initially free
//   queue 0        part by part: forward, copy; give back

namespace {

// Of the bytes of a kept broadcast: one part is copied out while the next one is copied in.
SegmentCuts kept_parts(const AlgorithmRequest& request) {
  constexpr std::uint64_t kPart = 32768;
  constexpr std::uint64_t kMostParts = 4096;                        // each has commands of its own
  if (request.bytes <= kBesideBytes) return {0, request.bytes, 0};  // they come with one credit
  const std::uint64_t part = request.segment_bytes == 0 ? kPart : std::min(request.segment_bytes, kPart);
  return {0, request.bytes, std::max(part, (request.bytes / kMostParts + 63) / 64 * 64)};
}

Schedule kept(const AlgorithmRequest& request, const TreeNode& node) {
  constexpr std::uint32_t kFull = 0;
  constexpr std::uint32_t kFree = 1;
  Builder builder(request);
  const SegmentCuts parts = kept_parts(request);
  const bool small = request.bytes <= kBesideBytes;
  if (!small) builder.scratch(request.bytes);
  const auto slot = [&](std::uint32_t i) { return small ? beside(kFull, request.bytes) : parts.at(Place::scratch, i); };
  builder.counter(kFull, node.root ? 0 : parts.count());
  for (std::uint32_t child = 0; child < node.children.size(); ++child) builder.counter(kFree + child, 1, 1);
  for (std::uint32_t i = 0; i < parts.count(); ++i) {
    const Block own = parts.at(Place::receive, i);
    for (std::uint32_t child = 0; child < node.children.size(); ++child) {
      ScheduleCommand& put = give(builder.put(0, node.root ? own : slot(i), node.children[child], slot(i)), kFull);
      if (i == 0) wait(put, kFree + child, 1);
      if (!node.root) wait(put, kFull, i + 1);
    }
    if (!node.root) wait(builder.copy(0, slot(i), own), kFull, i + 1);
  }
  if (!node.root) builder.signal(0, node.parent, kFree + node.place);
  return builder.take();
}

}  // namespace

Schedule broadcast_binomial_kept(const AlgorithmRequest& request) {
  return kept(request, binomial_tree(request));
}

Schedule broadcast_flat(const AlgorithmRequest& request) {
  return kept(request, k_ary_tree(request, request.ranks));
}

// ---- from the root's memory ---------------------------------------------------------------------

// Broadcast in which every rank copies the bytes from the root's memory: for ranks that map each
// other's memory. The root only signals that the bytes are there, so it may compute; and the other
// ranks copy at the same time.
//
// pull: from the root's buffer, in segments. The root's run ends when all ranks have taken them. If
// the buffer cannot be mapped, the root first copies each segment to memory that can.
//   at the others: counter 0, segments that are there
//   at the root: counter 0, ranks that have taken all
// kept_pull: from a slot at the root. The root fills it, part by part, when all ranks have emptied
// it; so the root may be one run ahead.
//   at the others: counter 0, parts that are there

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
  const SegmentCuts parts = kept_parts(request);
  if (request.rank != request.root) {
    builder.counter(kThere, parts.count());
    for (std::uint32_t i = 0; i < parts.count(); ++i)
      wait(builder.get(0, request.root, parts.at(Place::scratch, i), parts.at(Place::receive, i)), kThere, i + 1);
    builder.signal_shared(0, request.root, kTaken);
    return builder.take();
  }
  if (request.ranks == 1) return builder.take();
  builder.scratch(request.bytes);
  builder.counter(kTaken, request.ranks - 1, request.ranks - 1);
  for (std::uint32_t i = 0; i < parts.count(); ++i) {
    ScheduleCommand& copy = builder.copy(0, parts.at(Place::receive, i), parts.at(Place::scratch, i));
    if (i == 0) wait(copy, kTaken, request.ranks - 1);
    each_other(request, [&](Rank other) { builder.signal(0, other, kThere); });
  }
  return builder.take();
}

// ---- scatter and allgather ----------------------------------------------------------------------

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
