// Graphs of which each process knows its own edges.
#include <algorithm>

#include <units/topologies.hpp>
#include "mpi/communicators/topology.hpp"
#include "mpi/core/errors.hpp"
#include "mpi/messages/internal.hpp"

namespace heddle::mpi {
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
  auto graph = std::make_shared<Topology>();
  graph->kind = Topology::Kind::dist_graph;
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
  auto graph = std::make_shared<Topology>();
  graph->kind = Topology::Kind::dist_graph;
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

int find_dist_graph(const Comm& comm, const Topology** graph) {
  return find_topology(comm, Topology::Kind::dist_graph, graph);
}

int store_weights(const std::vector<int>& values, int most, int* out, const char* argument) {
  return out == MPI_UNWEIGHTED || out == MPI_WEIGHTS_EMPTY ? MPI_SUCCESS : store_fitting(values, most, out, argument);
}

int get_dist_neighbours(const Comm& comm, int maxindegree, int* sources, int* sourceweights, int maxoutdegree,
                        int* destinations, int* destweights) {
  const Topology* graph = nullptr;
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
  const Topology* graph = nullptr;
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
