// Reductions of which each process gets a block.
#include <numeric>

#include <units/reducing.hpp>
#include "mpi/collective/combining.hpp"

namespace heddle::mpi {
namespace {

// As the program passes it.
struct ScatteredVectors {
  const void* send;
  void* receive;
  MPI_Datatype type;
  MPI_Op op;
};

int read_scattered(Schedule& schedule, const ScatteredVectors& vectors, const std::vector<MPI_Count>& counts,
                   Reducing* what) {
  constexpr SideNames kFrom{"sendbuf", "the sum of recvcounts", "datatype"};
  constexpr SideNames kTo{"recvbuf", "recvcount", "datatype"};
  const Comm& comm = schedule.communicator();
  what->op = op_of(vectors.op);
  if (what->op == nullptr) return bad_op(vectors.op);
  const MPI_Count all = std::accumulate(counts.begin(), counts.end(), MPI_Count{0});
  const MPI_Count mine = counts[static_cast<std::size_t>(comm.rank)];
  what->in_place = !comm.inter() && vectors.send == MPI_IN_PLACE;
  if (const int code = read_block(schedule, kTo, {vectors.receive, mine, vectors.type}, &what->receive);
      code != MPI_SUCCESS)
    return code;
  const void* const from = what->in_place ? vectors.receive : vectors.send;
  if (const int code = read_block(schedule, kFrom, {from, all, vectors.type}, &what->send); code != MPI_SUCCESS)
    return code;
  what->type = what->send.type;
  if (!what->in_place && mine > 0 && all > 0 && vectors.send == vectors.receive && vectors.send != MPI_BOTTOM)
    return error(MPI_ERR_BUFFER, "sendbuf and recvbuf are the same memory; pass two, or MPI_IN_PLACE");
  if (const int code = check_reduction(*what->op, *what->type); code != MPI_SUCCESS) return code;
  schedule.hold(what->op);
  return MPI_SUCCESS;
}

int add_scattered(Schedule& schedule, const ScatteredVectors& vectors, const std::vector<MPI_Count>& counts) {
  Reducing what;
  if (const int code = read_scattered(schedule, vectors, counts, &what); code != MPI_SUCCESS) return code;
  if (schedule.communicator().inter())
    add_inter_reduce_scatter(schedule, what, counts);
  else
    add_reduce_scatter(schedule, what, counts);
  return MPI_SUCCESS;
}

int check_recvcount(MPI_Count count, int rank) {
  constexpr MPI_Count kMost = MPI_Count{1} << 48;
  if (count >= 0 && count <= kMost) return MPI_SUCCESS;
  return error(MPI_ERR_COUNT, "recvcount %lld of rank %d: it must be 0 to 2^48", static_cast<long long>(count), rank);
}

int reduce_scatter_in(Call call, const CallWay& way, const ScatteredVectors& vectors, Counts recvcounts,
                      MPI_Comm comm) {
  return run_collective(call, comm, way, [&](Schedule& schedule) -> int {
    if (!recvcounts.present()) return null_argument("recvcounts");
    std::vector<MPI_Count> counts;
    for (int rank = 0; rank < schedule.communicator().size(); ++rank) {
      if (const int code = check_recvcount(recvcounts[rank], rank); code != MPI_SUCCESS) return code;
      counts.push_back(recvcounts[rank]);
    }
    return add_scattered(schedule, vectors, counts);
  });
}

int reduce_scatter_block_in(Call call, const CallWay& way, const ScatteredVectors& vectors, MPI_Count recvcount,
                            MPI_Comm comm) {
  return run_collective(call, comm, way, [&](Schedule& schedule) -> int {
    if (const int code = check_recvcount(recvcount, schedule.communicator().rank); code != MPI_SUCCESS) return code;
    const auto size = static_cast<std::size_t>(schedule.communicator().size());
    return add_scattered(schedule, vectors, std::vector<MPI_Count>(size, recvcount));
  });
}

}  // namespace

int reduce_scatter(Call call, const void* sendbuf, void* recvbuf, Counts recvcounts, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm) {
  return reduce_scatter_in(call, {}, {sendbuf, recvbuf, datatype, op}, recvcounts, comm);
}
int ireduce_scatter(Call call, const void* sendbuf, void* recvbuf, Counts recvcounts, MPI_Datatype datatype, MPI_Op op,
                    MPI_Comm comm, MPI_Request* request) {
  return reduce_scatter_in(call, nonblocking(request), {sendbuf, recvbuf, datatype, op}, recvcounts, comm);
}
int reduce_scatter_init(Call call, const void* sendbuf, void* recvbuf, Counts recvcounts, MPI_Datatype datatype,
                        MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return reduce_scatter_in(call, persistent(info, request), {sendbuf, recvbuf, datatype, op}, recvcounts, comm);
}

int reduce_scatter_block(Call call, const void* sendbuf, void* recvbuf, MPI_Count recvcount, MPI_Datatype datatype,
                         MPI_Op op, MPI_Comm comm) {
  return reduce_scatter_block_in(call, {}, {sendbuf, recvbuf, datatype, op}, recvcount, comm);
}
int ireduce_scatter_block(Call call, const void* sendbuf, void* recvbuf, MPI_Count recvcount, MPI_Datatype datatype,
                          MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return reduce_scatter_block_in(call, nonblocking(request), {sendbuf, recvbuf, datatype, op}, recvcount, comm);
}
int reduce_scatter_block_init(Call call, const void* sendbuf, void* recvbuf, MPI_Count recvcount, MPI_Datatype datatype,
                              MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return reduce_scatter_block_in(call, persistent(info, request), {sendbuf, recvbuf, datatype, op}, recvcount, comm);
}

}  // namespace heddle::mpi
