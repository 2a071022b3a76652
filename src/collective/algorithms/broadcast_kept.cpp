// Broadcast of few bytes down a tree (binomial, or only the root and its children), through memory
// of the schedule's own: nobody waits until a peer begins.
//
// Each rank has one slot for its parent. It forwards from the slot, copies to the caller's memory
// and gives the slot back; so the parent may be one run ahead.
//   counter 0      the slot is full
//   counter 1 + i  the slot of child i is free; initially free
//   queue 0        forward, copy, give back
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

Schedule kept(const AlgorithmRequest& request, const TreeNode& node) {
  constexpr std::uint32_t kFull = 0;
  constexpr std::uint32_t kFree = 1;
  Builder builder(request);
  const Block own{Place::receive, 0, request.bytes};
  const bool small = request.bytes <= kBesideBytes;
  const Block slot =
      small ? beside(kFull, request.bytes) : Block{Place::scratch, builder.scratch(request.bytes), request.bytes};
  builder.counter(kFull, node.root ? 0 : 1);
  for (std::uint32_t child = 0; child < node.children.size(); ++child) {
    builder.counter(kFree + child, 1, 1);
    ScheduleCommand& put = give(builder.put(0, node.root ? own : slot, node.children[child], slot), kFull);
    wait(put, kFree + child, 1);
    if (!node.root) wait(put, kFull, 1);
  }
  if (node.root) return builder.take();
  wait(builder.copy(0, slot, own), kFull, 1);
  builder.signal(0, node.parent, kFree + node.place);
  return builder.take();
}

}  // namespace

Schedule broadcast_binomial_kept(const AlgorithmRequest& request) {
  return kept(request, binomial_tree(request));
}

Schedule broadcast_flat(const AlgorithmRequest& request) {
  return kept(request, k_ary_tree(request, request.ranks));
}

}  // namespace heddle::collective
