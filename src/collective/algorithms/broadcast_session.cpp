// Broadcast down trees by session queues alone, as the hardware has them: every command waits for one more credit of its
// queue's only counter. As in Morie et al., Prototyping of Offloaded Persistent Broadcast on Tofu2.
//
// First all ranks report to the root that their run has begun, up the same tree; then the root sends. Who receives a
// segment forwards it, so a put to a child carries as many credits as the child has children, and one to a leaf a credit that
// ends its wait. Of each tree:
//   counter 0, queue 0   data: puts of segment 0 to each child, of segment 1 to each child, …; of a leaf: a nop per segment
//   counter 1, queue 1   reports: nops for all children but one, then the report to the parent
//   queue 2              the report of a leaf, which waits for nobody
// At the root the reports release the data (release_data).
#include "collective/algorithms/algorithms.hpp"
#include "collective/algorithms/pieces.hpp"
#include "collective/algorithms/tree.hpp"

namespace heddle::collective {
namespace {

constexpr std::uint32_t kMostCredits = 15;  // that one put can carry

struct Tree {
  std::uint32_t number;
  TreeNode (*node)(const Request& request, unsigned tree);

  [[nodiscard]] std::uint32_t data() const { return number * 2; }
  [[nodiscard]] std::uint32_t begun() const { return number * 2 + 1; }
  [[nodiscard]] std::uint32_t queue(std::uint32_t i) const { return number * 3 + i; }
  [[nodiscard]] TreeNode at(Request request, Rank rank) const {
    request.rank = rank;
    return node(request, number);
  }
};

// At the root: when `reports` credits have come to queue 1, `puts` credits go to counter 0, by puts to itself of at most 15.
// Only the last of the reports can start them, and it lets one command go; so there are more puts to itself that let the
// next ones go, each up to 14 of the first kind and one more of its own.
void release_data(Builder& builder, const Tree& tree, Rank root, std::uint32_t reports, std::uint32_t puts) {
  std::uint32_t place = 0;
  const auto next = [&](Command& command) { wait(command, tree.begun(), ++place); };
  for (std::uint32_t i = 0; i + 1 < reports; ++i) next(builder.nop(tree.queue(1)));
  std::uint32_t released = reports;
  while (puts > 0) {
    std::uint32_t wanted = (puts + kMostCredits - 1) / kMostCredits;  // commands that give all that is left
    const bool last = wanted <= kMostCredits;
    const std::uint32_t now = last ? wanted : kMostCredits - 1;
    next(builder.signal_shared(tree.queue(1), root, tree.begun(), last ? now : now + 1));
    released += last ? now : now + 1;
    for (std::uint32_t i = 0; i < now; ++i) {
      const std::uint32_t credits = std::min(puts, kMostCredits);
      next(builder.signal(tree.queue(1), root, tree.data(), credits));
      puts -= credits;
    }
  }
  builder.counter(tree.begun(), released);
}

void add_tree(Builder& builder, const Request& request, const Tree& tree, const Pieces& pieces) {
  const TreeNode node = tree.at(request, request.rank);
  const auto children = static_cast<std::uint32_t>(node.children.size());
  if (node.root) {
    builder.counter(tree.data(), pieces.count() * children);
    if (children > 0) release_data(builder, tree, request.rank, children, pieces.count() * children);
  } else {
    builder.counter(tree.data(), pieces.count() * std::max(children, 1U)).counter(tree.begun(), children);
    for (std::uint32_t i = 0; i + 1 < children; ++i) wait(builder.nop(tree.queue(1)), tree.begun(), i + 1);
    Command& report = builder.signal_shared(tree.queue(children > 0 ? 1 : 2), node.parent, tree.begun());
    if (children > 0) wait(report, tree.begun(), children);
  }
  std::uint32_t place = 0;
  for (std::uint32_t i = 0; i < pieces.count(); ++i) {
    for (const Rank child : node.children) {
      const auto grandchildren = static_cast<std::uint32_t>(tree.at(request, child).children.size());
      const Block block = pieces.at(Place::receive, i);
      Command& put = give(builder.put(tree.queue(0), block, child, block), tree.data(), std::max(grandchildren, 1U));
      wait(put, tree.data(), ++place);
    }
    if (children == 0 && !node.root) wait(builder.nop(tree.queue(0)), tree.data(), ++place);
  }
}

TreeNode chain(const Request& request, unsigned) {
  return k_ary_tree(request, 1);
}

TreeNode trinary(const Request& request, unsigned) {
  return k_ary_tree(request, 3);
}

}  // namespace

Schedule broadcast_chain_session(const Request& request) {
  Builder builder(request);
  add_tree(builder, request, {0, chain}, Pieces(0, request.bytes, request.segment_bytes));
  return builder.take();
}

Schedule broadcast_trinary_session(const Request& request) {
  Builder builder(request);
  add_tree(builder, request, {0, trinary}, Pieces(0, request.bytes, request.segment_bytes));
  return builder.take();
}

Schedule broadcast_trinaryx3_session(const Request& request) {
  Builder builder(request);
  for (unsigned tree = 0; tree < 3; ++tree) {
    const Block fragment = part(Place::receive, request.bytes, 1, 3, tree);
    add_tree(builder, request, {tree, torus_tree}, Pieces(fragment.offset, fragment.bytes, request.segment_bytes));
  }
  return builder.take();
}

}  // namespace heddle::collective
