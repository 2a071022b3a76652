// Reductions of whole vectors.

#include <numeric>
#include <units/reducing.hpp>

#include "mpi/collective/combining.hpp"
#include "mpi/collective/engine_call.hpp"

namespace heddle::mpi {

namespace {

// As the program passes it.
struct ReducedVectors {
  const void* send;
  void* receive;
  MPI_Count count;
  MPI_Datatype type;
  MPI_Op op;
};

// The part of a process in a reduction.
struct ReductionPart {
  bool gives = true;
  bool gets = true;
};

int read_vectors(StepSchedule& schedule, const ReducedVectors& vectors, const ReductionPart& part, Reducing* what) {
  constexpr SideNames kFrom{"sendbuf", "count", "datatype"};
  constexpr SideNames kTo{"recvbuf", "count", "datatype"};
  what->op = op_of(vectors.op);
  if (what->op == nullptr) return bad_op(vectors.op);
  what->in_place = part.gives && part.gets && !schedule.communicator().inter() && vectors.send == MPI_IN_PLACE;
  if (part.gets)
    if (const int code = read_block(schedule, kTo, {vectors.receive, vectors.count, vectors.type}, &what->receive);
        code != MPI_SUCCESS)
      return code;
  if (what->in_place) {
    what->send = what->receive;
  } else if (part.gives) {
    if (const int code = read_block(schedule, kFrom, {vectors.send, vectors.count, vectors.type}, &what->send);
        code != MPI_SUCCESS)
      return code;
    if (part.gets)
      if (const int code = check_apart(what->send, what->receive); code != MPI_SUCCESS) return code;
  }
  what->type = part.gets ? what->receive.type : what->send.type;
  if (what->type == nullptr) return MPI_SUCCESS;
  if (const int code = check_reduction(*what->op, *what->type); code != MPI_SUCCESS) return code;
  schedule.described.op = static_cast<std::int32_t>(what->op->kind);
  schedule.hold(what->op);
  return MPI_SUCCESS;
}

int reduce_in(Call call, const CallWay& way, const ReducedVectors& vectors, int root, MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    if (const int code = check_root(schedule, root); code != MPI_SUCCESS) return code;
    const bool inter = schedule.communicator().inter();
    const ReductionPart part =
        inter ? ReductionPart{root >= 0, root == MPI_ROOT} : ReductionPart{true, schedule.communicator().rank == root};
    Reducing what;
    if (const int code = read_vectors(schedule, vectors, part, &what); code != MPI_SUCCESS) return code;
    if (inter)
      add_inter_reduce(schedule, what, root);
    else
      add_reduce(schedule, what, root);
    return MPI_SUCCESS;
  });
}

int allreduce_in(Call call, const CallWay& way, const ReducedVectors& vectors, MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    Reducing what;
    if (const int code = read_vectors(schedule, vectors, {}, &what); code != MPI_SUCCESS) return code;
    if (schedule.communicator().inter())
      add_inter_allreduce(schedule, what);
    else
      add_allreduce(schedule, what);
    return MPI_SUCCESS;
  });
}

int check_can_scan(const Comm& comm) {
  if (!comm.inter()) return MPI_SUCCESS;
  return error(MPI_ERR_COMM, "an intercommunicator: scans are defined for intracommunicators only");
}

int scan_in(Call call, const CallWay& way, const ReducedVectors& vectors, MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    if (const int code = check_can_scan(schedule.communicator()); code != MPI_SUCCESS) return code;
    Reducing what;
    if (const int code = read_vectors(schedule, vectors, {}, &what); code != MPI_SUCCESS) return code;
    add_scan(schedule, what);
    return MPI_SUCCESS;
  });
}

int exscan_in(Call call, const CallWay& way, const ReducedVectors& vectors, MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    if (const int code = check_can_scan(schedule.communicator()); code != MPI_SUCCESS) return code;
    // The first member gets nothing, so it needs no memory for it.
    const bool in_place = vectors.send == MPI_IN_PLACE;
    Reducing what;
    const ReductionPart part{true, schedule.communicator().rank != 0 || in_place};
    if (const int code = read_vectors(schedule, vectors, part, &what); code != MPI_SUCCESS) return code;
    add_exscan(schedule, what);
    return MPI_SUCCESS;
  });
}

// The short path of a vector.
struct ShortVectors {
  const void* send = nullptr;  // null: not the short path
  void* receive = nullptr;
  std::size_t count = 0;
  heddle_reduction reduction{};
};
ShortVectors short_vectors(const ReducedVectors& vectors, bool gets) {
  const Op* const op = op_of(vectors.op);
  const ShortData from = short_data(vectors.send, vectors.count, vectors.type);
  const ShortData to = gets ? short_data(vectors.receive, vectors.count, vectors.type) : ShortData{};
  if (op == nullptr || from.at == nullptr || (gets && (to.at == nullptr || to.at == from.at)) || from.bytes == 0)
    return {};
  const Type& type = *type_of(vectors.type);
  const heddle_reduction reduction = engine_reduction(*op, type);
  const std::uintptr_t places = reinterpret_cast<std::uintptr_t>(from.at) | reinterpret_cast<std::uintptr_t>(to.at);
  if (reduction.type == 0 || (places & (alignment_of(type) - 1)) != 0) return {};
  return {from.at, to.at, static_cast<std::size_t>(vectors.count), reduction};
}

}  // namespace

