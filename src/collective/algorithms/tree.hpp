// Trees over the ranks of an operation: pure functions of a rank. The root may be any rank.
#pragma once

#include <vector>

#include "collective/schedule.hpp"

namespace heddle::collective {

struct TreeNode {
  bool root = false;
  Rank parent = 0;             // without meaning at the root
  std::uint32_t place = 0;     // among the children of the parent
  std::vector<Rank> children;  // in the order in which they should be served
  // torus: by which each of them is reached, all different; else empty
  std::vector<std::uint32_t> links;
};

// Largest subtree first: depth log2(ranks), the root serves that many.
TreeNode binomial_tree(const Request& request);
// Every node has at most `arity` children; arity 1 is a chain.
TreeNode k_ary_tree(const Request& request, Rank arity);

// The most even box of three sides of 2 or more for so many ranks, the longest side first; zeros:
// there is none.
std::array<Rank, 3> even_shape(Rank ranks);

// One of three edge-disjoint trees (tree 0, 1, 2) of a torus or mesh of request.shape, all extents
// at least 2. Every node receives in each tree over another link; the root has one child in each,
// nobody more than three. With wrap-around links any root will do (translation); in a mesh the root
// has to be a corner. Own construction in the manner of Trinaryx3: with axes i = tree, j, k
// following it, the parent of node c, coordinates relative to the root, is by the first rule that
// applies: c_i = 0: the neighbour with c_i = 1; c_k > 0: c_k - 1; c_j > 0: c_j - 1; else c_i - 1.
// Children with the longest ways behind them come first: along i, j, k, then back along i. A link
// of a node is in one tree at most.
TreeNode torus_tree(const Request& request, unsigned tree);

}  // namespace heddle::collective
