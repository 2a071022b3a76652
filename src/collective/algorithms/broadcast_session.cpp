// Broadcast down trees by session queues only, as the hardware has them: every command waits for
// one more credit of its queue's only counter. As in Morie et al., Prototyping of Offloaded
// Persistent Broadcast on Tofu2.
//
// First all ranks report to the root, up the first tree, that their run has begun; then the root
// sends down all trees. A rank that receives a segment forwards it. So a put to a child carries as
// many credits as that child has children; a put to a leaf carries one credit, which ends the
// leaf's wait. For each tree:
//   counter 0, queue 0   data: puts of segment 0 to each child, of segment 1 to each child, …; at a
//                        leaf: a nop per segment
// For the first tree:
//   counter 1, queue 1   reports: nops for all children but one, then the report to the parent
//   queue 2              the report of a leaf, which waits for nobody
// At the root the reports release the data (release_data).
//
// If the tree knows links, a rank may spread its children over as many queues (Request::spread):
// one engine of the interface takes twice the time for two children, while a second engine is idle.
// The credits of a segment arrive at one queue only. So that queue's commands for all children but
// the first are credits for other queues, which do the puts:
//   counter 0, queue 0   data: for each segment a credit to each further queue, then the put to the
//                        first child
//   further queues       puts of segment 0, 1, … to one child, each with a counter that only this
//                        rank gives to
// A rank takes the same number of credits as before, so no other rank needs to know whether it
// spreads.
#include <utility>
#include <vector>

#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

constexpr std::uint32_t kMostCredits = 15;  // that one put can carry
constexpr std::uint32_t kTrees = 3;
// Per tree, in which a node has at most three children: queues for all children but the first.
constexpr std::uint32_t kFurther = 2;

struct Tree {
  std::uint32_t number;
  TreeNode (*node)(const AlgorithmRequest& request, unsigned tree);

  [[nodiscard]] std::uint32_t data() const { return number * 2; }
  [[nodiscard]] std::uint32_t begun() const { return number * 2 + 1; }
  [[nodiscard]] std::uint32_t queue(std::uint32_t i) const { return number * 3 + i; }
  // For a child other than the first. These counters come last: other ranks give only to the
  // counters before them, 0 to 4.
  [[nodiscard]] std::uint32_t further_counter(std::uint32_t child) const {
    return kTrees * 2 - 1 + number * kFurther + child - 1;
  }
  [[nodiscard]] std::uint32_t further_queue(std::uint32_t child) const {
    return kTrees * 3 + number * kFurther + child - 1;
  }
  [[nodiscard]] TreeNode at(AlgorithmRequest request, Rank rank) const {
    request.rank = rank;
    return node(request, number);
  }
};

// Credits for one counter of the root.
struct Release {
  std::uint32_t counter = 0;
  std::uint32_t credits = 0;
};

// In turn, so that no tree waits for another; each put carries as many credits as one put can.
std::vector<Release> puts_that_release(std::vector<Release> data) {
  std::vector<Release> puts;
  for (bool more = true; more;) {
    more = false;
    for (Release& left : data) {
      if (left.credits == 0) continue;
      puts.push_back({left.counter, std::min(left.credits, kMostCredits)});
      left.credits -= puts.back().credits;
      more = true;
    }
  }
  return puts;
}

// At the root: when `reports` credits have arrived at queue 1, puts of the root to itself release
// the data of all trees; each put carries at most 15 credits. Only the last report can start these
// puts, and its credit releases one command. So additional puts to itself release the next
// commands, each up to 14 of the first kind and one more of its own kind.
void release_data(Builder& builder, const Tree& tree, Rank root, std::uint32_t reports,
                  const std::vector<Release>& puts) {
  std::uint32_t place = 0;
  const auto next = [&](ScheduleCommand& command) { wait(command, tree.begun(), ++place); };
  for (std::uint32_t i = 0; i + 1 < reports; ++i) next(builder.nop(tree.queue(1)));
  std::uint32_t released = reports;
  for (std::size_t given = 0; given < puts.size();) {
    const auto left = static_cast<std::uint32_t>(puts.size() - given);
    const bool last = left <= kMostCredits;
    const std::uint32_t now = last ? left : kMostCredits - 1;
    next(builder.signal_shared(tree.queue(1), root, tree.begun(), last ? now : now + 1));
    released += last ? now : now + 1;
    for (std::uint32_t i = 0; i < now; ++i, ++given)
      next(builder.signal(tree.queue(1), root, puts[given].counter, puts[given].credits));
  }
  builder.counter(tree.begun(), released);
}

