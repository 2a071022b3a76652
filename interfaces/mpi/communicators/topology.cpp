// What the kinds of topology share.

#include "mpi/communicators/topology.hpp"

#include <algorithm>
#include <new>
#include <numeric>
#include <units/topologies.hpp>
#include <vector>

#include "mpi/core/errors.hpp"

namespace heddle::mpi {

namespace {

struct KindText {
  const char* name;
  const char* maker;
};
KindText words_for(CommTopology::Kind kind) {
  switch (kind) {
    case CommTopology::Kind::cart:
      return {"Cartesian", "MPI_Cart_create"};
    case CommTopology::Kind::graph:
      return {"graph", "MPI_Graph_create"};
    case CommTopology::Kind::dist_graph:
      return {"distributed graph", "MPI_Dist_graph_create"};
  }
  return {"", ""};
}

}  // namespace

int find_topology(const Comm& comm, CommTopology::Kind kind, const CommTopology** topology) {
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

int make_with(Comm& parent, GroupPointer group, std::shared_ptr<const CommTopology> topology, MPI_Comm* out) {
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
  const CommTopology* const topology = comm.topology.get();
  neighbours->sources.clear();
  neighbours->destinations.clear();
  if (topology == nullptr) return false;
  switch (topology->kind) {
    case CommTopology::Kind::cart:
      for (std::size_t i = 0; i < topology->dims.size(); ++i) {
        neighbours->sources.push_back(cart_neighbour(*topology, comm.rank, i, -1));
        neighbours->sources.push_back(cart_neighbour(*topology, comm.rank, i, 1));
      }
      neighbours->destinations = neighbours->sources;
      break;
    case CommTopology::Kind::graph: {
      const EdgeRange range = edges_of(*topology, comm.rank);
      neighbours->sources.assign(topology->edges.begin() + range.first, topology->edges.begin() + range.last);
      neighbours->destinations = neighbours->sources;
      break;
    }
    case CommTopology::Kind::dist_graph:
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
      case CommTopology::Kind::cart:
        *status = MPI_CART;
        break;
      case CommTopology::Kind::graph:
        *status = MPI_GRAPH;
        break;
      case CommTopology::Kind::dist_graph:
        *status = MPI_DIST_GRAPH;
        break;
    }
    return MPI_SUCCESS;
  });
}

// Cartesian topologies: grids. The last coordinate of a process changes fastest with its rank.

