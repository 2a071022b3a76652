// Random neighbourhood collectives.
#include <numeric>

#include "collectives_cases.hpp"

namespace {

// The neighbours that a communicator reports, and the source's block that arrives here: its number
// among the source's targets.
struct Around {
  std::vector<int> sources;
  std::vector<int> targets;
  std::vector<int> numbers;  // by source
};

Around around_grid(MPI_Comm comm) {
  int dimensions = 0;
  MUST(MPI_Cartdim_get(comm, &dimensions));
  Around made;
  for (int d = 0; d < dimensions; ++d) {
    int below = 0;
    int above = 0;
    MUST(MPI_Cart_shift(comm, d, 1, &below, &above));
    made.sources.insert(made.sources.end(), {below, above});
    made.numbers.insert(made.numbers.end(), {2 * d + 1, 2 * d});
  }
  made.targets = made.sources;
  return made;
}

// In the graphs of this test each process sends to the next ones, and to itself; the last of these
// edges stands twice.
constexpr int kSteps[] = {0, 1, 2, 2};
Around around_graph(int rank, int size) {
  Around made;
  for (int i = 0; i < 4; ++i) {
    made.targets.push_back((rank + kSteps[i]) % size);
    made.sources.push_back((rank + size * 2 - kSteps[i]) % size);
    made.numbers.push_back(i);
  }
  return made;
}

// Every other process sends to the next of these; the first has no source, the last no target, the
// others neither.
Around around_chain(int rank, int size) {
  Around made;
  if (rank % 2 != 0) return made;
  if (rank + 2 < size) made.targets.push_back(rank + 2);
  if (rank >= 2) made.sources.push_back(rank - 2);
  made.numbers.assign(made.sources.size(), 0);
  return made;
}

struct Topologies {
  std::vector<MPI_Comm> comms;
  std::vector<Around> around;
};

Topologies make_topologies(const Where& where) {
  Topologies made;
  for (int dimensions = 1; dimensions < 4; ++dimensions) {
    std::vector<int> sizes(static_cast<std::size_t>(dimensions), 0);
    std::vector<int> periods(sizes.size(), 0);
    for (int d = 0; d < dimensions; ++d) periods[static_cast<std::size_t>(d)] = d != 1;
    MUST(MPI_Dims_create(where.size, dimensions, sizes.data()));
    MPI_Comm comm = MPI_COMM_NULL;
    MUST(MPI_Cart_create(where.comm, dimensions, sizes.data(), periods.data(), 0, &comm));
    made.comms.push_back(comm);
    made.around.push_back(around_grid(comm));
  }
  for (const Around& graph : {around_graph(where.rank, where.size), around_chain(where.rank, where.size)}) {
    MPI_Comm comm = MPI_COMM_NULL;
    MUST(MPI_Dist_graph_create_adjacent(where.comm, static_cast<int>(graph.sources.size()), graph.sources.data(),
                                        MPI_UNWEIGHTED, static_cast<int>(graph.targets.size()), graph.targets.data(),
                                        MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm));
    made.comms.push_back(comm);
    made.around.push_back(graph);
  }
  for (MPI_Comm one : made.comms) g_comms.push_back(one);
  return made;
}

constexpr int kUnit = 12;
enum class Kind { gather, gather_listed, even, listed, by_types };

// Blocks for the targets, or from the sources, one after the other.
struct Side {
  Layout layout;
  std::vector<int> counts;
  std::vector<int> displacements;
  std::vector<MPI_Aint> bytes;
  std::vector<MPI_Datatype> types;
  Area area;
};

std::shared_ptr<Side> make_side(const Layout& layout, const std::vector<int>& units) {
  auto side = std::make_shared<Side>();
  side->layout = layout;
  int at = 0;
  for (const int some : units) {
    side->counts.push_back(some * kUnit / layout.ints());
    side->displacements.push_back(at);
    side->bytes.push_back(static_cast<MPI_Aint>(sizeof(int)) * at * layout.extent);
    side->types.push_back(layout.type);
    at += side->counts.back();
  }
  side->area = Area((at + 2) * layout.extent);
  side->counts.push_back(0);
  side->displacements.push_back(0);
  return side;
}

void call(Kind kind, Form form, MPI_Request* request, MPI_Comm comm, Side& from, Side& to) {
  const void* const sent = from.area.base();
  void* const got = to.area.base();
  const int* const send_counts = from.counts.data();
  const int* const receive_counts = to.counts.data();
  const int* const send_at = from.displacements.data();
  const int* const receive_at = to.displacements.data();
  const MPI_Datatype send_type = from.layout.type;
  const MPI_Datatype receive_type = to.layout.type;
  if (kind == Kind::gather)
    call_in<MPI_Neighbor_allgather, MPI_Ineighbor_allgather, MPI_Neighbor_allgather_init>(
        form, request, sent, send_counts[0], send_type, got, receive_counts[0], receive_type, comm);
  else if (kind == Kind::gather_listed)
    call_in<MPI_Neighbor_allgatherv, MPI_Ineighbor_allgatherv, MPI_Neighbor_allgatherv_init>(
        form, request, sent, send_counts[0], send_type, got, receive_counts, receive_at, receive_type, comm);
  else if (kind == Kind::even)
    call_in<MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall, MPI_Neighbor_alltoall_init>(
        form, request, sent, send_counts[0], send_type, got, receive_counts[0], receive_type, comm);
  else if (kind == Kind::listed)
    call_in<MPI_Neighbor_alltoallv, MPI_Ineighbor_alltoallv, MPI_Neighbor_alltoallv_init>(
        form, request, sent, send_counts, send_at, send_type, got, receive_counts, receive_at, receive_type, comm);
  else
    call_in<MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw, MPI_Neighbor_alltoallw_init>(
        form, request, sent, send_counts, static_cast<const MPI_Aint*>(from.bytes.data()),
        static_cast<const MPI_Datatype*>(from.types.data()), got, receive_counts,
        static_cast<const MPI_Aint*>(to.bytes.data()), static_cast<const MPI_Datatype*>(to.types.data()), comm);
}

}  // namespace