// Adds the reports up `tree`; at the root they release `data`.
void add_reports(Builder& builder, const AlgorithmRequest& request, const Tree& tree, std::vector<Release> data) {
  const TreeNode node = tree.at(request, request.rank);
  const auto children = static_cast<std::uint32_t>(node.children.size());
  if (node.root) {
    if (children > 0) release_data(builder, tree, request.rank, children, puts_that_release(std::move(data)));
    return;
  }
  builder.counter(tree.begun(), children);
  for (std::uint32_t i = 0; i + 1 < children; ++i) wait(builder.nop(tree.queue(1)), tree.begun(), i + 1);
  ScheduleCommand& report = builder.signal_shared(tree.queue(children > 0 ? 1 : 2), node.parent, tree.begun());
  if (children > 0) wait(report, tree.begun(), children);
}

// Adds what a rank forwards. At the root only the reports release it: the return value says what to
// release.
Release add_data(Builder& builder, const AlgorithmRequest& request, const Tree& tree, const SegmentCuts& pieces) {
  const TreeNode node = tree.at(request, request.rank);
  const auto children = static_cast<std::uint32_t>(node.children.size());
  const std::uint32_t credits = pieces.count() * (node.root ? children : std::max(children, 1U));
  builder.counter(tree.data(), credits);
  const bool spread = request.spread && !node.links.empty() && children <= 1 + kFurther;
  if (spread) builder.link(tree.queue(0), node.links[0]);
  for (std::uint32_t child = 1; spread && child < children; ++child) {
    builder.counter(tree.further_counter(child), pieces.count());
    builder.link(tree.further_queue(child), node.links[child]);
  }
  std::uint32_t place = 0;
  const auto next = [&](ScheduleCommand& command) { wait(command, tree.data(), ++place); };
  for (std::uint32_t i = 0; i < pieces.count(); ++i) {
    for (std::uint32_t child = 1; spread && child < children; ++child)
      next(builder.signal(tree.queue(0), request.rank, tree.further_counter(child)));
    for (std::uint32_t child = 0; child < children; ++child) {
      const bool further = spread && child > 0;
      const Rank to = node.children[child];
      const auto grandchildren = static_cast<std::uint32_t>(tree.at(request, to).children.size());
      const Block block = pieces.at(Place::receive, i);
      ScheduleCommand& put = give(builder.put(further ? tree.further_queue(child) : tree.queue(0), block, to, block),
                                  tree.data(), std::max(grandchildren, 1U));
      if (further)
        wait(put, tree.further_counter(child), i + 1);
      else
        next(put);
    }
    if (children == 0 && !node.root) next(builder.nop(tree.queue(0)));
  }
  return {tree.data(), credits};
}

Schedule down_trees(const AlgorithmRequest& request, std::uint32_t trees,
                    TreeNode (*node)(const AlgorithmRequest& request, unsigned tree)) {
  Builder builder(request);
  std::vector<Release> data;
  for (std::uint32_t number = 0; number < trees; ++number) {
    const Block fragment = part(Place::receive, request.bytes, 1, trees, number);
    const SegmentCuts pieces(fragment.offset, fragment.bytes, request.segment_bytes);
    data.push_back(add_data(builder, request, {number, node}, pieces));
  }
  add_reports(builder, request, {0, node}, std::move(data));
  return builder.take();
}

TreeNode chain(const AlgorithmRequest& request, unsigned) {
  return k_ary_tree(request, 1);
}

TreeNode trinary(const AlgorithmRequest& request, unsigned) {
  return k_ary_tree(request, 3);
}

}  // namespace

Schedule broadcast_chain_session(const AlgorithmRequest& request) {
  return down_trees(request, 1, chain);
}

Schedule broadcast_trinary_session(const AlgorithmRequest& request) {
  return down_trees(request, 1, trinary);
}

Schedule broadcast_trinaryx3_session(const AlgorithmRequest& request) {
  return down_trees(request, kTrees, torus_tree);
}

}  // namespace heddle::collective
