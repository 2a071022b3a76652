// The list of all algorithms. To add one, add a function, in its operation's file or one of its
// own, and a row here.

#include <algorithm>
#include <array>

#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {

namespace {

using Reach = Algorithm::Reach;

const char* nothing(const AlgorithmRequest&) {
  return nullptr;
}

const char* wants_torus(const AlgorithmRequest& request) {
  const auto& [x, y, z] = request.shape;
  if (x < 2 || y < 2 || z < 2) return "it needs a shape whose three sides are 2 or more";
  if (std::uint64_t{x} * y * z != request.ranks) return "the sides of the shape do not multiply to the number of ranks";
  return nullptr;
}

constexpr const char* kDirect = "straight into the caller's memory, where it is reached and the bytes are not few";
constexpr const char* kKept = "through kept memory: no rank waits for a peer to begin";

constexpr std::array kTable = {
    Algorithm{"barrier.dissemination", Operation::barrier, "log2(ranks) rounds of signals", nothing,
              barrier_dissemination},
    Algorithm{"barrier.flat", Operation::barrier, "everybody tells rank 0, which tells everybody: few ranks", nothing,
              barrier_flat},
    Algorithm{"barrier.wide", Operation::barrier, "log8(ranks) rounds of up to seven signals", nothing, barrier_wide},
    Algorithm{"broadcast.chain", Operation::broadcast, "pipeline along a chain of ranks", nothing, broadcast_chain,
              Reach::put},
    Algorithm{"broadcast.binomial", Operation::broadcast, "pipeline down a binomial tree", nothing, broadcast_binomial,
              Reach::put},
    Algorithm{"broadcast.kept", Operation::broadcast,
              "binomial tree through kept memory: few bytes, no rank waits for a peer to begin", nothing,
              broadcast_binomial_kept},
    Algorithm{"broadcast.flat", Operation::broadcast,
              "the root to each rank, through kept memory: few ranks, few bytes", nothing, broadcast_flat},
    Algorithm{"broadcast.pull", Operation::broadcast, "each rank takes it from the root's memory: the root may compute",
              nothing, broadcast_pull, Reach::get, true},
    Algorithm{"broadcast.kept_pull", Operation::broadcast, "each rank takes it from a slot of the root", nothing,
              broadcast_kept_pull, Reach::none, true},
    Algorithm{"broadcast.trinary", Operation::broadcast, "pipeline down a tree of three children each", nothing,
              broadcast_trinary, Reach::put},
    Algorithm{"broadcast.trinaryx3", Operation::broadcast,
              "three edge-disjoint trees over a 3-D torus, a third of the bytes each", wants_torus, broadcast_trinaryx3,
              Reach::put},
    Algorithm{"broadcast.chain_session", Operation::broadcast, "chain by the hardware's session queues", nothing,
              broadcast_chain_session, Reach::put, false, true},
    Algorithm{"broadcast.trinary_session", Operation::broadcast,
              "tree of three children each by the hardware's session queues", nothing, broadcast_trinary_session,
              Reach::put, false, true},
    Algorithm{"broadcast.trinaryx3_session", Operation::broadcast, "trinaryx3 by the hardware's session queues",
              wants_torus, broadcast_trinaryx3_session, Reach::put, false, true},
    Algorithm{"broadcast.scatter_allgather", Operation::broadcast, "a part to each rank, then around a ring", nothing,
              broadcast_scatter_allgather, Reach::put},
    Algorithm{"reduce.binomial", Operation::reduce, "up a binomial tree", nothing, reduce_binomial},
    Algorithm{"allreduce.flat", Operation::allreduce, "all at rank 0: few ranks, few bytes", nothing, allreduce_flat},
    Algorithm{"allreduce.doubling", Operation::allreduce, "recursive doubling: few bytes", nothing, allreduce_doubling},
    Algorithm{"allreduce.rabenseifner", Operation::allreduce,
              "recursive halving, then doubling: many bytes, many ranks", nothing, allreduce_rabenseifner, Reach::put},
    Algorithm{"allreduce.ring", Operation::allreduce, "reduce-scatter and allgather around a ring: many bytes", nothing,
              allreduce_ring, Reach::put},
    Algorithm{"allreduce.kept", Operation::allreduce, "each rank adds up a part, and the others get the sum from it",
              nothing, allreduce_kept, Reach::none, true},
    Algorithm{"allreduce.kept_ring", Operation::allreduce, "the same through slots", nothing, allreduce_ring_kept},
    Algorithm{"allgather.bruck", Operation::allgather, "log2(ranks) steps through kept memory: few bytes, many ranks",
              nothing, allgather_bruck},
    Algorithm{"allgather.kept", Operation::allgather,
              "to everybody through kept memory: no rank waits for a peer to begin", nothing, allgather_kept,
              Reach::none, false, false, true},
    Algorithm{"allgather.ring", Operation::allgather, "around a ring", nothing, allgather_ring, Reach::put},
    Algorithm{"gather.linear", Operation::gather, "each rank to the root", nothing, gather_linear, Reach::put},
    Algorithm{"scatter.linear", Operation::scatter, "the root to each rank", nothing, scatter_linear, Reach::put},
    Algorithm{"alltoall.bruck", Operation::alltoall, "log2(ranks) steps through kept memory: few bytes, many ranks",
              nothing, alltoall_bruck},
    Algorithm{"alltoall.grid", Operation::alltoall,
              "by way of one other rank each: few bytes, many ranks, of which each meets few", nothing, alltoall_grid},
    Algorithm{"alltoall.kept", Operation::alltoall,
              "to everybody through kept memory: no rank waits for a peer to begin", nothing, alltoall_kept,
              Reach::none, false, false, true},
    Algorithm{"alltoall.pairwise", Operation::alltoall, "in step i with the ranks i before and after", nothing,
              alltoall_pairwise, Reach::put},
    Algorithm{"reduce_scatter.kept", Operation::reduce_scatter, kKept, nothing, reduce_scatter_kept, Reach::none, false,
              false, true},
    Algorithm{"reduce_scatter.ring", Operation::reduce_scatter, "around a ring", nothing, reduce_scatter_ring},
    Algorithm{"scan.doubling", Operation::scan, "recursive doubling", nothing, scan_doubling},
    Algorithm{"allgatherv.direct", Operation::allgatherv, kDirect, nothing, exchange_direct, Reach::put},
    Algorithm{"allgatherv.kept", Operation::allgatherv, kKept, nothing, exchange_kept},
    Algorithm{"alltoallv.direct", Operation::alltoallv, kDirect, nothing, exchange_direct, Reach::put},
    Algorithm{"alltoallv.kept", Operation::alltoallv, kKept, nothing, exchange_kept},
    Algorithm{"gatherv.direct", Operation::gatherv, kDirect, nothing, exchange_direct, Reach::put},
    Algorithm{"gatherv.kept", Operation::gatherv, kKept, nothing, exchange_kept},
    Algorithm{"scatterv.direct", Operation::scatterv, kDirect, nothing, exchange_direct, Reach::put},
    Algorithm{"scatterv.kept", Operation::scatterv, kKept, nothing, exchange_kept},
    Algorithm{"neighbor_alltoallv.direct", Operation::neighbor_alltoallv, kDirect, nothing, exchange_direct,
              Reach::put},
    Algorithm{"neighbor_alltoallv.kept", Operation::neighbor_alltoallv, kKept, nothing, exchange_kept},
};

}  // namespace

std::span<const Algorithm> algorithms() {
  return kTable;
}

const Algorithm* find_algorithm(std::string_view name) {
  for (const Algorithm& algorithm : kTable)
    if (name == algorithm.name) return &algorithm;
  return nullptr;
}

std::vector<Rank> givers(const Algorithm& algorithm, const AlgorithmRequest& request,
                         std::span<const std::uint32_t> counters) {
  std::vector<Rank> found;
  if (counters.empty() || request.ranks > kMostSearched || lists_blocks(request.operation)) return found;
  if (request.ranks * algorithm.schedule(request).commands.size() > kMostSearchedCommands) return found;
  const auto gives = [&](const ScheduleCommand& command) {
    return command.action == Action::put && command.target == request.rank && command.credits > 0 &&
           std::ranges::find(counters, command.counter) != counters.end();
  };
  AlgorithmRequest other = request;
  for (other.rank = 0; other.rank < request.ranks; ++other.rank) {
    if (other.rank == request.rank) continue;
    if (std::ranges::any_of(algorithm.schedule(other).commands, gives)) found.push_back(other.rank);
  }
  return found;
}

}  // namespace heddle::collective
