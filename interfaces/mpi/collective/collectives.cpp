// Barrier, and collectives that move blocks of one length.

#include <units/collectives.hpp>

#include "mpi/collective/engine_call.hpp"
#include "mpi/collective/moving.hpp"

namespace heddle::mpi {

namespace {

// The buffer that a process gives or gets, as the program passes it.
struct Send {
  const void* buffer;
  MPI_Count count;
  MPI_Datatype type;
};
struct Receive {
  void* buffer;
  MPI_Count count;
  MPI_Datatype type;
};

int read_side_block(StepSchedule& schedule, const Send& send, BufferBlock* block) {
  return read_block(schedule, kSend, {send.buffer, send.count, send.type}, block);
}
int read_side_block(StepSchedule& schedule, const Receive& receive, BufferBlock* block) {
  return read_block(schedule, kReceive, {receive.buffer, receive.count, receive.type}, block);
}
// One block for each process with which this one exchanges data.
template <class Side>
int read_even(StepSchedule& schedule, const Side& side, Blocks* blocks) {
  BufferBlock first;
  if (const int code = read_side_block(schedule, side, &first); code != MPI_SUCCESS) return code;
  const Comm& comm = schedule.communicator();
  *blocks = Blocks::even(first, comm.inter() ? comm.remote_size() : comm.size());
  return MPI_SUCCESS;
}

int barrier_in(Call call, const CallWay& way, MPI_Comm comm) {
  return run_collective(call, comm, way, [](StepSchedule& schedule) -> int {
    if (schedule.communicator().inter())
      add_inter_barrier(schedule);
    else
      add_barrier(schedule);
    return MPI_SUCCESS;
  });
}

int bcast_in(Call call, const CallWay& way, const Receive& data, int root, MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    if (const int code = check_root(schedule, root); code != MPI_SUCCESS) return code;
    const bool inter = schedule.communicator().inter();
    BufferBlock block;
    if (!inter || root != MPI_PROC_NULL) {
      const int code = read_block(schedule, kBuffer, {data.buffer, data.count, data.type}, &block);
      if (code != MPI_SUCCESS) return code;
    }
    if (inter)
      add_inter_broadcast(schedule, block, root);
    else
      add_broadcast(schedule, block, root);
    return MPI_SUCCESS;
  });
}

int inter_gather(StepSchedule& schedule, const Send& send, const Receive& receive, int root) {
  BufferBlock block;
  Blocks blocks;
  int code = MPI_SUCCESS;
  if (root == MPI_ROOT)
    code = read_even(schedule, receive, &blocks);
  else if (root != MPI_PROC_NULL)
    code = read_side_block(schedule, send, &block);
  if (code == MPI_SUCCESS) add_inter_gather(schedule, block, blocks, root);
  return code;
}

int gather_in(Call call, const CallWay& way, const Send& send, const Receive& receive, int root, MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    if (const int code = check_root(schedule, root); code != MPI_SUCCESS) return code;
    if (schedule.communicator().inter()) return inter_gather(schedule, send, receive, root);
    const bool at_root = schedule.communicator().rank == root;
    const bool in_place = at_root && send.buffer == MPI_IN_PLACE;
    BufferBlock block;
    Blocks blocks;
    if (!in_place)
      if (const int code = read_side_block(schedule, send, &block); code != MPI_SUCCESS) return code;
    if (at_root)
      if (const int code = read_even(schedule, receive, &blocks); code != MPI_SUCCESS) return code;
    return add_gather(schedule, in_place ? nullptr : &block, blocks, root, false);
  });
}

int allgather_in(Call call, const CallWay& way, const Send& send, const Receive& receive, MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    const bool inter = schedule.communicator().inter();
    const bool in_place = !inter && send.buffer == MPI_IN_PLACE;
    BufferBlock block;
    Blocks blocks;
    if (!in_place)
      if (const int code = read_side_block(schedule, send, &block); code != MPI_SUCCESS) return code;
    if (const int code = read_even(schedule, receive, &blocks); code != MPI_SUCCESS) return code;
    if (!inter) return add_allgather(schedule, in_place ? nullptr : &block, blocks);
    add_inter_alltoall(schedule, Blocks::same(block, schedule.communicator().remote_size()), blocks);
    return MPI_SUCCESS;
  });
}

