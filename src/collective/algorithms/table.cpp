// Which algorithms there are. A new one is a function in a file of its own and a row here.
#include <array>

#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

const char* nothing(const Request&) {
  return nullptr;
}

const char* wants_torus(const Request& request) {
  const auto& [x, y, z] = request.shape;
  if (x < 2 || y < 2 || z < 2) return "it needs a shape whose three sides are 2 or more";
  if (std::uint64_t{x} * y * z != request.ranks) return "the sides of the shape do not multiply to the number of ranks";
  return nullptr;
}

constexpr std::array kTable = {
    Algorithm{"barrier.dissemination", Operation::barrier, "log2(ranks) rounds of signals", nothing,
              barrier_dissemination},
    Algorithm{"broadcast.chain", Operation::broadcast, "pipeline along a chain of ranks", nothing, broadcast_chain},
    Algorithm{"broadcast.binomial", Operation::broadcast, "pipeline down a binomial tree", nothing, broadcast_binomial},
    Algorithm{"broadcast.kept", Operation::broadcast,
              "binomial tree through kept memory: few bytes, no rank waits for a peer to begin", nothing,
              broadcast_binomial_kept},
    Algorithm{"broadcast.trinary", Operation::broadcast, "pipeline down a tree of three children each", nothing,
              broadcast_trinary},
    Algorithm{"broadcast.trinaryx3", Operation::broadcast,
              "three edge-disjoint trees over a 3-D torus, a third of the bytes each", wants_torus,
              broadcast_trinaryx3},
    Algorithm{"broadcast.chain_session", Operation::broadcast, "chain by the hardware's session queues", nothing,
              broadcast_chain_session},
    Algorithm{"broadcast.trinaryx3_session", Operation::broadcast, "trinaryx3 by the hardware's session queues",
              wants_torus, broadcast_trinaryx3_session},
    Algorithm{"broadcast.scatter_allgather", Operation::broadcast, "a part to each rank, then around a ring", nothing,
              broadcast_scatter_allgather},
    Algorithm{"reduce.binomial", Operation::reduce, "up a binomial tree", nothing, reduce_binomial},
    Algorithm{"allreduce.doubling", Operation::allreduce, "recursive doubling: few bytes", nothing, allreduce_doubling},
    Algorithm{"allreduce.ring", Operation::allreduce, "reduce-scatter and allgather around a ring: many bytes", nothing,
              allreduce_ring},
    Algorithm{"allgather.ring", Operation::allgather, "around a ring", nothing, allgather_ring},
    Algorithm{"gather.linear", Operation::gather, "each rank to the root", nothing, gather_linear},
    Algorithm{"scatter.linear", Operation::scatter, "the root to each rank", nothing, scatter_linear},
    Algorithm{"alltoall.pairwise", Operation::alltoall, "in step i with the ranks i before and after", nothing,
              alltoall_pairwise},
    Algorithm{"reduce_scatter.ring", Operation::reduce_scatter, "around a ring", nothing, reduce_scatter_ring},
    Algorithm{"scan.doubling", Operation::scan, "recursive doubling", nothing, scan_doubling},
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

}  // namespace heddle::collective
