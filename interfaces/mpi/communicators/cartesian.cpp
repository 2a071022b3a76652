// Cartesian topologies: grids. The last coordinate of a process changes fastest with its rank.
#include <algorithm>

#include <units/topologies.hpp>
#include "mpi/communicators/topology.hpp"
#include "mpi/core/errors.hpp"

namespace heddle::mpi {
namespace {

// A grid as the program describes it, which has at most as many processes as the communicator.
// *volume: how many.
int read_grid(const Comm& comm, int ndims, const int dims[], const int periods[], Topology* grid, int* volume) {
  if (const int code = check_intra(comm); code != MPI_SUCCESS) return code;
  if (ndims < 0) return error(MPI_ERR_ARG, "ndims %d is negative", ndims);
  if (ndims > 0 && dims == nullptr) return null_argument("dims");
  if (ndims > 0 && periods == nullptr) return null_argument("periods");
  for (int i = 0; i < ndims; ++i)
    if (dims[i] < 1) return error(MPI_ERR_DIMS, "dims[%d] is %d: each dimension has at least 1 process", i, dims[i]);
  grid->kind = Topology::Kind::cart;
  grid->dims.assign(dims, dims + ndims);
  for (int i = 0; i < ndims; ++i) grid->periods.push_back(periods[i] != 0 ? 1 : 0);
  *volume = volume_of(*grid, comm.size());
  if (*volume <= comm.size()) return MPI_SUCCESS;
  return error(MPI_ERR_DIMS, "dims: their product is larger than %d, the number of processes of comm", comm.size());
}

int create_grid(Comm& comm, int ndims, const int dims[], const int periods[], MPI_Comm* out) {
  auto grid = std::make_shared<Topology>();
  int volume = 0;
  if (const int code = read_grid(comm, ndims, dims, periods, grid.get(), &volume); code != MPI_SUCCESS) return code;
  if (out == nullptr) return null_argument("comm_cart");
  return make_with(comm, first_of(comm, volume), std::move(grid), out);
}

int map_grid(const Comm& comm, int ndims, const int dims[], const int periods[], int* newrank) {
  Topology grid;
  int volume = 0;
  if (const int code = read_grid(comm, ndims, dims, periods, &grid, &volume); code != MPI_SUCCESS) return code;
  if (newrank == nullptr) return null_argument("newrank");
  *newrank = comm.rank < volume ? comm.rank : MPI_UNDEFINED;
  return MPI_SUCCESS;
}

std::vector<int> coordinates_of(const Topology& grid, int rank) {
  std::vector<int> coordinates(grid.dims.size());
  for (std::size_t i = grid.dims.size(); i-- > 0; rank /= grid.dims[i]) coordinates[i] = rank % grid.dims[i];
  return coordinates;
}

int find_grid(const Comm& comm, const Topology** grid) {
  return find_topology(comm, Topology::Kind::cart, grid);
}

// The part of the grid that has this process's coordinates in the dimensions that are not kept.
int sub_grid(Comm& comm, const int remain_dims[], MPI_Comm* out) {
  const Topology* grid = nullptr;
  if (const int code = find_grid(comm, &grid); code != MPI_SUCCESS) return code;
  if (remain_dims == nullptr && !grid->dims.empty()) return null_argument("remain_dims");
  if (out == nullptr) return null_argument("newcomm");
  auto part = std::make_shared<Topology>();
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
  const Topology* grid = nullptr;
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
  const Topology* grid = nullptr;
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
  const Topology* grid = nullptr;
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
  const Topology* grid = nullptr;
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

int volume_of(const Topology& cart, int most) {
  std::int64_t volume = 1;
  for (const int size : cart.dims) {
    volume *= size;
    if (volume > most) return most + 1;
  }
  return static_cast<int>(volume);
}

int cart_neighbour(const Topology& cart, int rank, std::size_t dimension, std::int64_t distance) {
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
    const Topology* grid = nullptr;
    if (const int code = find_grid(found, &grid); code != MPI_SUCCESS) return code;
    if (ndims == nullptr) return null_argument("ndims");
    *ndims = static_cast<int>(grid->dims.size());
    return MPI_SUCCESS;
  });
}

}  // namespace heddle::mpi