int inter_scatter(StepSchedule& schedule, const Send& send, const Receive& receive, int root) {
  BufferBlock block;
  Blocks blocks;
  int code = MPI_SUCCESS;
  if (root == MPI_ROOT)
    code = read_even(schedule, send, &blocks);
  else if (root != MPI_PROC_NULL)
    code = read_side_block(schedule, receive, &block);
  if (code == MPI_SUCCESS) add_inter_scatter(schedule, blocks, block, root);
  return code;
}

int scatter_in(Call call, const CallWay& way, const Send& send, const Receive& receive, int root, MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    if (const int code = check_root(schedule, root); code != MPI_SUCCESS) return code;
    if (schedule.communicator().inter()) return inter_scatter(schedule, send, receive, root);
    const bool at_root = schedule.communicator().rank == root;
    const bool in_place = at_root && receive.buffer == MPI_IN_PLACE;
    BufferBlock block;
    Blocks blocks;
    if (at_root)
      if (const int code = read_even(schedule, send, &blocks); code != MPI_SUCCESS) return code;
    if (!in_place)
      if (const int code = read_side_block(schedule, receive, &block); code != MPI_SUCCESS) return code;
    return add_scatter(schedule, blocks, in_place ? nullptr : &block, root, false);
  });
}

int alltoall_in(Call call, const CallWay& way, const Send& send, const Receive& receive, MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    const bool inter = schedule.communicator().inter();
    const bool in_place = !inter && send.buffer == MPI_IN_PLACE;
    Blocks from;
    Blocks to;
    if (!in_place)
      if (const int code = read_even(schedule, send, &from); code != MPI_SUCCESS) return code;
    if (const int code = read_even(schedule, receive, &to); code != MPI_SUCCESS) return code;
    if (!inter) return add_alltoall(schedule, in_place ? nullptr : &from, to);
    add_inter_alltoall(schedule, from, to);
    return MPI_SUCCESS;
  });
}

}  // namespace

// ---- barrier and broadcast ----------------------------------------------------------------------

int barrier(Call call, MPI_Comm handle) {
  Comm* const comm = comm_of(handle);
  const bool short_way = has_team(comm);
  if (!short_way) [[unlikely]]
    return barrier_in(call, {}, handle);
  return told(call, comm, run_barrier(*comm));
}
int ibarrier(Call call, MPI_Comm comm, MPI_Request* request) {
  return barrier_in(call, nonblocking(request), comm);
}
int barrier_init(Call call, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return barrier_in(call, persistent(info, request), comm);
}

int bcast(Call call, void* buffer, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm handle) {
  Comm* const comm = comm_of(handle);
  const bool short_way = has_team(comm);
  const ShortData data = short_data(buffer, count, datatype);
  if (!short_way || data.at == nullptr || !has_member(*comm, root)) [[unlikely]]
    return bcast_in(call, {}, {buffer, count, datatype}, root, handle);
  const auto from = static_cast<std::uint32_t>(root);
  return told(call, comm, run_blocking(*comm, {EngineCollective::broadcast, nullptr, data.at, data.bytes, from}));
}
int ibcast(Call call, void* buffer, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm,
           MPI_Request* request) {
  return bcast_in(call, nonblocking(request), {buffer, count, datatype}, root, comm);
}
int bcast_init(Call call, void* buffer, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm, MPI_Info info,
               MPI_Request* request) {
  return bcast_in(call, persistent(info, request), {buffer, count, datatype}, root, comm);
}

// ---- gather and scatter -------------------------------------------------------------------------

int gather(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
           MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
  return gather_in(call, {}, {sendbuf, sendcount, sendtype}, {recvbuf, recvcount, recvtype}, root, comm);
}
int igather(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
            MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request) {
  return gather_in(call, nonblocking(request), {sendbuf, sendcount, sendtype}, {recvbuf, recvcount, recvtype}, root,
                   comm);
}
int gather_init(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Info info,
                MPI_Request* request) {
  return gather_in(call, persistent(info, request), {sendbuf, sendcount, sendtype}, {recvbuf, recvcount, recvtype},
                   root, comm);
}

