#include "collective/algorithms/algorithms.hpp"

#include <algorithm>
#include <bit>

namespace heddle::collective {
namespace {

Rank relative(const AlgorithmRequest& request) {
  return (request.rank + request.ranks - request.root) % request.ranks;
}

Rank absolute(const AlgorithmRequest& request, Rank relative_rank) {
  return static_cast<Rank>((std::uint64_t{relative_rank} + request.root) % request.ranks);
}

// ---- torus --------------------------------------------------------------------------------------

using Coordinates = std::array<Rank, 3>;

Coordinates coordinates_of(const AlgorithmRequest& request, Rank rank) {
  const auto& [x, y, z] = request.shape;
  static_cast<void>(z);
  return {rank % x, rank / x % y, rank / x / y};
}

Rank rank_at(const AlgorithmRequest& request, const Coordinates& c) {
  return c[0] + request.shape[0] * (c[1] + request.shape[1] * c[2]);
}

Rank absolute_at(const AlgorithmRequest& request, const Coordinates& c) {
  Coordinates place = coordinates_of(request, request.root);
  for (std::size_t axis = 0; axis < 3; ++axis) place[axis] = (place[axis] + c[axis]) % request.shape[axis];
  return rank_at(request, place);
}

Coordinates parent_of(Coordinates c, unsigned tree) {
  const unsigned i = tree;
  const unsigned j = (tree + 1) % 3;
  const unsigned k = (tree + 2) % 3;
  if (c[i] == 0) {
    c[i] = 1;
  } else if (c[k] > 0) {
    --c[k];
  } else if (c[j] > 0) {
    --c[j];
  } else {
    --c[i];
  }
  return c;
}

}  // namespace

TreeNode binomial_tree(const AlgorithmRequest& request) {
  TreeNode node;
  const Rank own = relative(request);
  node.root = own == 0;
  // Children of v: v + 2^j for all 2^j below the lowest bit of v (for the root: below the number of
  // ranks).
  const Rank lowest = own & (~own + 1);
  const std::uint64_t limit = own == 0 ? std::bit_ceil(std::uint64_t{request.ranks}) : lowest;
  for (std::uint64_t step = limit / 2; step > 0; step /= 2)
    if (own + step < request.ranks) node.children.push_back(absolute(request, static_cast<Rank>(own + step)));
  if (node.root) return node;
  const Rank parent = own & (own - 1);
  node.parent = absolute(request, parent);
  const Rank lowest_of_parent = parent & (~parent + 1);
  const std::uint64_t limit_of_parent = parent == 0 ? std::bit_ceil(std::uint64_t{request.ranks}) : lowest_of_parent;
  for (std::uint64_t step = limit_of_parent / 2; step > lowest; step /= 2)
    if (parent + step < request.ranks) ++node.place;
  return node;
}

TreeNode k_ary_tree(const AlgorithmRequest& request, Rank arity) {
  TreeNode node;
  const std::uint64_t own = relative(request);
  node.root = own == 0;
  for (std::uint64_t child = own * arity + 1; child <= own * arity + arity && child < request.ranks; ++child)
    node.children.push_back(absolute(request, static_cast<Rank>(child)));
  if (node.root) return node;
  node.parent = absolute(request, static_cast<Rank>((own - 1) / arity));
  node.place = static_cast<std::uint32_t>((own - 1) % arity);
  return node;
}

std::array<Rank, 3> even_shape(Rank ranks) {
  std::array<Rank, 3> best{0, 0, 0};
  for (Rank z = 2; std::uint64_t{z} * z * z <= ranks; ++z) {
    if (ranks % z != 0) continue;
    const Rank layer = ranks / z;
    for (Rank y = z; std::uint64_t{y} * y <= layer; ++y)
      if (layer % y == 0 && (best[0] == 0 || layer / y < best[0])) best = {layer / y, y, z};
  }
  return best;
}

TreeNode torus_tree(const AlgorithmRequest& request, unsigned tree) {
  const Coordinates root = coordinates_of(request, request.root);
  Coordinates own = coordinates_of(request, request.rank);
  for (std::size_t axis = 0; axis < 3; ++axis)
    own[axis] = (own[axis] + request.shape[axis] - root[axis]) % request.shape[axis];
  constexpr Coordinates kOrigin{0, 0, 0};
  struct Child {
    Coordinates at;
    std::uint32_t link;
  };
  const auto children_of = [&](const Coordinates& c) {
    std::vector<Child> children;
    for (const bool up : {true, false})
      for (std::uint32_t step = 0; step < 3; ++step) {
        const std::uint32_t axis = (tree + step) % 3;
        Coordinates next = c;
        if (up ? c[axis] + 1 >= request.shape[axis] : c[axis] == 0) continue;
        next[axis] = up ? c[axis] + 1 : c[axis] - 1;
        if (next != kOrigin && parent_of(next, tree) == c) children.push_back({next, 2 * axis + (up ? 0 : 1)});
      }
    return children;
  };
  TreeNode node;
  node.root = own == kOrigin;
  for (const Child& child : children_of(own)) {
    node.children.push_back(absolute_at(request, child.at));
    node.links.push_back(child.link);
  }
  if (node.root) return node;
  const Coordinates parent = parent_of(own, tree);
  node.parent = absolute_at(request, parent);
  const std::vector<Child> siblings = children_of(parent);
  node.place = static_cast<std::uint32_t>(std::ranges::find(siblings, own, &Child::at) - siblings.begin());
  return node;
}

}  // namespace heddle::collective
