// Graphs that every process knows as a whole.
#include <algorithm>

#include <units/topologies.hpp>
#include "mpi/communicators/topology.hpp"
#include "mpi/core/errors.hpp"

namespace heddle::mpi {
namespace {

int read_graph(const Comm& comm, int nnodes, const int indx[], const int edges[], Topology* graph) {
  if (const int code = check_intra(comm); code != MPI_SUCCESS) return code;
  if (nnodes < 0) return error(MPI_ERR_ARG, "nnodes %d is negative", nnodes);
  if (nnodes > comm.size()) {
    return error(MPI_ERR_ARG, "nnodes %d: the communicator has %d processes", nnodes, comm.size());
  }
  graph->kind = Topology::Kind::graph;
  if (nnodes == 0) return MPI_SUCCESS;
  if (indx == nullptr) return null_argument("index");
  int before = 0;
  for (int i = 0; i < nnodes; ++i) {
    if (indx[i] < before) {
      return error(MPI_ERR_ARG, "index[%d] is %d: it counts the edges up to node %d, and %d come before", i, indx[i], i,
                   before);
    }
    before = indx[i];
  }
  if (before > 0 && edges == nullptr) return null_argument("edges");
  for (int i = 0; i < before; ++i) {
    if (edges[i] < 0 || edges[i] >= nnodes) {
      return error(MPI_ERR_RANK, "edges[%d] is %d: the graph has nodes 0-%d", i, edges[i], nnodes - 1);
    }
  }
  graph->index.assign(indx, indx + nnodes);
  graph->edges.assign(edges, edges + before);
  return MPI_SUCCESS;
}

int create_graph(Comm& comm, int nnodes, const int indx[], const int edges[], MPI_Comm* out) {
  auto graph = std::make_shared<Topology>();
  if (const int code = read_graph(comm, nnodes, indx, edges, graph.get()); code != MPI_SUCCESS) return code;
  if (out == nullptr) return null_argument("comm_graph");
  return make_with(comm, first_of(comm, nnodes), std::move(graph), out);
}

int map_graph(const Comm& comm, int nnodes, const int indx[], const int edges[], int* newrank) {
  Topology graph;
  if (const int code = read_graph(comm, nnodes, indx, edges, &graph); code != MPI_SUCCESS) return code;
  if (newrank == nullptr) return null_argument("newrank");
  *newrank = comm.rank < nnodes ? comm.rank : MPI_UNDEFINED;
  return MPI_SUCCESS;
}

int find_graph(const Comm& comm, const Topology** graph) {
  return find_topology(comm, Topology::Kind::graph, graph);
}

int get_graph(const Comm& comm, int maxindex, int maxedges, int indx[], int edges[]) {
  const Topology* graph = nullptr;
  if (const int code = find_graph(comm, &graph); code != MPI_SUCCESS) return code;
  if (maxindex < 0) return error(MPI_ERR_ARG, "maxindex %d is negative", maxindex);
  if (maxedges < 0) return error(MPI_ERR_ARG, "maxedges %d is negative", maxedges);
  if (const int code = store_fitting(graph->index, maxindex, indx, "index"); code != MPI_SUCCESS) return code;
  return store_fitting(graph->edges, maxedges, edges, "edges");
}

// The graph of the communicator, and its edges from `rank`.
int find_edges(const Comm& comm, int rank, const Topology** graph, EdgeRange* range) {
  if (const int code = find_graph(comm, graph); code != MPI_SUCCESS) return code;
  if (rank < 0 || rank >= comm.size()) {
    return error(MPI_ERR_RANK, "rank %d: the communicator has ranks 0-%d", rank, comm.size() - 1);
  }
  *range = edges_of(**graph, rank);
  return MPI_SUCCESS;
}

int get_neighbours(const Comm& comm, int rank, int maxneighbors, int out[]) {
  const Topology* graph = nullptr;
  EdgeRange range{};
  if (const int code = find_edges(comm, rank, &graph, &range); code != MPI_SUCCESS) return code;
  if (maxneighbors < 0) return error(MPI_ERR_ARG, "maxneighbors %d is negative", maxneighbors);
  const int count = std::min(range.last - range.first, maxneighbors);
  if (count > 0 && out == nullptr) return null_argument("neighbors");
  std::copy_n(graph->edges.begin() + range.first, count, out);
  return MPI_SUCCESS;
}

int count_neighbours(const Comm& comm, int rank, int* count) {
  const Topology* graph = nullptr;
  EdgeRange range{};
  if (const int code = find_edges(comm, rank, &graph, &range); code != MPI_SUCCESS) return code;
  if (count == nullptr) return null_argument("nneighbors");
  *count = range.last - range.first;
  return MPI_SUCCESS;
}

int get_graph_dims(const Comm& comm, int* nnodes, int* nedges) {
  const Topology* graph = nullptr;
  if (const int code = find_graph(comm, &graph); code != MPI_SUCCESS) return code;
  if (nnodes == nullptr) return null_argument("nnodes");
  if (nedges == nullptr) return null_argument("nedges");
  *nnodes = static_cast<int>(graph->index.size());
  *nedges = static_cast<int>(graph->edges.size());
  return MPI_SUCCESS;
}

}  // namespace

EdgeRange edges_of(const Topology& graph, int rank) {
  const auto node = static_cast<std::size_t>(rank);
  return {node == 0 ? 0 : graph.index[node - 1], graph.index[node]};
}

int graph_create(Call call, MPI_Comm comm_old, int nnodes, const int indx[], const int edges[], int /*reorder*/,
                 MPI_Comm* comm_graph) {
  return on_comm(call, comm_old, [&](Comm& comm) { return create_graph(comm, nnodes, indx, edges, comm_graph); });
}

int graph_map(Call call, MPI_Comm comm, int nnodes, const int indx[], const int edges[], int* newrank) {
  return on_comm(call, comm, [&](const Comm& found) { return map_graph(found, nnodes, indx, edges, newrank); });
}

int graph_get(Call call, MPI_Comm comm, int maxindex, int maxedges, int indx[], int edges[]) {
  return on_comm(call, comm, [&](const Comm& found) { return get_graph(found, maxindex, maxedges, indx, edges); });
}

int graph_neighbors(Call call, MPI_Comm comm, int rank, int maxneighbors, int neighbors[]) {
  return on_comm(call, comm, [&](const Comm& found) { return get_neighbours(found, rank, maxneighbors, neighbors); });
}

int graph_neighbors_count(Call call, MPI_Comm comm, int rank, int* nneighbors) {
  return on_comm(call, comm, [&](const Comm& found) { return count_neighbours(found, rank, nneighbors); });
}

int graphdims_get(Call call, MPI_Comm comm, int* nnodes, int* nedges) {
  return on_comm(call, comm, [&](const Comm& found) { return get_graph_dims(found, nnodes, nedges); });
}

}  // namespace heddle::mpi
