// Sends: standard, synchronous, ready; blocking, nonblocking, persistent. Buffered ones are in
// buffers.cpp.
#include "mpi/check/buffers.hpp"
#include "mpi/check/kinds.hpp"
#include "mpi/inline/messages.hpp"
#include "mpi/messages/arguments.hpp"
#include "mpi/messages/buffers.hpp"
#include "mpi/messages/lanes.hpp"
#include "mpi/messages/post.hpp"
#include "mpi/messages/request.hpp"

namespace heddle::mpi {
namespace {

heddle_when when_of(Mode mode) {
  return mode == Mode::synchronous ? HEDDLE_WHEN_MATCHED : HEDDLE_WHEN_LOCAL;
}

struct Destination {
  int rank;
  int tag;
};

int check_send(Comm* comm, const Destination& to) {
  if (const int code = check_target(*comm, to.rank, "dest"); code != MPI_SUCCESS) return code;
  return check_tag(to.tag);
}

// The bytes that travel: where they lie, or packed into *packed.
int travelling(const Data& data, std::unique_ptr<std::byte[]>* packed, const void** bytes) {
  if (data.type->contiguous || data.bytes() == 0) {
    *bytes = begin_of(data.buffer, *data.type);
    return MPI_SUCCESS;
  }
  packed->reset(new (std::nothrow) std::byte[data.bytes()]);
  if (*packed == nullptr) return error(MPI_ERR_NO_MEM, "no memory to pack %zu bytes", data.bytes());
  pack(data.buffer, data.count, *data.type, packed->get());
  *bytes = packed->get();
  return MPI_SUCCESS;
}

int send_now(Comm& comm, Mode mode, const Data& data, const Destination& to) {
  std::unique_ptr<std::byte[]> packed;
  const void* bytes = nullptr;
  if (const int code = travelling(data, &packed, &bytes); code != MPI_SUCCESS) return code;
  const Member& member = comm.members[static_cast<std::size_t>(to.rank)];
  std::atomic<int> ended{kPending};
  const SendWay way = way_to(comm, member, to.tag);
  const int code = post_send(way.lane, {way.target, wire_tag(member.number, to.tag) | kind_on_wire(*data.type), bytes,
                                        data.bytes(), when_of(mode), &ended});
  if (code != MPI_SUCCESS) return code;
  wait_until(way.lane, [&] { return ended.load(std::memory_order_acquire) != kPending; }, "MPI_Send");
  const int failure = ended.load(std::memory_order_relaxed);
  if (failure == MPI_SUCCESS) return failure;
  return error(failure, "the send to rank %d with tag %d has failed", to.rank, to.tag);
}

int send_blocking(Comm* comm, Mode mode, const void* buf, MPI_Count count, MPI_Datatype datatype,
                  const Destination& to) {
  Data data;
  if (const int code = check_send(comm, to); code != MPI_SUCCESS) return code;
  if (const int code = read_data(buf, count, datatype, &data); code != MPI_SUCCESS) return code;
  if (to.rank == MPI_PROC_NULL) return MPI_SUCCESS;
  if (mode == Mode::buffered) return send_buffered(*comm, data, to.rank, to.tag);
  return send_now(*comm, mode, data, to);
}

// A request with everything that it needs, not begun.
int prepare_send(Comm* comm, Mode mode, const Data& data, const Destination& to, Request** made) {
  Request* const request = take_request();
  if (request == nullptr) return no_memory_for("one more request");
  request->kind = Request::Kind::send;
  request->mode = mode;
  request->comm = comm;
  request->lane =
      to.rank < 0 ? comm->lane : &way_to(*comm, comm->members[static_cast<std::size_t>(to.rank)], to.tag).lane;
  request->buffer = data.buffer;
  request->count = data.count;
  request->type = retain(data.type);
  request->peer = to.rank;
  request->tag = to.tag;
  *made = request;
  return MPI_SUCCESS;
}

}  // namespace

int begin_send(Request& request) {
  const Data data{request.buffer, request.count, request.type};
  request.ended.store(kPending, std::memory_order_relaxed);
  if (g_checks) sum_up(request);
  if (request.peer == MPI_PROC_NULL || request.mode == Mode::buffered) {
    const int code =
        request.peer == MPI_PROC_NULL ? MPI_SUCCESS : send_buffered(*request.comm, data, request.peer, request.tag);
    request.ended.store(code, std::memory_order_relaxed);
    return code;
  }
  const void* bytes = nullptr;
  if (const int code = travelling(data, &request.packed, &bytes); code != MPI_SUCCESS) return code;
  const Member& member = request.comm->members[static_cast<std::size_t>(request.peer)];
  const SendWay way = way_to(*request.comm, member, request.tag);
  return post_send(way.lane, {way.target, wire_tag(member.number, request.tag) | kind_on_wire(*data.type), bytes,
                              data.bytes(), when_of(request.mode), &request.ended});
}

int send_any(Call call, Mode mode, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
             MPI_Comm handle) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Comm* const comm = comm_of(handle);
  if (comm == nullptr) return report(call, bad_comm(handle));
  return told(call, comm, send_blocking(comm, mode, buf, count, datatype, {dest, tag}));
}

int isend_any(Call call, const SendHow& how, const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
              MPI_Comm handle, MPI_Request* request) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Comm* const comm = comm_of(handle);
  if (comm == nullptr) return report(call, bad_comm(handle));
  if (request == nullptr) return report(call, comm, null_argument("request"));
  Data data;
  int code = check_send(comm, {dest, tag});
  if (code == MPI_SUCCESS) code = read_data(buf, count, datatype, &data);
  Request* made = nullptr;
  if (code == MPI_SUCCESS) code = prepare_send(comm, how.mode, data, {dest, tag}, &made);
  if (code != MPI_SUCCESS) return report(call, comm, code);
  made->persistent = how.persistent;
  if (!how.persistent) {
    code = start_request(*made);
    if (code != MPI_SUCCESS) {
      give_back(made);
      return report(call, comm, code);
    }
  }
  *request = handle_of(made);
  return MPI_SUCCESS;
}

}  // namespace heddle::mpi