namespace {

// A grid as the program describes it, which has at most as many processes as the communicator.
// *volume: how many.
int read_grid(const Comm& comm, int ndims, const int dims[], const int periods[], CommTopology* grid, int* volume) {
  if (const int code = check_intra(comm); code != MPI_SUCCESS) return code;
  if (ndims < 0) return error(MPI_ERR_ARG, "ndims %d is negative", ndims);
  if (ndims > 0 && dims == nullptr) return null_argument("dims");
  if (ndims > 0 && periods == nullptr) return null_argument("periods");
  for (int i = 0; i < ndims; ++i)
    if (dims[i] < 1) return error(MPI_ERR_DIMS, "dims[%d] is %d: each dimension has at least 1 process", i, dims[i]);
  grid->kind = CommTopology::Kind::cart;
  grid->dims.assign(dims, dims + ndims);
  for (int i = 0; i < ndims; ++i) grid->periods.push_back(periods[i] != 0 ? 1 : 0);
  *volume = volume_of(*grid, comm.size());
  if (*volume <= comm.size()) return MPI_SUCCESS;
  return error(MPI_ERR_DIMS, "dims: their product is larger than %d, the number of processes of comm", comm.size());
}

int create_grid(Comm& comm, int ndims, const int dims[], const int periods[], MPI_Comm* out) {
  auto grid = std::make_shared<CommTopology>();
  int volume = 0;
  if (const int code = read_grid(comm, ndims, dims, periods, grid.get(), &volume); code != MPI_SUCCESS) return code;
  if (out == nullptr) return null_argument("comm_cart");
  return make_with(comm, first_of(comm, volume), std::move(grid), out);
}

int map_grid(const Comm& comm, int ndims, const int dims[], const int periods[], int* newrank) {
  CommTopology grid;
  int volume = 0;
  if (const int code = read_grid(comm, ndims, dims, periods, &grid, &volume); code != MPI_SUCCESS) return code;
  if (newrank == nullptr) return null_argument("newrank");
  *newrank = comm.rank < volume ? comm.rank : MPI_UNDEFINED;
  return MPI_SUCCESS;
}

std::vector<int> coordinates_of(const CommTopology& grid, int rank) {
  std::vector<int> coordinates(grid.dims.size());
  for (std::size_t i = grid.dims.size(); i-- > 0; rank /= grid.dims[i]) coordinates[i] = rank % grid.dims[i];
  return coordinates;
}

int find_grid(const Comm& comm, const CommTopology** grid) {
  return find_topology(comm, CommTopology::Kind::cart, grid);
}

// The part of the grid that has this process's coordinates in the dimensions that are not kept.
int sub_grid(Comm& comm, const int remain_dims[], MPI_Comm* out) {
  const CommTopology* grid = nullptr;
  if (const int code = find_grid(comm, &grid); code != MPI_SUCCESS) return code;
  if (remain_dims == nullptr && !grid->dims.empty()) return null_argument("remain_dims");
  if (out == nullptr) return null_argument("newcomm");
  auto part = std::make_shared<CommTopology>();
  const std::vector<int> mine = coordinates_of(*grid, comm.rank);
  std::vector<int> ranks{0};
  for (std::size_t i = 0; i < grid->dims.size(); ++i) {
    const int size = grid->dims[i];
    std::vector<int> next;
    for (const int rank : ranks)
      for (int at = 0; at < size; ++at)
        if (remain_dims[i] != 0 || at == mine[i]) next.push_back(rank * size + at);
    ranks = std::move(next);
    if (remain_dims[i] == 0) continue;
    part->dims.push_back(size);
    part->periods.push_back(grid->periods[i]);
  }
  std::vector<std::uint32_t> members;
  for (const int rank : ranks) members.push_back((*comm.group)[rank]);
  return make_with(comm, std::make_shared<const Group>(std::move(members), comm.group->session()), std::move(part),
                   out);
}

int rank_at(const Comm& comm, const int coords[], int* rank) {
  const CommTopology* grid = nullptr;
  if (const int code = find_grid(comm, &grid); code != MPI_SUCCESS) return code;
  if (rank == nullptr) return null_argument("rank");
  const std::size_t count = grid->dims.size();
  if (coords == nullptr && count != 0) return null_argument("coords");
  int found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int size = grid->dims[i];
    int at = coords[i];
    if (grid->periods[i] != 0) at = (at % size + size) % size;
    if (at < 0 || at >= size) {
      return error(MPI_ERR_ARG, "coords[%zu] is %d: the dimension has 0-%d and is not periodic", i, at, size - 1);
    }
    found = found * size + at;
  }
  *rank = found;
  return MPI_SUCCESS;
}

int coords_of(const Comm& comm, int rank, int maxdims, int coords[]) {
  const CommTopology* grid = nullptr;
  if (const int code = find_grid(comm, &grid); code != MPI_SUCCESS) return code;
  if (rank < 0 || rank >= comm.size()) {
    return error(MPI_ERR_RANK, "rank %d: the communicator has ranks 0-%d", rank, comm.size() - 1);
  }
  if (maxdims < 0 || static_cast<std::size_t>(maxdims) < grid->dims.size()) {
    return error(MPI_ERR_ARG, "maxdims %d: the grid has %zu dimensions", maxdims, grid->dims.size());
  }
  if (coords == nullptr && !grid->dims.empty()) return null_argument("coords");
  std::ranges::copy(coordinates_of(*grid, rank), coords);
  return MPI_SUCCESS;
}

// Stores the dimensions that there is room for.
int get_grid(const Comm& comm, int maxdims, int dims[], int periods[], int coords[]) {
  const CommTopology* grid = nullptr;
  if (const int code = find_grid(comm, &grid); code != MPI_SUCCESS) return code;
  if (maxdims < 0) return error(MPI_ERR_ARG, "maxdims %d is negative", maxdims);
  const std::size_t count = std::min(grid->dims.size(), static_cast<std::size_t>(maxdims));
  if (count == 0) return MPI_SUCCESS;
  if (dims == nullptr) return null_argument("dims");
  if (periods == nullptr) return null_argument("periods");
  if (coords == nullptr) return null_argument("coords");
  const std::vector<int> mine = coordinates_of(*grid, comm.rank);
  for (std::size_t i = 0; i < count; ++i) {
    dims[i] = grid->dims[i];
    periods[i] = grid->periods[i];
    coords[i] = mine[i];
  }
  return MPI_SUCCESS;
}

