// Collectives that move blocks of any lengths: the v and w forms.
#include <units/collectives.hpp>
#include "mpi/collective/moving.hpp"

namespace heddle::mpi {
namespace {

// One block for each process with which this one exchanges data.
template <class List>
int read_list(Schedule& schedule, const SideNames& names, const List& list, Blocks* blocks) {
  const Comm& comm = schedule.communicator();
  if (const int code = check_not_in_place(names, list.buffer); code != MPI_SUCCESS) return code;
  return read_blocks(schedule, names, list, comm.inter() ? comm.remote_size() : comm.size(), blocks);
}

int gatherv_in(Call call, const CallWay& way, const BlockArguments& send, const Listed& receive, int root,
               MPI_Comm comm) {
  return run_collective(call, comm, way, [&](Schedule& schedule) -> int {
    if (const int code = check_root(schedule, root); code != MPI_SUCCESS) return code;
    const bool inter = schedule.communicator().inter();
    const bool at_root = inter ? root == MPI_ROOT : schedule.communicator().rank == root;
    const bool in_place = at_root && !inter && send.buffer == MPI_IN_PLACE;
    const bool gives = inter ? root >= 0 : !in_place;
    Block block;
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
  return run_collective(call, comm, way, [&](Schedule& schedule) -> int {
    if (const int code = check_root(schedule, root); code != MPI_SUCCESS) return code;
    const bool inter = schedule.communicator().inter();
    const bool at_root = inter ? root == MPI_ROOT : schedule.communicator().rank == root;
    const bool in_place = at_root && !inter && receive.buffer == MPI_IN_PLACE;
    const bool gets = inter ? root >= 0 : !in_place;
    Block block;
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
  return run_collective(call, comm, way, [&](Schedule& schedule) -> int {
    const bool inter = schedule.communicator().inter();
    const bool in_place = !inter && send.buffer == MPI_IN_PLACE;
    Block block;
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
  return run_collective(call, comm, way, [&](Schedule& schedule) -> int {
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
            Counts recvcounts, Counts displs, MPI_Datatype recvtype, int root, MPI_Comm comm) {
  return gatherv_in(call, {}, {sendbuf, sendcount, sendtype}, {recvbuf, recvcounts, displs, recvtype}, root, comm);
}
int igatherv(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
             Counts recvcounts, Counts displs, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request) {
  return gatherv_in(call, nonblocking(request), {sendbuf, sendcount, sendtype}, {recvbuf, recvcounts, displs, recvtype},
                    root, comm);
}
int gatherv_init(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                 Counts recvcounts, Counts displs, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Info info,
                 MPI_Request* request) {
  return gatherv_in(call, persistent(info, request), {sendbuf, sendcount, sendtype},
                    {recvbuf, recvcounts, displs, recvtype}, root, comm);
}

int scatterv(Call call, const void* sendbuf, Counts sendcounts, Counts displs, MPI_Datatype sendtype, void* recvbuf,
             MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
  return scatterv_in(call, {}, {sendbuf, sendcounts, displs, sendtype}, {recvbuf, recvcount, recvtype}, root, comm);
}
int iscatterv(Call call, const void* sendbuf, Counts sendcounts, Counts displs, MPI_Datatype sendtype, void* recvbuf,
              MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request) {
  return scatterv_in(call, nonblocking(request), {sendbuf, sendcounts, displs, sendtype},
                     {recvbuf, recvcount, recvtype}, root, comm);
}
int scatterv_init(Call call, const void* sendbuf, Counts sendcounts, Counts displs, MPI_Datatype sendtype,
                  void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Info info,
                  MPI_Request* request) {
  return scatterv_in(call, persistent(info, request), {sendbuf, sendcounts, displs, sendtype},
                     {recvbuf, recvcount, recvtype}, root, comm);
}

// ---- allgatherv ---------------------------------------------------------------------------------

int allgatherv(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
               Counts recvcounts, Counts displs, MPI_Datatype recvtype, MPI_Comm comm) {
  return allgatherv_in(call, {}, {sendbuf, sendcount, sendtype}, {recvbuf, recvcounts, displs, recvtype}, comm);
}
int iallgatherv(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                Counts recvcounts, Counts displs, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return allgatherv_in(call, nonblocking(request), {sendbuf, sendcount, sendtype},
                       {recvbuf, recvcounts, displs, recvtype}, comm);
}
int allgatherv_init(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                    Counts recvcounts, Counts displs, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                    MPI_Request* request) {
  return allgatherv_in(call, persistent(info, request), {sendbuf, sendcount, sendtype},
                       {recvbuf, recvcounts, displs, recvtype}, comm);
}

// ---- alltoallv and alltoallw --------------------------------------------------------------------

int alltoallv(Call call, const void* sendbuf, Counts sendcounts, Counts sdispls, MPI_Datatype sendtype, void* recvbuf,
              Counts recvcounts, Counts rdispls, MPI_Datatype recvtype, MPI_Comm comm) {
  return alltoallv_in<Listed>(call, {}, {sendbuf, sendcounts, sdispls, sendtype},
                              {recvbuf, recvcounts, rdispls, recvtype}, comm);
}
int ialltoallv(Call call, const void* sendbuf, Counts sendcounts, Counts sdispls, MPI_Datatype sendtype, void* recvbuf,
               Counts recvcounts, Counts rdispls, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return alltoallv_in<Listed>(call, nonblocking(request), {sendbuf, sendcounts, sdispls, sendtype},
                              {recvbuf, recvcounts, rdispls, recvtype}, comm);
}
int alltoallv_init(Call call, const void* sendbuf, Counts sendcounts, Counts sdispls, MPI_Datatype sendtype,
                   void* recvbuf, Counts recvcounts, Counts rdispls, MPI_Datatype recvtype, MPI_Comm comm,
                   MPI_Info info, MPI_Request* request) {
  return alltoallv_in<Listed>(call, persistent(info, request), {sendbuf, sendcounts, sdispls, sendtype},
                              {recvbuf, recvcounts, rdispls, recvtype}, comm);
}

int alltoallw(Call call, const void* sendbuf, Counts sendcounts, Counts sdispls, const MPI_Datatype sendtypes[],
              void* recvbuf, Counts recvcounts, Counts rdispls, const MPI_Datatype recvtypes[], MPI_Comm comm) {
  return alltoallv_in<ListedTypes>(call, {}, {sendbuf, sendcounts, sdispls, sendtypes},
                                   {recvbuf, recvcounts, rdispls, recvtypes}, comm);
}
int ialltoallw(Call call, const void* sendbuf, Counts sendcounts, Counts sdispls, const MPI_Datatype sendtypes[],
               void* recvbuf, Counts recvcounts, Counts rdispls, const MPI_Datatype recvtypes[], MPI_Comm comm,
               MPI_Request* request) {
  return alltoallv_in<ListedTypes>(call, nonblocking(request), {sendbuf, sendcounts, sdispls, sendtypes},
                                   {recvbuf, recvcounts, rdispls, recvtypes}, comm);
}
int alltoallw_init(Call call, const void* sendbuf, Counts sendcounts, Counts sdispls, const MPI_Datatype sendtypes[],
                   void* recvbuf, Counts recvcounts, Counts rdispls, const MPI_Datatype recvtypes[], MPI_Comm comm,
                   MPI_Info info, MPI_Request* request) {
  return alltoallv_in<ListedTypes>(call, persistent(info, request), {sendbuf, sendcounts, sdispls, sendtypes},
                                   {recvbuf, recvcounts, rdispls, recvtypes}, comm);
}

}  // namespace heddle::mpi
