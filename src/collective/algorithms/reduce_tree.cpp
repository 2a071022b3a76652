// Reduction up a binomial tree. Each rank has a slot for every child, initially free; the child
// fills it when it is free. Children are combined in a fixed order, so that the bits of the result
// do not depend on which child was early.
//   counter 0      my slot at my parent is free
//   counter 1 + i  the slot of child i is full
#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {

Schedule reduce_binomial(const AlgorithmRequest& request) {
  constexpr std::uint32_t kFree = 0;  // my slot at my parent
  constexpr std::uint32_t kFull = 1;  // + i: slot of my child i
  const TreeNode node = binomial_tree(request);
  const std::uint64_t bytes = request.bytes;
  Builder builder(request);
  builder.counter(kFree, node.root ? 0 : 1, node.root ? 0 : 1);
  // Slots come first in scratch, in the order of children, so that a child knows where its slot is.
  const auto children = static_cast<std::uint32_t>(node.children.size());
  const bool small = bytes <= kBesideBytes;
  if (!small) builder.scratch(children * bytes);
  const auto slot = [&](std::uint32_t child) {
    return small ? beside(kFull + child, bytes) : Block{Place::scratch, child * bytes, bytes};
  };
  const Block slot_at_parent = slot(node.place);
  const Block given{Place::send, 0, bytes};
  Block sum = node.root ? Block{Place::receive, 0, bytes} : given;
  if (!node.root && children > 0) sum = {Place::scratch, builder.scratch(bytes), bytes};
  if (node.root || children > 0) builder.copy(0, given, sum);
  // The last child has the smallest subtree, so it arrives first.
  for (std::uint32_t i = children; i-- > 0;) {
    builder.counter(kFull + i, 1);
    wait(builder.reduce(0, slot(i), sum), kFull + i, 1);
    builder.signal(0, node.children[i], kFree);
  }
  if (!node.root) wait(give(builder.put(0, sum, node.parent, slot_at_parent), kFull + node.place), kFree, 1);
  return builder.take();
}

}  // namespace heddle::collective
