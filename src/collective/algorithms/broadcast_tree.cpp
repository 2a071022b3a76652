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
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
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

}  // namespace heddle::collective
