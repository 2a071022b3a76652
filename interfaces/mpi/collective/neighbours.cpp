// Neighbourhood collectives.
#include <algorithm>
#include <numeric>

#include <units/neighbours.hpp>
#include "mpi/collective/moving.hpp"
#include "mpi/communicators/topology.hpp"

namespace heddle::mpi {
namespace {

// The processes with which this one exchanges blocks, in the order of its buffers.
struct Partners {
  std::vector<int> sources;
  std::vector<int> targets;
  // The order in which received blocks match sent ones: the n-th block that i sends to j is the
  // n-th block that j receives from i.
  std::vector<std::size_t> arrivals;
};

// In a grid, a block that goes to the neighbour below arrives there as the block from above.
int find_partners(const Comm& comm, Partners* partners) {
  Neighbours neighbours;
  if (comm.inter() || !neighbours_of(comm, &neighbours))
    return error(MPI_ERR_TOPOLOGY, "the communicator has no topology; make one by MPI_Cart_create or a graph");
  partners->sources = std::move(neighbours.sources);
  partners->targets = std::move(neighbours.destinations);
  partners->arrivals.resize(partners->sources.size());
  std::iota(partners->arrivals.begin(), partners->arrivals.end(), std::size_t{0});
  if (comm.topology->kind == CommTopology::Kind::cart)
    for (std::size_t i = 0; i + 1 < partners->arrivals.size(); i += 2)
      std::swap(partners->arrivals[i], partners->arrivals[i + 1]);
  return MPI_SUCCESS;
}

// All neighbours are this process.
void add_to_itself(StepSchedule& schedule, const Partners& partners, const Blocks& send, const Blocks& receive) {
  std::size_t arrival = 0;
  for (std::size_t i = 0; i < partners.targets.size(); ++i) {
    if (partners.targets[i] == MPI_PROC_NULL) continue;
    while (arrival < partners.arrivals.size() && partners.sources[partners.arrivals[arrival]] == MPI_PROC_NULL)
      ++arrival;
    if (arrival == partners.arrivals.size()) return;
    add_copy(schedule, send[static_cast<int>(i)], receive[static_cast<int>(partners.arrivals[arrival++])]);
  }
}

void list_block(const Wire& wire, const Blocks& blocks, std::size_t i, BlockPlaces* places) {
  const std::size_t bytes = blocks[static_cast<int>(i)].bytes();
  places->lengths.push_back(bytes);
  places->offsets.push_back(bytes == 0 ? 0 : static_cast<std::size_t>(wire.at(static_cast<int>(i)) - wire.base));
}

void add_exchange(StepSchedule& schedule, const Partners& partners, const Blocks& send, const Blocks& receive) {
  if (is_alone(schedule.communicator())) return add_to_itself(schedule, partners, send, receive);
  Wire from;
  Wire to;
  if (send.size() > 0) from = wire_of(schedule, send);
  if (receive.size() > 0) to = wire_of_received(schedule, receive, &send);
  add_pack(schedule, send, from);
  EngineCall call;
  call.what = EngineCollective::neighbor_alltoallv;
  call.send = from.base;
  call.receive = to.base;
  for (std::size_t i = 0; i < partners.targets.size(); ++i) {
    if (partners.targets[i] == MPI_PROC_NULL) continue;
    call.targets.push_back(static_cast<std::uint32_t>(partners.targets[i]));
    list_block(from, send, i, &call.send_places);
  }
  for (const std::size_t i : partners.arrivals) {
    if (partners.sources[i] == MPI_PROC_NULL) continue;
    call.sources.push_back(static_cast<std::uint32_t>(partners.sources[i]));
    list_block(to, receive, i, &call.receive_places);
  }
  schedule.engine(std::move(call));
  // Blocks that nobody sends stay as they are.
  if (!to.packed) return;
  for (std::size_t i = 0; i < partners.sources.size(); ++i) {
    if (partners.sources[i] == MPI_PROC_NULL) continue;
    add_unpack(schedule, receive[static_cast<int>(i)], to.at(static_cast<int>(i)));
  }
}

// For all sides: where each of `count` blocks lies.
struct SameSide {
  BlockArguments one;
};
struct EvenSide {
  BlockArguments one;
};
int read_partner_blocks(StepSchedule& schedule, const SideNames& names, const SameSide& side, int count,
                        Blocks* blocks) {
  BufferBlock block;
  const int code = read_block(schedule, names, side.one, &block);
  if (code == MPI_SUCCESS) *blocks = Blocks::same(block, count);
  return code;
}
int read_partner_blocks(StepSchedule& schedule, const SideNames& names, const EvenSide& side, int count,
                        Blocks* blocks) {
  BufferBlock block;
  const int code = read_block(schedule, names, side.one, &block);
  if (code == MPI_SUCCESS) *blocks = Blocks::even(block, count);
  return code;
}
template <class List>
int read_partner_blocks(StepSchedule& schedule, const SideNames& names, const List& side, int count, Blocks* blocks) {
  if (const int code = check_not_in_place(names, side.buffer); code != MPI_SUCCESS) return code;
  return read_blocks(schedule, names, side, count, blocks);
}

template <class Send, class Receive>
int exchange_in(Call call, const CallWay& way, const Send& send, const Receive& receive, MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    Partners partners;
    if (const int code = find_partners(schedule.communicator(), &partners); code != MPI_SUCCESS) return code;
    Blocks from;
    Blocks to;
    const int targets = static_cast<int>(partners.targets.size());
    const int sources = static_cast<int>(partners.sources.size());
    if (const int code = read_partner_blocks(schedule, kSend, send, targets, &from); code != MPI_SUCCESS) return code;
    if (const int code = read_partner_blocks(schedule, kReceive, receive, sources, &to); code != MPI_SUCCESS)
      return code;
    add_exchange(schedule, partners, from, to);
    return MPI_SUCCESS;
  });
}

}  // namespace