int shift_in_grid(const Comm& comm, int direction, int disp, int* source, int* dest) {
  const CommTopology* grid = nullptr;
  if (const int code = find_grid(comm, &grid); code != MPI_SUCCESS) return code;
  if (direction < 0 || static_cast<std::size_t>(direction) >= grid->dims.size()) {
    return error(MPI_ERR_ARG, "direction %d: the grid has %zu dimensions, numbered from 0", direction,
                 grid->dims.size());
  }
  if (source == nullptr) return null_argument("rank_source");
  if (dest == nullptr) return null_argument("rank_dest");
  const auto dimension = static_cast<std::size_t>(direction);
  *source = cart_neighbour(*grid, comm.rank, dimension, -std::int64_t{disp});
  *dest = cart_neighbour(*grid, comm.rank, dimension, disp);
  return MPI_SUCCESS;
}

}  // namespace

int volume_of(const CommTopology& cart, int most) {
  std::int64_t volume = 1;
  for (const int size : cart.dims) {
    volume *= size;
    if (volume > most) return most + 1;
  }
  return static_cast<int>(volume);
}

int cart_neighbour(const CommTopology& cart, int rank, std::size_t dimension, std::int64_t distance) {
  int stride = 1;
  for (std::size_t i = dimension + 1; i < cart.dims.size(); ++i) stride *= cart.dims[i];
  const std::int64_t size = cart.dims[dimension];
  const std::int64_t from = rank / stride % size;
  std::int64_t to = from + distance;
  if (cart.periods[dimension] != 0) to = (to % size + size) % size;
  if (to < 0 || to >= size) return MPI_PROC_NULL;
  return rank + static_cast<int>(to - from) * stride;
}

// `reorder` is an offer that is not taken: ranks stay as they are.

int cart_create(Call call, MPI_Comm comm_old, int ndims, const int dims[], const int periods[], int /*reorder*/,
                MPI_Comm* comm_cart) {
  return on_comm(call, comm_old, [&](Comm& comm) { return create_grid(comm, ndims, dims, periods, comm_cart); });
}

int cart_sub(Call call, MPI_Comm comm, const int remain_dims[], MPI_Comm* newcomm) {
  return on_comm(call, comm, [&](Comm& found) { return sub_grid(found, remain_dims, newcomm); });
}

int cart_map(Call call, MPI_Comm comm, int ndims, const int dims[], const int periods[], int* newrank) {
  return on_comm(call, comm, [&](const Comm& found) { return map_grid(found, ndims, dims, periods, newrank); });
}

int cart_rank(Call call, MPI_Comm comm, const int coords[], int* rank) {
  return on_comm(call, comm, [&](const Comm& found) { return rank_at(found, coords, rank); });
}

int cart_coords(Call call, MPI_Comm comm, int rank, int maxdims, int coords[]) {
  return on_comm(call, comm, [&](const Comm& found) { return coords_of(found, rank, maxdims, coords); });
}

int cart_get(Call call, MPI_Comm comm, int maxdims, int dims[], int periods[], int coords[]) {
  return on_comm(call, comm, [&](const Comm& found) { return get_grid(found, maxdims, dims, periods, coords); });
}

int cart_shift(Call call, MPI_Comm comm, int direction, int disp, int* rank_source, int* rank_dest) {
  return on_comm(call, comm,
                 [&](const Comm& found) { return shift_in_grid(found, direction, disp, rank_source, rank_dest); });
}

int cartdim_get(Call call, MPI_Comm comm, int* ndims) {
  return on_comm(call, comm, [&](const Comm& found) -> int {
    const CommTopology* grid = nullptr;
    if (const int code = find_grid(found, &grid); code != MPI_SUCCESS) return code;
    if (ndims == nullptr) return null_argument("ndims");
    *ndims = static_cast<int>(grid->dims.size());
    return MPI_SUCCESS;
  });
}

// MPI_Dims_create: dimensions that are as equal as possible.