int scatter(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
            MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
  return scatter_in(call, {}, {sendbuf, sendcount, sendtype}, {recvbuf, recvcount, recvtype}, root, comm);
}
int iscatter(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
             MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request) {
  return scatter_in(call, nonblocking(request), {sendbuf, sendcount, sendtype}, {recvbuf, recvcount, recvtype}, root,
                    comm);
}
int scatter_init(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                 MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Info info,
                 MPI_Request* request) {
  return scatter_in(call, persistent(info, request), {sendbuf, sendcount, sendtype}, {recvbuf, recvcount, recvtype},
                    root, comm);
}

// ---- allgather and alltoall ---------------------------------------------------------------------

namespace {

// So many blocks of two sides do not overlap, and do not begin at one place.
bool lie_apart(const ShortData& one, std::size_t blocks, const ShortData& other, std::size_t other_blocks) {
  const auto from = reinterpret_cast<std::uintptr_t>(one.at);
  const auto to = reinterpret_cast<std::uintptr_t>(other.at);
  return from != to && (from >= to + other.bytes * other_blocks || to >= from + one.bytes * blocks);
}

}  // namespace

int allgather(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm handle) {
  Comm* const comm = comm_of(handle);
  const bool short_way = has_team(comm);
  const ShortData from = short_data(sendbuf, sendcount, sendtype);
  const ShortData to = short_data(recvbuf, recvcount, recvtype);
  if (!short_way || from.at == nullptr || to.at == nullptr || from.bytes != to.bytes ||
      !lie_apart(from, 1, to, comm->members.size()))
    return allgather_in(call, {}, {sendbuf, sendcount, sendtype}, {recvbuf, recvcount, recvtype}, handle);
  return told(call, comm, run_blocking(*comm, {EngineCollective::allgather, from.at, to.at, to.bytes}));
}
int iallgather(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
               MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return allgather_in(call, nonblocking(request), {sendbuf, sendcount, sendtype}, {recvbuf, recvcount, recvtype}, comm);
}
int allgather_init(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                   MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return allgather_in(call, persistent(info, request), {sendbuf, sendcount, sendtype}, {recvbuf, recvcount, recvtype},
                      comm);
}

int alltoall(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
             MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm handle) {
  Comm* const comm = comm_of(handle);
  const bool short_way = has_team(comm);
  const ShortData from = short_data(sendbuf, sendcount, sendtype);
  const ShortData to = short_data(recvbuf, recvcount, recvtype);
  if (!short_way || from.at == nullptr || to.at == nullptr || from.bytes != to.bytes ||
      !lie_apart(from, comm->members.size(), to, comm->members.size()))
    return alltoall_in(call, {}, {sendbuf, sendcount, sendtype}, {recvbuf, recvcount, recvtype}, handle);
  return told(call, comm, run_blocking(*comm, {EngineCollective::alltoall, from.at, to.at, to.bytes}));
}
int ialltoall(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return alltoall_in(call, nonblocking(request), {sendbuf, sendcount, sendtype}, {recvbuf, recvcount, recvtype}, comm);
}
int alltoall_init(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                  MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return alltoall_in(call, persistent(info, request), {sendbuf, sendcount, sendtype}, {recvbuf, recvcount, recvtype},
                     comm);
}

// Collectives that move blocks of any lengths: the v and w forms.

namespace {

// One block for each process with which this one exchanges data.
template <class List>
int read_list(StepSchedule& schedule, const SideNames& names, const List& list, Blocks* blocks) {
  const Comm& comm = schedule.communicator();
  if (const int code = check_not_in_place(names, list.buffer); code != MPI_SUCCESS) return code;
  return read_blocks(schedule, names, list, comm.inter() ? comm.remote_size() : comm.size(), blocks);
}

int gatherv_in(Call call, const CallWay& way, const BlockArguments& send, const Listed& receive, int root,
               MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    if (const int code = check_root(schedule, root); code != MPI_SUCCESS) return code;
    const bool inter = schedule.communicator().inter();
    const bool at_root = inter ? root == MPI_ROOT : schedule.communicator().rank == root;
    const bool in_place = at_root && !inter && send.buffer == MPI_IN_PLACE;
    const bool gives = inter ? root >= 0 : !in_place;
    BufferBlock block;
    Blocks blocks;
    if (gives)
      if (const int code = read_block(schedule, kSend, send, &block); code != MPI_SUCCESS) return code;
    if (at_root)
      if (const int code = read_list(schedule, kReceive, receive, &blocks); code != MPI_SUCCESS) return code;
    if (!inter) return add_gather(schedule, in_place ? nullptr : &block, blocks, root, true);
    add_inter_gather(schedule, block, blocks, root);
    return MPI_SUCCESS;
  });
}

