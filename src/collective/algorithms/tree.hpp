// Trees over the ranks of an operation: pure functions of a rank. Any rank may be the root.
#pragma once

#include <vector>

#include "collective/schedule.hpp"

namespace heddle::collective {

struct TreeNode {
  bool root = false;
  Rank parent = 0;             // means nothing at the root
  std::uint32_t place = 0;     // index among the children of the parent
  std::vector<Rank> children;  // in the order in which they should be served
  // torus: the link to each child, all different; otherwise empty
  std::vector<std::uint32_t> links;
};

// Largest subtree first: depth log2(ranks); the root has that many children.
TreeNode binomial_tree(const Request& request);
// Every node has at most `arity` children; arity 1 is a chain.
TreeNode k_ary_tree(const Request& request, Rank arity);

// The most cubic box with three sides of at least 2 for that many ranks, the longest side first;
// zeros: there is none.
std::array<Rank, 3> even_shape(Rank ranks);

// One of three edge-disjoint trees (tree 0, 1, 2) of a torus or mesh of request.shape, all extents
// at least 2. Every node receives in each tree over another link. The root has one child in each
// tree; no node has more than three. With wrap-around links any rank can be the root (translation);
// in a mesh the root must be a corner. Own construction in the manner of Trinaryx3. Let the axes be
// i = tree and j, k following it, and the coordinates relative to the root. The first rule that
// applies gives the parent of node c: c_i = 0: the neighbour with c_i = 1; c_k > 0: c_k - 1; c_j >
// 0: c_j - 1; otherwise c_i - 1. Children with the longest paths behind them come first: along i,
// j, k, then back along i. A link of a node is in at most one tree.
TreeNode torus_tree(const Request& request, unsigned tree);

}  // namespace heddle::collective