Case random_neighbours(Random& random, const Where& where, const std::vector<Layout>& layouts, int seed) {
  static const Topologies topologies = make_topologies(where);
  const auto which = static_cast<std::size_t>(random.below(5));
  const auto kind = static_cast<Kind>(random.below(5));
  std::vector<int> table;
  for (int i = 0; i < 7; ++i) table.push_back(random.below(5));
  Random own(random.next() + static_cast<std::uint64_t>(where.rank));
  const MPI_Comm comm = topologies.comms[which];
  const auto around = std::make_shared<Around>(topologies.around[which]);
  const int me = where.rank;
  const bool gathers = kind == Kind::gather || kind == Kind::gather_listed;
  // For a sender's block with this number.
  const auto units = [=](int from, int number) {
    if (kind == Kind::gather || kind == Kind::even) return table[0];
    return table[static_cast<std::size_t>(from * 3 + (gathers ? 0 : number)) % 7];
  };
  std::vector<int> sent;
  if (gathers)
    sent.push_back(units(me, 0));
  else
    for (std::size_t i = 0; i < around->targets.size(); ++i) sent.push_back(units(me, static_cast<int>(i)));
  std::vector<int> got;
  for (std::size_t i = 0; i < around->sources.size(); ++i) {
    const int source = around->sources[i];
    got.push_back(units(source == MPI_PROC_NULL ? 0 : source, around->numbers[i]));
  }
  const auto some = [&]() -> const Layout& {
    return layouts[static_cast<std::size_t>(own.below(static_cast<int>(layouts.size())))];
  };
  auto from = make_side(some(), sent);
  auto to = make_side(some(), got);
  Case made{"neighbourhood", {}, {}, {}};
  made.fill = [=](int run) {
    from->area.clear();
    to->area.clear();
    for (std::size_t block = 0; block < sent.size(); ++block)
      for (int i = 0; i < sent[block] * kUnit; ++i)
        from->area.data(from->layout, from->displacements[block], i) = word(seed + run, me, static_cast<int>(block), i);
  };
  made.call = [=](Form form, MPI_Request* request) { call(kind, form, request, comm, *from, *to); };
  made.check = [=](int run) {
    for (std::size_t block = 0; block < got.size(); ++block) {
      const int source = around->sources[block];
      if (source == MPI_PROC_NULL) continue;
      const int number = gathers ? 0 : around->numbers[block];
      for (int i = 0; i < got[block] * kUnit; ++i)
        CHECK(to->area.data(to->layout, to->displacements[block], i) == word(seed + run, source, number, i));
    }
    CHECK(to->area.rest_is_empty());
  };
  return made;
}