// ---- the same block to all ----------------------------------------------------------------------

int neighbor_allgather(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                       MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
  return exchange_in(call, {}, SameSide{{sendbuf, sendcount, sendtype}}, EvenSide{{recvbuf, recvcount, recvtype}},
                     comm);
}
int ineighbor_allgather(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                        MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return exchange_in(call, nonblocking(request), SameSide{{sendbuf, sendcount, sendtype}},
                     EvenSide{{recvbuf, recvcount, recvtype}}, comm);
}
int neighbor_allgather_init(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                            MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                            MPI_Request* request) {
  return exchange_in(call, persistent(info, request), SameSide{{sendbuf, sendcount, sendtype}},
                     EvenSide{{recvbuf, recvcount, recvtype}}, comm);
}

int neighbor_allgatherv(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                        CountList recvcounts, CountList displs, MPI_Datatype recvtype, MPI_Comm comm) {
  return exchange_in(call, {}, SameSide{{sendbuf, sendcount, sendtype}}, Listed{recvbuf, recvcounts, displs, recvtype},
                     comm);
}
int ineighbor_allgatherv(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                         CountList recvcounts, CountList displs, MPI_Datatype recvtype, MPI_Comm comm,
                         MPI_Request* request) {
  return exchange_in(call, nonblocking(request), SameSide{{sendbuf, sendcount, sendtype}},
                     Listed{recvbuf, recvcounts, displs, recvtype}, comm);
}
int neighbor_allgatherv_init(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                             CountList recvcounts, CountList displs, MPI_Datatype recvtype, MPI_Comm comm,
                             MPI_Info info, MPI_Request* request) {
  return exchange_in(call, persistent(info, request), SameSide{{sendbuf, sendcount, sendtype}},
                     Listed{recvbuf, recvcounts, displs, recvtype}, comm);
}

// ---- a block for each ---------------------------------------------------------------------------

int neighbor_alltoall(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                      MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
  return exchange_in(call, {}, EvenSide{{sendbuf, sendcount, sendtype}}, EvenSide{{recvbuf, recvcount, recvtype}},
                     comm);
}
int ineighbor_alltoall(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                       MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return exchange_in(call, nonblocking(request), EvenSide{{sendbuf, sendcount, sendtype}},
                     EvenSide{{recvbuf, recvcount, recvtype}}, comm);
}
int neighbor_alltoall_init(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                           MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                           MPI_Request* request) {
  return exchange_in(call, persistent(info, request), EvenSide{{sendbuf, sendcount, sendtype}},
                     EvenSide{{recvbuf, recvcount, recvtype}}, comm);
}

int neighbor_alltoallv(Call call, const void* sendbuf, CountList sendcounts, CountList sdispls, MPI_Datatype sendtype,
                       void* recvbuf, CountList recvcounts, CountList rdispls, MPI_Datatype recvtype, MPI_Comm comm) {
  return exchange_in(call, {}, Listed{sendbuf, sendcounts, sdispls, sendtype},
                     Listed{recvbuf, recvcounts, rdispls, recvtype}, comm);
}
int ineighbor_alltoallv(Call call, const void* sendbuf, CountList sendcounts, CountList sdispls, MPI_Datatype sendtype,
                        void* recvbuf, CountList recvcounts, CountList rdispls, MPI_Datatype recvtype, MPI_Comm comm,
                        MPI_Request* request) {
  return exchange_in(call, nonblocking(request), Listed{sendbuf, sendcounts, sdispls, sendtype},
                     Listed{recvbuf, recvcounts, rdispls, recvtype}, comm);
}
int neighbor_alltoallv_init(Call call, const void* sendbuf, CountList sendcounts, CountList sdispls,
                            MPI_Datatype sendtype, void* recvbuf, CountList recvcounts, CountList rdispls,
                            MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return exchange_in(call, persistent(info, request), Listed{sendbuf, sendcounts, sdispls, sendtype},
                     Listed{recvbuf, recvcounts, rdispls, recvtype}, comm);
}

int neighbor_alltoallw(Call call, const void* sendbuf, CountList sendcounts, const MPI_Aint sdispls[],
                       const MPI_Datatype sendtypes[], void* recvbuf, CountList recvcounts, const MPI_Aint rdispls[],
                       const MPI_Datatype recvtypes[], MPI_Comm comm) {
  return exchange_in(call, {}, ListedTypes{sendbuf, sendcounts, sdispls, sendtypes},
                     ListedTypes{recvbuf, recvcounts, rdispls, recvtypes}, comm);
}
int ineighbor_alltoallw(Call call, const void* sendbuf, CountList sendcounts, const MPI_Aint sdispls[],
                        const MPI_Datatype sendtypes[], void* recvbuf, CountList recvcounts, const MPI_Aint rdispls[],
                        const MPI_Datatype recvtypes[], MPI_Comm comm, MPI_Request* request) {
  return exchange_in(call, nonblocking(request), ListedTypes{sendbuf, sendcounts, sdispls, sendtypes},
                     ListedTypes{recvbuf, recvcounts, rdispls, recvtypes}, comm);
}
int neighbor_alltoallw_init(Call call, const void* sendbuf, CountList sendcounts, const MPI_Aint sdispls[],
                            const MPI_Datatype sendtypes[], void* recvbuf, CountList recvcounts,
                            const MPI_Aint rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm, MPI_Info info,
                            MPI_Request* request) {
  return exchange_in(call, persistent(info, request), ListedTypes{sendbuf, sendcounts, sdispls, sendtypes},
                     ListedTypes{recvbuf, recvcounts, rdispls, recvtypes}, comm);
}

}  // namespace heddle::mpi