int allreduce(Call call, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
              MPI_Comm handle) {
  Comm* const comm = comm_of(handle);
  const bool short_way = has_team(comm);
  const ReducedVectors vectors{sendbuf, recvbuf, count, datatype, op};
  const ShortVectors path = short_vectors(vectors, true);
  if (!short_way || path.send == nullptr) [[unlikely]]
    return allreduce_in(call, {}, vectors, handle);
  return told(
      call, comm,
      run_blocking(*comm, {EngineCollective::allreduce, path.send, path.receive, path.count, 0, &path.reduction}));
}
int iallreduce(Call call, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
               MPI_Comm comm, MPI_Request* request) {
  return allreduce_in(call, nonblocking(request), {sendbuf, recvbuf, count, datatype, op}, comm);
}
int allreduce_init(Call call, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return allreduce_in(call, persistent(info, request), {sendbuf, recvbuf, count, datatype, op}, comm);
}

int reduce(Call call, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op, int root,
           MPI_Comm handle) {
  Comm* const comm = comm_of(handle);
  const bool short_way = has_team(comm);
  const ReducedVectors vectors{sendbuf, recvbuf, count, datatype, op};
  if (!short_way || !has_member(*comm, root)) [[unlikely]]
    return reduce_in(call, {}, vectors, root, handle);
  const ShortVectors path = short_vectors(vectors, comm->rank == root);
  if (path.send == nullptr) [[unlikely]]
    return reduce_in(call, {}, vectors, root, handle);
  const auto to = static_cast<std::uint32_t>(root);
  return told(
      call, comm,
      run_blocking(*comm, {EngineCollective::reduce, path.send, path.receive, path.count, to, &path.reduction}));
}
int ireduce(Call call, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op, int root,
            MPI_Comm comm, MPI_Request* request) {
  return reduce_in(call, nonblocking(request), {sendbuf, recvbuf, count, datatype, op}, root, comm);
}
int reduce_init(Call call, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                int root, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return reduce_in(call, persistent(info, request), {sendbuf, recvbuf, count, datatype, op}, root, comm);
}

int scan(Call call, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
         MPI_Comm handle) {
  Comm* const comm = comm_of(handle);
  const bool short_way = has_team(comm);
  const ReducedVectors vectors{sendbuf, recvbuf, count, datatype, op};
  const ShortVectors path = short_vectors(vectors, true);
  if (!short_way || path.send == nullptr) return scan_in(call, {}, vectors, handle);
  return told(call, comm,
              run_blocking(*comm, {EngineCollective::scan, path.send, path.receive, path.count, 0, &path.reduction}));
}
int iscan(Call call, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
          MPI_Comm comm, MPI_Request* request) {
  return scan_in(call, nonblocking(request), {sendbuf, recvbuf, count, datatype, op}, comm);
}
int scan_init(Call call, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return scan_in(call, persistent(info, request), {sendbuf, recvbuf, count, datatype, op}, comm);
}

int exscan(Call call, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
           MPI_Comm comm) {
  return exscan_in(call, {}, {sendbuf, recvbuf, count, datatype, op}, comm);
}
int iexscan(Call call, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
            MPI_Comm comm, MPI_Request* request) {
  return exscan_in(call, nonblocking(request), {sendbuf, recvbuf, count, datatype, op}, comm);
}
int exscan_init(Call call, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return exscan_in(call, persistent(info, request), {sendbuf, recvbuf, count, datatype, op}, comm);
}

// Reductions of which each process gets a block.

namespace {

// As the program passes it.
struct ScatteredVectors {
  const void* send;
  void* receive;
  MPI_Datatype type;
  MPI_Op op;
};

int read_scattered(StepSchedule& schedule, const ScatteredVectors& vectors, const std::vector<MPI_Count>& counts,
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

int add_scattered(StepSchedule& schedule, const ScatteredVectors& vectors, const std::vector<MPI_Count>& counts) {
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

int reduce_scatter_in(Call call, const CallWay& way, const ScatteredVectors& vectors, CountList recvcounts,
                      MPI_Comm comm) {
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
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
  return run_collective(call, comm, way, [&](StepSchedule& schedule) -> int {
    if (const int code = check_recvcount(recvcount, schedule.communicator().rank); code != MPI_SUCCESS) return code;
    const auto size = static_cast<std::size_t>(schedule.communicator().size());
    return add_scattered(schedule, vectors, std::vector<MPI_Count>(size, recvcount));
  });
}

}  // namespace

int reduce_scatter(Call call, const void* sendbuf, void* recvbuf, CountList recvcounts, MPI_Datatype datatype,
                   MPI_Op op, MPI_Comm comm) {
  return reduce_scatter_in(call, {}, {sendbuf, recvbuf, datatype, op}, recvcounts, comm);
}
int ireduce_scatter(Call call, const void* sendbuf, void* recvbuf, CountList recvcounts, MPI_Datatype datatype,
                    MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return reduce_scatter_in(call, nonblocking(request), {sendbuf, recvbuf, datatype, op}, recvcounts, comm);
}
int reduce_scatter_init(Call call, const void* sendbuf, void* recvbuf, CountList recvcounts, MPI_Datatype datatype,
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
