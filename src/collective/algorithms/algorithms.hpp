// All algorithms: one function each, and one row each in table.cpp. All are pure functions. A
// comment above each family of algorithms explains it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collective/schedule.hpp"

namespace heddle::collective {

struct Algorithm {
  const char* name;  // OPERATION.WAY, for settings and `heddle info --schedule`
  Operation operation;
  const char* help;
  // Null: it supports the request; otherwise the reason, as text for people.
  const char* (*rejects)(const AlgorithmRequest& request);
  Schedule (*schedule)(const AlgorithmRequest& request);
  // How ranks access `receive` of others: they put into it (not into the root's in a broadcast), or
  // get from the root's.
  enum class Reach : std::uint8_t { none, put, get } reach = Reach::none;
  bool gets = false;     // only for ranks that map each other's memory
  bool session = false;  // fits the hardware's session queues
  // no rank accesses `send` and `receive` of others, and no command several blocks of its own: so
  // they may lie apart, as in a piece of a longer call
  bool apart = false;
  // If ranks list their blocks and this is not Reach::put: all ranks keep what arrives. Otherwise a
  // rank keeps if its memory cannot be reached, or for few bytes.
};

std::span<const Algorithm> algorithms();
const Algorithm* find_algorithm(std::string_view name);

// The counters of slots that are filled again and again: slot s holds data; slot s may be filled.
constexpr std::uint32_t full_counter(std::uint32_t slot) {
  return 2 * slot;
}
constexpr std::uint32_t free_counter(std::uint32_t slot) {
  return 2 * slot + 1;
}

Schedule barrier_dissemination(const AlgorithmRequest& request);
Schedule barrier_flat(const AlgorithmRequest& request);
Schedule barrier_wide(const AlgorithmRequest& request);

Schedule broadcast_chain(const AlgorithmRequest& request);
Schedule broadcast_binomial(const AlgorithmRequest& request);
Schedule broadcast_binomial_kept(const AlgorithmRequest& request);
Schedule broadcast_flat(const AlgorithmRequest& request);
Schedule broadcast_trinary(const AlgorithmRequest& request);
Schedule broadcast_trinaryx3(const AlgorithmRequest& request);
Schedule broadcast_chain_session(const AlgorithmRequest& request);
Schedule broadcast_trinary_session(const AlgorithmRequest& request);
Schedule broadcast_trinaryx3_session(const AlgorithmRequest& request);
Schedule broadcast_pull(const AlgorithmRequest& request);
Schedule broadcast_kept_pull(const AlgorithmRequest& request);
Schedule broadcast_scatter_allgather(const AlgorithmRequest& request);

Schedule reduce_binomial(const AlgorithmRequest& request);
Schedule allreduce_flat(const AlgorithmRequest& request);
Schedule allreduce_doubling(const AlgorithmRequest& request);
Schedule allreduce_rabenseifner(const AlgorithmRequest& request);
Schedule allreduce_ring(const AlgorithmRequest& request);
Schedule allreduce_ring_kept(const AlgorithmRequest& request);
Schedule allreduce_kept(const AlgorithmRequest& request);

Schedule allgather_bruck(const AlgorithmRequest& request);
Schedule allgather_kept(const AlgorithmRequest& request);
Schedule allgather_ring(const AlgorithmRequest& request);
Schedule gather_linear(const AlgorithmRequest& request);
Schedule scatter_linear(const AlgorithmRequest& request);
Schedule alltoall_bruck(const AlgorithmRequest& request);
Schedule alltoall_grid(const AlgorithmRequest& request);
Schedule alltoall_kept(const AlgorithmRequest& request);
Schedule alltoall_pairwise(const AlgorithmRequest& request);
Schedule reduce_scatter_ring(const AlgorithmRequest& request);
Schedule reduce_scatter_kept(const AlgorithmRequest& request);
Schedule scan_doubling(const AlgorithmRequest& request);

// Ranks list their blocks; or blocks are equal, and all ranks keep or none does.
Schedule exchange_direct(const AlgorithmRequest& request);
Schedule exchange_kept(const AlgorithmRequest& request);

// Cutting bytes into pieces.

// `bytes` from `begin` on, in pieces of at most segment_bytes; at least one piece, which may be
// empty.
struct SegmentCuts {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  std::uint64_t segment = 0;

  SegmentCuts(std::uint64_t begin_at, std::uint64_t all, std::uint64_t segment_bytes)
      : begin(begin_at),
        bytes(all),
        segment(segment_bytes == 0 || segment_bytes > all ? std::max<std::uint64_t>(all, 1) : segment_bytes) {}

  [[nodiscard]] std::uint32_t count() const {
    return bytes == 0 ? 1 : static_cast<std::uint32_t>((bytes + segment - 1) / segment);
  }
  [[nodiscard]] Block at(Place place, std::uint32_t i) const {
    const std::uint64_t offset = std::min(bytes, i * segment);
    return {place, begin + offset, std::min(segment, bytes - offset)};
  }
};

// Part `i` when `bytes` are cut, between elements, into `parts` nearly equal parts.
inline Block part(Place place, std::uint64_t bytes, std::uint64_t element_bytes, std::uint64_t parts, std::uint64_t i) {
  const std::uint64_t elements = bytes / element_bytes;
  const std::uint64_t begin = elements * i / parts;
  const std::uint64_t end = elements * (i + 1) / parts;
  return {place, begin * element_bytes, (end - begin) * element_bytes};
}

// Trees over the ranks of an operation: pure functions of a rank. Any rank may be the root.

struct TreeNode {
  bool root = false;
  Rank parent = 0;             // means nothing at the root
  std::uint32_t place = 0;     // index among the children of the parent
  std::vector<Rank> children;  // in the order in which they should be served
  // torus: the link to each child, all different; otherwise empty
  std::vector<std::uint32_t> links;
};

// Largest subtree first: depth log2(ranks); the root has that many children.
TreeNode binomial_tree(const AlgorithmRequest& request);
// Every node has at most `arity` children; arity 1 is a chain.
TreeNode k_ary_tree(const AlgorithmRequest& request, Rank arity);

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
TreeNode torus_tree(const AlgorithmRequest& request, unsigned tree);

// Finds the ranks that a run waits for when it does not proceed. Slow: for reports, not for loops.

// Members of larger teams are not searched.
inline constexpr Rank kMostSearched = 256;
// In the schedules of all ranks together. A launcher that watches a job asks each rank that waits
// for long: schedules in which all put to all take milliseconds, and name nearly all ranks.
inline constexpr std::size_t kMostSearchedCommands = std::size_t{1} << 14;

// The ranks other than request.rank that give to these counters of request.rank in a run, each
// once, in their order. Makes the schedules of all ranks. Empty: there are none; the team is too
// large; or ranks list their blocks, and this rank does not know the other lists. May throw
// std::bad_alloc.
std::vector<Rank> givers(const Algorithm& algorithm, const AlgorithmRequest& request,
                         std::span<const std::uint32_t> counters);

}  // namespace heddle::collective