int scatterv_in(Call call, const CallWay& way, const Listed& send, const BlockArguments& receive, int root,
                MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    if (const int code = check_root(schedule, root); code != MPI_SUCCESS) return code;
    const bool inter = schedule.communicator().inter();
    const bool at_root = inter ? root == MPI_ROOT : schedule.communicator().rank == root;
    const bool in_place = at_root && !inter && receive.buffer == MPI_IN_PLACE;
    const bool gets = inter ? root >= 0 : !in_place;
    BufferBlock block;
    Blocks blocks;
    if (at_root)
      if (const int code = read_list(schedule, kSend, send, &blocks); code != MPI_SUCCESS) return code;
    if (gets)
      if (const int code = read_block(schedule, kReceive, receive, &block); code != MPI_SUCCESS) return code;
    if (!inter) return add_scatter(schedule, blocks, in_place ? nullptr : &block, root, true);
    add_inter_scatter(schedule, blocks, block, root);
    return MPI_SUCCESS;
  });
}

int allgatherv_in(Call call, const CallWay& way, const BlockArguments& send, const Listed& receive, MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    const bool inter = schedule.communicator().inter();
    const bool in_place = !inter && send.buffer == MPI_IN_PLACE;
    BufferBlock block;
    Blocks blocks;
    if (!in_place)
      if (const int code = read_block(schedule, kSend, send, &block); code != MPI_SUCCESS) return code;
    if (const int code = read_list(schedule, kReceive, receive, &blocks); code != MPI_SUCCESS) return code;
    if (!inter) return add_allgather(schedule, in_place ? nullptr : &block, blocks);
    add_inter_alltoall(schedule, Blocks::same(block, schedule.communicator().remote_size()), blocks);
    return MPI_SUCCESS;
  });
}

template <class List>
int alltoallv_in(Call call, const CallWay& way, const List& send, const List& receive, MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    const bool inter = schedule.communicator().inter();
    const bool in_place = !inter && send.buffer == MPI_IN_PLACE;
    Blocks from;
    Blocks to;
    if (!in_place)
      if (const int code = read_list(schedule, kSend, send, &from); code != MPI_SUCCESS) return code;
    if (const int code = read_list(schedule, kReceive, receive, &to); code != MPI_SUCCESS) return code;
    if (!inter) return add_alltoall(schedule, in_place ? nullptr : &from, to);
    add_inter_alltoall(schedule, from, to);
    return MPI_SUCCESS;
  });
}

}  // namespace

// ---- gatherv and scatterv -----------------------------------------------------------------------

int gatherv(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
            CountList recvcounts, CountList displs, MPI_Datatype recvtype, int root, MPI_Comm comm) {
  return gatherv_in(call, {}, {sendbuf, sendcount, sendtype}, {recvbuf, recvcounts, displs, recvtype}, root, comm);
}
int igatherv(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
             CountList recvcounts, CountList displs, MPI_Datatype recvtype, int root, MPI_Comm comm,
             MPI_Request* request) {
  return gatherv_in(call, nonblocking(request), {sendbuf, sendcount, sendtype}, {recvbuf, recvcounts, displs, recvtype},
                    root, comm);
}
int gatherv_init(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                 CountList recvcounts, CountList displs, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Info info,
                 MPI_Request* request) {
  return gatherv_in(call, persistent(info, request), {sendbuf, sendcount, sendtype},
                    {recvbuf, recvcounts, displs, recvtype}, root, comm);
}

int scatterv(Call call, const void* sendbuf, CountList sendcounts, CountList displs, MPI_Datatype sendtype,
             void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
  return scatterv_in(call, {}, {sendbuf, sendcounts, displs, sendtype}, {recvbuf, recvcount, recvtype}, root, comm);
}
int iscatterv(Call call, const void* sendbuf, CountList sendcounts, CountList displs, MPI_Datatype sendtype,
              void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
              MPI_Request* request) {
  return scatterv_in(call, nonblocking(request), {sendbuf, sendcounts, displs, sendtype},
                     {recvbuf, recvcount, recvtype}, root, comm);
}
int scatterv_init(Call call, const void* sendbuf, CountList sendcounts, CountList displs, MPI_Datatype sendtype,
                  void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Info info,
                  MPI_Request* request) {
  return scatterv_in(call, persistent(info, request), {sendbuf, sendcounts, displs, sendtype},
                     {recvbuf, recvcount, recvtype}, root, comm);
}

