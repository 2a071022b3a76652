// Graphs that every process knows as a whole.

#include <algorithm>
#include <units/topologies.hpp>

#include "mpi/communicators/topology.hpp"
#include "mpi/core/errors.hpp"
#include "mpi/messages/internal.hpp"

namespace heddle::mpi {

namespace {

int read_graph(const Comm& comm, int nnodes, const int indx[], const int edges[], CommTopology* graph) {
  if (const int code = check_intra(comm); code != MPI_SUCCESS) return code;
  if (nnodes < 0) return error(MPI_ERR_ARG, "nnodes %d is negative", nnodes);
  if (nnodes > comm.size()) {
    return error(MPI_ERR_ARG, "nnodes %d: the communicator has %d processes", nnodes, comm.size());
  }
  graph->kind = CommTopology::Kind::graph;
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
  auto graph = std::make_shared<CommTopology>();
  if (const int code = read_graph(comm, nnodes, indx, edges, graph.get()); code != MPI_SUCCESS) return code;
  if (out == nullptr) return null_argument("comm_graph");
  return make_with(comm, first_of(comm, nnodes), std::move(graph), out);
}

int map_graph(const Comm& comm, int nnodes, const int indx[], const int edges[], int* newrank) {
  CommTopology graph;
  if (const int code = read_graph(comm, nnodes, indx, edges, &graph); code != MPI_SUCCESS) return code;
  if (newrank == nullptr) return null_argument("newrank");
  *newrank = comm.rank < nnodes ? comm.rank : MPI_UNDEFINED;
  return MPI_SUCCESS;
}

int find_graph(const Comm& comm, const CommTopology** graph) {
  return find_topology(comm, CommTopology::Kind::graph, graph);
}

int get_graph(const Comm& comm, int maxindex, int maxedges, int indx[], int edges[]) {
  const CommTopology* graph = nullptr;
  if (const int code = find_graph(comm, &graph); code != MPI_SUCCESS) return code;
  if (maxindex < 0) return error(MPI_ERR_ARG, "maxindex %d is negative", maxindex);
  if (maxedges < 0) return error(MPI_ERR_ARG, "maxedges %d is negative", maxedges);
  if (const int code = store_fitting(graph->index, maxindex, indx, "index"); code != MPI_SUCCESS) return code;
  return store_fitting(graph->edges, maxedges, edges, "edges");
}

// The graph of the communicator, and its edges from `rank`.
int find_edges(const Comm& comm, int rank, const CommTopology** graph, EdgeRange* range) {
  if (const int code = find_graph(comm, graph); code != MPI_SUCCESS) return code;
  if (rank < 0 || rank >= comm.size()) {
    return error(MPI_ERR_RANK, "rank %d: the communicator has ranks 0-%d", rank, comm.size() - 1);
  }
  *range = edges_of(**graph, rank);
  return MPI_SUCCESS;
}

int get_neighbours(const Comm& comm, int rank, int maxneighbors, int out[]) {
  const CommTopology* graph = nullptr;
  EdgeRange range{};
  if (const int code = find_edges(comm, rank, &graph, &range); code != MPI_SUCCESS) return code;
  if (maxneighbors < 0) return error(MPI_ERR_ARG, "maxneighbors %d is negative", maxneighbors);
  const int count = std::min(range.last - range.first, maxneighbors);
  if (count > 0 && out == nullptr) return null_argument("neighbors");
  std::copy_n(graph->edges.begin() + range.first, count, out);
  return MPI_SUCCESS;
}

int count_neighbours(const Comm& comm, int rank, int* count) {
  const CommTopology* graph = nullptr;
  EdgeRange range{};
  if (const int code = find_edges(comm, rank, &graph, &range); code != MPI_SUCCESS) return code;
  if (count == nullptr) return null_argument("nneighbors");
  *count = range.last - range.first;
  return MPI_SUCCESS;
}

int get_graph_dims(const Comm& comm, int* nnodes, int* nedges) {
  const CommTopology* graph = nullptr;
  if (const int code = find_graph(comm, &graph); code != MPI_SUCCESS) return code;
  if (nnodes == nullptr) return null_argument("nnodes");
  if (nedges == nullptr) return null_argument("nedges");
  *nnodes = static_cast<int>(graph->index.size());
  *nedges = static_cast<int>(graph->edges.size());
  return MPI_SUCCESS;
}

}  // namespace

EdgeRange edges_of(const CommTopology& graph, int rank) {
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

// Graphs of which each process knows its own edges.

namespace {

struct Edge {
  int source;
  int destination;
  int weight;
};
using EdgeLists = std::vector<std::vector<Edge>>;  // by rank

int check_node(const Comm& comm, int rank, const char* argument, std::size_t place) {
  if (rank >= 0 && rank < comm.size()) return MPI_SUCCESS;
  return error(MPI_ERR_RANK, "%s[%zu] is %d: the communicator has ranks 0-%d", argument, place, rank, comm.size() - 1);
}

int check_weight(int weight, const char* argument, std::size_t place) {
  if (weight >= 0) return MPI_SUCCESS;
  return error(MPI_ERR_ARG, "%s[%zu] is %d: weights are not negative", argument, place, weight);
}

// With MPI_WEIGHTS_EMPTY the graph is weighted, but has no edges here.
bool is_list(const int* weights) {
  return weights != nullptr && weights != MPI_UNWEIGHTED && weights != MPI_WEIGHTS_EMPTY;
}

int check_weights(const int* weights, std::size_t count, const char* argument) {
  if (count == 0 || weights == MPI_UNWEIGHTED) return MPI_SUCCESS;
  if (weights == nullptr) return null_argument(argument);
  if (weights == MPI_WEIGHTS_EMPTY) {
    return error(MPI_ERR_ARG, "%s is MPI_WEIGHTS_EMPTY, but there are %zu edges", argument, count);
  }
  for (std::size_t i = 0; i < count; ++i)
    if (const int code = check_weight(weights[i], argument, i); code != MPI_SUCCESS) return code;
  return MPI_SUCCESS;
}

// ---- made of the edges of each process ----------------------------------------------------------

struct AdjacentEdges {
  int degree;
  const int* ranks;
  const int* weights;
  const char* degree_name;
  const char* ranks_name;
  const char* weights_name;
};

int check_adjacent(const Comm& comm, const AdjacentEdges& side) {
  if (side.degree < 0) return error(MPI_ERR_ARG, "%s %d is negative", side.degree_name, side.degree);
  const auto degree = static_cast<std::size_t>(side.degree);
  if (degree > 0 && side.ranks == nullptr) return null_argument(side.ranks_name);
  for (std::size_t i = 0; i < degree; ++i) {
    // a place in the buffers without a neighbour, as at a grid's border
    if (side.ranks[i] == MPI_PROC_NULL) continue;
    if (const int code = check_node(comm, side.ranks[i], side.ranks_name, i); code != MPI_SUCCESS) return code;
  }
  return check_weights(side.weights, degree, side.weights_name);
}

int create_adjacent(Comm& comm, const AdjacentEdges& in, const AdjacentEdges& out, MPI_Info info, MPI_Comm* made) {
  if (const int code = check_intra(comm); code != MPI_SUCCESS) return code;
  if (const int code = check_adjacent(comm, in); code != MPI_SUCCESS) return code;
  if (const int code = check_adjacent(comm, out); code != MPI_SUCCESS) return code;
  if (info != MPI_INFO_NULL && info_of(info) == nullptr) return bad_info(info);
  if (made == nullptr) return null_argument("comm_dist_graph");
  if ((in.weights == MPI_UNWEIGHTED) != (out.weights == MPI_UNWEIGHTED)) {
    return error(MPI_ERR_ARG, "%s and %s: either both are MPI_UNWEIGHTED or none is", in.weights_name,
                 out.weights_name);
  }
  auto graph = std::make_shared<CommTopology>();
  graph->kind = CommTopology::Kind::dist_graph;
  graph->sources.assign(in.ranks, in.ranks + in.degree);
  graph->destinations.assign(out.ranks, out.ranks + out.degree);
  graph->weighted = in.weights != MPI_UNWEIGHTED;
  if (is_list(in.weights)) graph->source_weights.assign(in.weights, in.weights + in.degree);
  if (is_list(out.weights)) graph->destination_weights.assign(out.weights, out.weights + out.degree);
  return make_with(comm, comm.group, std::move(graph), made);
}

// ---- made of edges of any processes -------------------------------------------------------------

// Edges as a process gives them: degrees[i] edges from sources[i].
struct Given {
  int n;
  const int* sources;
  const int* degrees;
  const int* destinations;
  const int* weights;
};

int check_given(const Comm& comm, const Given& given) {
  if (given.n < 0) return error(MPI_ERR_ARG, "n %d is negative", given.n);
  const auto n = static_cast<std::size_t>(given.n);
  if (n > 0 && given.sources == nullptr) return null_argument("sources");
  if (n > 0 && given.degrees == nullptr) return null_argument("degrees");
  std::size_t edges = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (const int code = check_node(comm, given.sources[i], "sources", i); code != MPI_SUCCESS) return code;
    if (given.degrees[i] < 0) return error(MPI_ERR_ARG, "degrees[%zu] is %d: it is negative", i, given.degrees[i]);
    edges += static_cast<std::size_t>(given.degrees[i]);
  }
  if (edges > 0 && given.destinations == nullptr) return null_argument("destinations");
  for (std::size_t i = 0; i < edges; ++i)
    if (const int code = check_node(comm, given.destinations[i], "destinations", i); code != MPI_SUCCESS) return code;
  return check_weights(given.weights, edges, "weights");
}

// The edges that each process is an end of.
EdgeLists sort_out(const Comm& comm, const Given& given) {
  EdgeLists lists(static_cast<std::size_t>(comm.size()));
  const int* destination = given.destinations;
  const int* weight = is_list(given.weights) ? given.weights : nullptr;
  for (int i = 0; i < given.n; ++i) {
    for (int j = 0; j < given.degrees[i]; ++j) {
      const Edge edge{given.sources[i], *destination++, weight == nullptr ? 0 : *weight++};
      lists[static_cast<std::size_t>(edge.source)].push_back(edge);
      if (edge.destination != edge.source) lists[static_cast<std::size_t>(edge.destination)].push_back(edge);
    }
  }
  return lists;
}

// Sends `out` to one process while it receives `in` from another.
int exchange_edges(Comm& comm, int to, const std::vector<Edge>& out, int from, std::vector<Edge>* in) {
  const std::uint64_t sent = out.size();
  std::uint64_t coming = 0;
  const auto both = [&](const void* give, std::size_t give_bytes, void* take, std::size_t take_bytes) {
    InternalMessage receive;
    InternalMessage send;
    if (take_bytes > 0) {
      if (const int code = receive.receive(comm, from, InternalTag::kTopology, take, take_bytes); code != MPI_SUCCESS) {
        return code;
      }
    }
    int code = MPI_SUCCESS;
    if (give_bytes > 0) code = send.send(comm, to, InternalTag::kTopology, give, give_bytes);
    if (code == MPI_SUCCESS) code = send.wait();
    const int received = receive.wait();
    return code == MPI_SUCCESS ? received : code;
  };
  if (const int code = both(&sent, sizeof sent, &coming, sizeof coming); code != MPI_SUCCESS) return code;
  in->resize(coming);
  return both(out.data(), out.size() * sizeof(Edge), in->data(), in->size() * sizeof(Edge));
}

// Collects what each process knows of this process's edges. All processes send in the same order of
// distance, so that two of them never wait for each other.
int collect(Comm& comm, const EdgeLists& out, EdgeLists* in) {
  const int size = comm.size();
  const auto mine = static_cast<std::size_t>(comm.rank);
  in->resize(static_cast<std::size_t>(size));
  (*in)[mine] = out[mine];
  for (int distance = 1; distance < size; ++distance) {
    const int to = (comm.rank + distance) % size;
    const int from = (comm.rank - distance + size) % size;
    const int code =
        exchange_edges(comm, to, out[static_cast<std::size_t>(to)], from, &(*in)[static_cast<std::size_t>(from)]);
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

int create_dist_graph(Comm& comm, const Given& given, MPI_Info info, MPI_Comm* made) {
  if (const int code = check_intra(comm); code != MPI_SUCCESS) return code;
  if (const int code = check_given(comm, given); code != MPI_SUCCESS) return code;
  if (info != MPI_INFO_NULL && info_of(info) == nullptr) return bad_info(info);
  if (made == nullptr) return null_argument("comm_dist_graph");
  EdgeLists known;
  if (const int code = collect(comm, sort_out(comm, given), &known); code != MPI_SUCCESS) return code;
  auto graph = std::make_shared<CommTopology>();
  graph->kind = CommTopology::Kind::dist_graph;
  graph->weighted = given.weights != MPI_UNWEIGHTED;
  // The edges are in the order of the processes that gave them. Both ends of an edge see this
  // order.
  for (const std::vector<Edge>& edges : known) {
    for (const Edge& edge : edges) {
      if (edge.destination == comm.rank) {
        graph->sources.push_back(edge.source);
        if (graph->weighted) graph->source_weights.push_back(edge.weight);
      }
      if (edge.source == comm.rank) {
        graph->destinations.push_back(edge.destination);
        if (graph->weighted) graph->destination_weights.push_back(edge.weight);
      }
    }
  }
  return make_with(comm, comm.group, std::move(graph), made);
}

// ---- asking -------------------------------------------------------------------------------------

int find_dist_graph(const Comm& comm, const CommTopology** graph) {
  return find_topology(comm, CommTopology::Kind::dist_graph, graph);
}

int store_weights(const std::vector<int>& values, int most, int* out, const char* argument) {
  return out == MPI_UNWEIGHTED || out == MPI_WEIGHTS_EMPTY ? MPI_SUCCESS : store_fitting(values, most, out, argument);
}

int get_dist_neighbours(const Comm& comm, int maxindegree, int* sources, int* sourceweights, int maxoutdegree,
                        int* destinations, int* destweights) {
  const CommTopology* graph = nullptr;
  if (const int code = find_dist_graph(comm, &graph); code != MPI_SUCCESS) return code;
  if (maxindegree < 0) return error(MPI_ERR_ARG, "maxindegree %d is negative", maxindegree);
  if (maxoutdegree < 0) return error(MPI_ERR_ARG, "maxoutdegree %d is negative", maxoutdegree);
  int code = store_fitting(graph->sources, maxindegree, sources, "sources");
  if (code == MPI_SUCCESS) code = store_fitting(graph->destinations, maxoutdegree, destinations, "destinations");
  if (code == MPI_SUCCESS) code = store_weights(graph->source_weights, maxindegree, sourceweights, "sourceweights");
  if (code == MPI_SUCCESS) code = store_weights(graph->destination_weights, maxoutdegree, destweights, "destweights");
  return code;
}

int count_dist_neighbours(const Comm& comm, int* indegree, int* outdegree, int* weighted) {
  const CommTopology* graph = nullptr;
  if (const int code = find_dist_graph(comm, &graph); code != MPI_SUCCESS) return code;
  if (indegree == nullptr) return null_argument("indegree");
  if (outdegree == nullptr) return null_argument("outdegree");
  if (weighted == nullptr) return null_argument("weighted");
  *indegree = static_cast<int>(graph->sources.size());
  *outdegree = static_cast<int>(graph->destinations.size());
  *weighted = graph->weighted ? 1 : 0;
  return MPI_SUCCESS;
}

}  // namespace

int dist_graph_create(Call call, MPI_Comm comm_old, int n, const int sources[], const int degrees[],
                      const int destinations[], const int weights[], MPI_Info info, int /*reorder*/,
                      MPI_Comm* comm_dist_graph) {
  const Given given{n, sources, degrees, destinations, weights};
  return on_comm(call, comm_old, [&](Comm& comm) { return create_dist_graph(comm, given, info, comm_dist_graph); });
}

int dist_graph_create_adjacent(Call call, MPI_Comm comm_old, int indegree, const int sources[],
                               const int sourceweights[], int outdegree, const int destinations[],
                               const int destweights[], MPI_Info info, int /*reorder*/, MPI_Comm* comm_dist_graph) {
  const AdjacentEdges in{indegree, sources, sourceweights, "indegree", "sources", "sourceweights"};
  const AdjacentEdges out{outdegree, destinations, destweights, "outdegree", "destinations", "destweights"};
  return on_comm(call, comm_old, [&](Comm& comm) { return create_adjacent(comm, in, out, info, comm_dist_graph); });
}

int dist_graph_neighbors(Call call, MPI_Comm comm, int maxindegree, int sources[], int sourceweights[],
                         int maxoutdegree, int destinations[], int destweights[]) {
  return on_comm(call, comm, [&](const Comm& found) {
    return get_dist_neighbours(found, maxindegree, sources, sourceweights, maxoutdegree, destinations, destweights);
  });
}

int dist_graph_neighbors_count(Call call, MPI_Comm comm, int* indegree, int* outdegree, int* weighted) {
  return on_comm(call, comm,
                 [&](const Comm& found) { return count_dist_neighbours(found, indegree, outdegree, weighted); });
}

}  // namespace heddle::mpi
