// Topologies of communicators: grids and graphs, and the neighbours that follow from them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mpi/communicators/comm.hpp"

namespace heddle::mpi {

struct CommTopology {
  enum class Kind : std::uint8_t { cart, graph, dist_graph };
  Kind kind = Kind::cart;

  // cart, one for each dimension; may have no dimension
  std::vector<int> dims;
  std::vector<int> periods;  // 0 or 1

  // graph: of all ranks, as MPI_Graph_create takes them
  std::vector<int> index;
  std::vector<int> edges;

  // dist_graph: of this process. Edges of the same two processes stand in the same order in both.
  std::vector<int> sources;
  std::vector<int> destinations;
  bool weighted = false;
  std::vector<int> source_weights;  // empty unless weighted
  std::vector<int> destination_weights;
};

// The processes with which neighbourhood collectives exchange data, in the order of the blocks in
// the buffers. In a grid: for each dimension the neighbour below, then the one above; MPI_PROC_NULL
// beyond a border.
//
// One process may stand several times in a list. In a graph, the n-th block to a process is then
// the n-th block that it receives from this one. In a grid with a period of 1 or 2, a block to the
// neighbour below arrives there as the block from above: block 2 d of the sender is block 2 d + 1
// of the receiver, and the other way round.
struct Neighbours {
  std::vector<int> sources;
  std::vector<int> destinations;
};
// False: the communicator has no topology. May throw std::bad_alloc.
bool neighbours_of(const Comm& comm, Neighbours* neighbours);

// ---- for the files that implement topologies ----------------------------------------------------

// MPI_ERR_TOPOLOGY: the communicator has no topology of the kind.
int find_topology(const Comm& comm, CommTopology::Kind kind, const CommTopology** topology);
// An error for an intercommunicator.
int check_intra(const Comm& comm);
// The communicator of the group with the topology. Collective over `parent`; processes outside of
// the group get MPI_COMM_NULL.
int make_with(Comm& parent, GroupPointer group, std::shared_ptr<const CommTopology> topology, MPI_Comm* out);
// The first `count` processes of the communicator's group.
GroupPointer first_of(const Comm& comm, int count);

// Stores the first `most` values at `out`, which is the program's `argument`.
int store_fitting(const std::vector<int>& values, int most, int* out, const char* argument);

// The number of processes of a grid; `most` + 1 if there are more than `most`.
int volume_of(const CommTopology& cart, int most);
// The rank of the process `distance` away from `rank` in a dimension; MPI_PROC_NULL beyond a
// border.
int cart_neighbour(const CommTopology& cart, int rank, std::size_t dimension, std::int64_t distance);
// The neighbours of a process of a graph: edges[first … last - 1].
struct EdgeRange {
  int first;
  int last;
};
EdgeRange edges_of(const CommTopology& graph, int rank);

// Runs what a function does on the communicator that it is called for, and reports the error.
template <class Function>
int on_comm(Call call, MPI_Comm handle, Function&& function) {
  Comm* const comm = comm_of(handle);
  if (comm == nullptr) return told(call, bad_comm(handle));
  return told(call, comm, guarded("a topology", [&] { return function(*comm); }));
}

}  // namespace heddle::mpi
