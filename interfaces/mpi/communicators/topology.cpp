// What the kinds of topology share.
#include "mpi/communicators/topology.hpp"

#include <algorithm>

#include <units/topologies.hpp>
#include "mpi/core/errors.hpp"

namespace heddle::mpi {
namespace {

struct KindText {
  const char* name;
  const char* maker;
};
KindText words_for(Topology::Kind kind) {
  switch (kind) {
    case Topology::Kind::cart:
      return {"Cartesian", "MPI_Cart_create"};
    case Topology::Kind::graph:
      return {"graph", "MPI_Graph_create"};
    case Topology::Kind::dist_graph:
      return {"distributed graph", "MPI_Dist_graph_create"};
  }
  return {"", ""};
}

}  // namespace

int find_topology(const Comm& comm, Topology::Kind kind, const Topology** topology) {
  *topology = comm.topology.get();
  const KindText wanted = words_for(kind);
  if (*topology == nullptr) {
    return error(MPI_ERR_TOPOLOGY, "comm: it has no topology; %s makes a communicator with one", wanted.maker);
  }
  if ((*topology)->kind == kind) return MPI_SUCCESS;
  return error(MPI_ERR_TOPOLOGY, "comm: it has a %s topology; %s makes a communicator with a %s one",
               words_for((*topology)->kind).name, wanted.maker, wanted.name);
}

int check_intra(const Comm& comm) {
  if (!comm.inter()) return MPI_SUCCESS;
  return error(MPI_ERR_COMM, "comm is an intercommunicator; only intracommunicators have topologies");
}

GroupPointer first_of(const Comm& comm, int count) {
  if (count == comm.size()) return comm.group;
  const std::vector<std::uint32_t>& ranks = comm.group->ranks();
  return std::make_shared<const Group>(std::vector<std::uint32_t>(ranks.begin(), ranks.begin() + count),
                                       comm.group->session());
}

int make_with(Comm& parent, GroupPointer group, std::shared_ptr<const Topology> topology, MPI_Comm* out) {
  Comm* made = nullptr;
  if (const int code = make_from(&parent, std::move(group), &made); code != MPI_SUCCESS) return code;
  if (made != nullptr) made->topology = std::move(topology);
  *out = made == nullptr ? MPI_COMM_NULL : handle_of(made);
  return MPI_SUCCESS;
}

int store_fitting(const std::vector<int>& values, int most, int* out, const char* argument) {
  const std::size_t count = std::min(values.size(), static_cast<std::size_t>(most));
  if (count > 0 && out == nullptr) return null_argument(argument);
  std::copy_n(values.begin(), count, out);
  return MPI_SUCCESS;
}

bool neighbours_of(const Comm& comm, Neighbours* neighbours) {
  const Topology* const topology = comm.topology.get();
  neighbours->sources.clear();
  neighbours->destinations.clear();
  if (topology == nullptr) return false;
  switch (topology->kind) {
    case Topology::Kind::cart:
      for (std::size_t i = 0; i < topology->dims.size(); ++i) {
        neighbours->sources.push_back(cart_neighbour(*topology, comm.rank, i, -1));
        neighbours->sources.push_back(cart_neighbour(*topology, comm.rank, i, 1));
      }
      neighbours->destinations = neighbours->sources;
      break;
    case Topology::Kind::graph: {
      const EdgeRange range = edges_of(*topology, comm.rank);
      neighbours->sources.assign(topology->edges.begin() + range.first, topology->edges.begin() + range.last);
      neighbours->destinations = neighbours->sources;
      break;
    }
    case Topology::Kind::dist_graph:
      neighbours->sources = topology->sources;
      neighbours->destinations = topology->destinations;
      break;
  }
  return true;
}

int topo_test(Call call, MPI_Comm comm, int* status) {
  return on_comm(call, comm, [&](const Comm& found) -> int {
    if (status == nullptr) return null_argument("status");
    *status = MPI_UNDEFINED;
    if (found.topology == nullptr) return MPI_SUCCESS;
    switch (found.topology->kind) {
      case Topology::Kind::cart:
        *status = MPI_CART;
        break;
      case Topology::Kind::graph:
        *status = MPI_GRAPH;
        break;
      case Topology::Kind::dist_graph:
        *status = MPI_DIST_GRAPH;
        break;
    }
    return MPI_SUCCESS;
  });
}

}  // namespace heddle::mpi