namespace {

// Divisors of the number that is shared out, ascending.
std::vector<int> divisors_of(int number) {
  std::vector<int> low;
  std::vector<int> high;
  for (int i = 1; i <= number / i; ++i) {
    if (number % i != 0) continue;
    low.push_back(i);
    if (i != number / i) high.push_back(number / i);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

// value^exponent, or the limit if it is not below that.
std::int64_t power_up_to(std::int64_t value, std::size_t exponent, std::int64_t limit) {
  std::int64_t power = 1;
  for (std::size_t i = 0; i < exponent && power < limit; ++i) power *= value;
  return std::min(power, limit);
}

// Finds the factors of a number that are as close to each other as possible: the difference of the
// largest and the smallest factor is least. If several factorisations have this difference, the sum
// decides, since a small sum means a small surface; then the largest factor. The search looks at
// all factorisations that can be the best, smallest factor first; these are few.
class Balance {
 public:
  Balance(int number, std::size_t count) : number_(number), count_(count), divisors_(divisors_of(number)) {}

  // Descending.
  std::vector<int> find() {
    best_.assign(count_, 1);
    best_.back() = number_;  // ascending while it is sought
    spread_ = number_ - (count_ > 1 ? 1 : number_);
    if (count_ > 1) {
      // From the root of the number down: there the factors are closest.
      for (auto smallest = divisors_.rbegin(); smallest != divisors_.rend(); ++smallest) {
        if (power_up_to(*smallest, count_, std::int64_t{number_} + 1) > number_) continue;
        if (power_up_to(std::int64_t{*smallest} + spread_, count_, number_) < number_) break;
        factors_.assign(1, *smallest);
        extend(number_ / *smallest);
      }
    }
    std::ranges::reverse(best_);
    return best_;
  }

 private:
  // `rest`: the product of the factors that are missing.
  void extend(int rest) {
    const std::size_t missing = count_ - factors_.size();
    const int most = static_cast<int>(std::min<std::int64_t>(std::int64_t{factors_.front()} + spread_, rest));
    if (missing == 1) {
      if (rest <= most && rest >= factors_.back()) take(rest);
      return;
    }
    for (auto next = std::ranges::lower_bound(divisors_, factors_.back()); next != divisors_.end(); ++next) {
      if (*next > most || power_up_to(*next, missing, std::int64_t{rest} + 1) > rest) return;
      if (rest % *next != 0 || power_up_to(most, missing - 1, rest / *next) < rest / *next) continue;
      factors_.push_back(*next);
      extend(rest / *next);
      factors_.pop_back();
    }
  }

  void take(int last) {
    std::vector<int> found = factors_;
    found.push_back(last);
    const int spread = last - found.front();
    if (spread == spread_) {
      const auto sum = [](const std::vector<int>& of) { return std::reduce(of.begin(), of.end(), std::int64_t{0}); };
      const std::int64_t here = sum(found);
      const std::int64_t known = sum(best_);
      const bool lower = std::lexicographical_compare(found.rbegin(), found.rend(), best_.rbegin(), best_.rend());
      if (here > known || (here == known && !lower)) return;
    }
    best_ = std::move(found);
    spread_ = spread;
  }

  const int number_;
  const std::size_t count_;
  const std::vector<int> divisors_;
  std::vector<int> factors_;  // ascending: those chosen so far
  std::vector<int> best_;
  int spread_ = 0;  // of the best: the largest less the smallest
};

int fill_dims(int nnodes, int ndims, int dims[]) {
  if (nnodes < 1) return error(MPI_ERR_ARG, "nnodes %d: there is at least 1", nnodes);
  if (ndims < 0) return error(MPI_ERR_DIMS, "ndims %d is negative", ndims);
  if (ndims > 0 && dims == nullptr) return null_argument("dims");
  std::int64_t fixed = 1;
  std::size_t open = 0;
  for (int i = 0; i < ndims; ++i) {
    if (dims[i] < 0) return error(MPI_ERR_DIMS, "dims[%d] is %d: none may be negative", i, dims[i]);
    if (dims[i] == 0) ++open;
    if (dims[i] > 0) fixed *= dims[i];
    if (fixed > nnodes) break;
  }
  if (fixed > nnodes || nnodes % fixed != 0) {
    return error(MPI_ERR_DIMS, "dims: the product of those that are not 0 does not divide nnodes %d", nnodes);
  }
  const int rest = static_cast<int>(nnodes / fixed);
  const std::vector<int> factors = open > 0 ? Balance(rest, open).find() : std::vector<int>{};
  std::size_t next = 0;
  for (int i = 0; i < ndims; ++i)
    if (dims[i] == 0) dims[i] = factors[next++];
  return MPI_SUCCESS;
}

}  // namespace

int dims_create(Call call, int nnodes, int ndims, int dims[]) {
  try {
    return told(call, fill_dims(nnodes, ndims, dims));
  } catch (const std::bad_alloc&) {
    return told(call, error(MPI_ERR_NO_MEM, "no memory for %d dimensions", ndims));
  }
}

}  // namespace heddle::mpi