// ---- allgatherv ---------------------------------------------------------------------------------

int allgatherv(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
               CountList recvcounts, CountList displs, MPI_Datatype recvtype, MPI_Comm comm) {
  return allgatherv_in(call, {}, {sendbuf, sendcount, sendtype}, {recvbuf, recvcounts, displs, recvtype}, comm);
}
int iallgatherv(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                CountList recvcounts, CountList displs, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return allgatherv_in(call, nonblocking(request), {sendbuf, sendcount, sendtype},
                       {recvbuf, recvcounts, displs, recvtype}, comm);
}
int allgatherv_init(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                    CountList recvcounts, CountList displs, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                    MPI_Request* request) {
  return allgatherv_in(call, persistent(info, request), {sendbuf, sendcount, sendtype},
                       {recvbuf, recvcounts, displs, recvtype}, comm);
}

// ---- alltoallv and alltoallw --------------------------------------------------------------------

int alltoallv(Call call, const void* sendbuf, CountList sendcounts, CountList sdispls, MPI_Datatype sendtype,
              void* recvbuf, CountList recvcounts, CountList rdispls, MPI_Datatype recvtype, MPI_Comm comm) {
  return alltoallv_in<Listed>(call, {}, {sendbuf, sendcounts, sdispls, sendtype},
                              {recvbuf, recvcounts, rdispls, recvtype}, comm);
}
int ialltoallv(Call call, const void* sendbuf, CountList sendcounts, CountList sdispls, MPI_Datatype sendtype,
               void* recvbuf, CountList recvcounts, CountList rdispls, MPI_Datatype recvtype, MPI_Comm comm,
               MPI_Request* request) {
  return alltoallv_in<Listed>(call, nonblocking(request), {sendbuf, sendcounts, sdispls, sendtype},
                              {recvbuf, recvcounts, rdispls, recvtype}, comm);
}
int alltoallv_init(Call call, const void* sendbuf, CountList sendcounts, CountList sdispls, MPI_Datatype sendtype,
                   void* recvbuf, CountList recvcounts, CountList rdispls, MPI_Datatype recvtype, MPI_Comm comm,
                   MPI_Info info, MPI_Request* request) {
  return alltoallv_in<Listed>(call, persistent(info, request), {sendbuf, sendcounts, sdispls, sendtype},
                              {recvbuf, recvcounts, rdispls, recvtype}, comm);
}

int alltoallw(Call call, const void* sendbuf, CountList sendcounts, CountList sdispls, const MPI_Datatype sendtypes[],
              void* recvbuf, CountList recvcounts, CountList rdispls, const MPI_Datatype recvtypes[], MPI_Comm comm) {
  return alltoallv_in<ListedTypes>(call, {}, {sendbuf, sendcounts, sdispls, sendtypes},
                                   {recvbuf, recvcounts, rdispls, recvtypes}, comm);
}
int ialltoallw(Call call, const void* sendbuf, CountList sendcounts, CountList sdispls, const MPI_Datatype sendtypes[],
               void* recvbuf, CountList recvcounts, CountList rdispls, const MPI_Datatype recvtypes[], MPI_Comm comm,
               MPI_Request* request) {
  return alltoallv_in<ListedTypes>(call, nonblocking(request), {sendbuf, sendcounts, sdispls, sendtypes},
                                   {recvbuf, recvcounts, rdispls, recvtypes}, comm);
}
int alltoallw_init(Call call, const void* sendbuf, CountList sendcounts, CountList sdispls,
                   const MPI_Datatype sendtypes[], void* recvbuf, CountList recvcounts, CountList rdispls,
                   const MPI_Datatype recvtypes[], MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return alltoallv_in<ListedTypes>(call, persistent(info, request), {sendbuf, sendcounts, sdispls, sendtypes},
                                   {recvbuf, recvcounts, rdispls, recvtypes}, comm);
}

}  // namespace heddle::mpi
