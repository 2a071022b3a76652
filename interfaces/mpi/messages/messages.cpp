// Sends: standard, synchronous, ready; blocking, nonblocking, persistent. Buffered ones are in
// buffers.cpp. Then receives and probes, and both in one call.

#include <cstring>
#include <new>

#include "mpi/core/check.hpp"
#include "mpi/inline/messages.hpp"
#include "mpi/inline/requests.hpp"
#include "mpi/messages/buffers.hpp"
#include "mpi/messages/message.hpp"
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
  const MemberAddress& member = comm.members[static_cast<std::size_t>(to.rank)];
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

// A request with everything that it needs, not begun. Null: no memory.
Request* prepare_send(Comm* comm, Mode mode, const Data& data, const Destination& to) {
  Request* const request = take_request();
  if (request == nullptr) return nullptr;
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
  return request;
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
  const MemberAddress& member = request.comm->members[static_cast<std::size_t>(request.peer)];
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
  if (code != MPI_SUCCESS) return report(call, comm, code);
  Request* const made = prepare_send(comm, how.mode, data, {dest, tag});
  if (made == nullptr) return report(call, comm, no_memory_for("one more request"));
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

// Receives and probes: blocking, nonblocking, persistent, matched.

namespace {

struct Source {
  int rank;
  int tag;
};

int check_receive(const Comm& comm, const Source& from) {
  if (const int code = check_source(comm, from.rank); code != MPI_SUCCESS) return code;
  if (from.tag == MPI_ANY_TAG && comm.by_tag && from.rank != MPI_PROC_NULL)
    return error(MPI_ERR_TAG, "tag MPI_ANY_TAG: %s says that none is used",
                 g_job.no_any_tag ? "HEDDLE_MPI_NO_ANY_TAG" : "the info with which comm was made");
  return check_wanted_tag(from.tag);
}

// The memory for the arriving data: the buffer, or memory of the request that is unpacked at the
// end.
int landing(Request& request, void** place) {
  const Type& type = *request.type;
  request.packed_bytes = static_cast<std::size_t>(request.count * type.size);
  if (type.contiguous || request.packed_bytes == 0) {
    *place = begin_of(request.buffer, type);
    return MPI_SUCCESS;
  }
  request.packed.reset(new (std::nothrow) std::byte[request.packed_bytes]);
  if (request.packed == nullptr) return error(MPI_ERR_NO_MEM, "no memory to receive %zu bytes", request.packed_bytes);
  *place = request.packed.get();
  return MPI_SUCCESS;
}

// From MPI_PROC_NULL: it has ended already.
void complete_without_process(Request& request) {
  request.outcome = kNoProcess;
  request.complete = true;
}

// As prepare_send.
Request* prepare_receive(Comm* comm, const Data& data, const Source& from) {
  Request* const request = take_request();
  if (request == nullptr) return nullptr;
  request->kind = Request::Kind::receive;
  request->comm = comm;
  request->lane = &receiving_lane(*comm, from.tag);
  request->buffer = data.buffer;
  request->count = data.count;
  request->type = retain(data.type);
  request->peer = from.rank;
  request->tag = from.tag;
  return request;
}

int make_receive(Call call, bool persistent, void* buf, MPI_Count count, MPI_Datatype datatype, const Source& from,
                 MPI_Comm handle, MPI_Request* request) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Comm* const comm = comm_of(handle);
  if (comm == nullptr) return report(call, bad_comm(handle));
  if (request == nullptr) return report(call, comm, null_argument("request"));
  Data data;
  int code = check_receive(*comm, from);
  if (code == MPI_SUCCESS) code = read_data(buf, count, datatype, &data);
  if (code != MPI_SUCCESS) return report(call, comm, code);
  Request* const made = prepare_receive(comm, data, from);
  if (made == nullptr) return report(call, comm, no_memory_for("one more request"));
  made->persistent = persistent;
  if (!persistent && (code = start_request(*made)) != MPI_SUCCESS) {
    give_back(made);
    return report(call, comm, code);
  }
  *request = handle_of(made);
  return MPI_SUCCESS;
}

// ---- probes -------------------------------------------------------------------------------------

// AGAIN: there is no message. PEER_FAILED: there will be none, because the source has died; if any
// member may send it, one of them has died, as for receives (wait_receive). `claim`: the message is
// taken out of matching.
heddle_status look_for_message(Comm& comm, const Source& from, bool claim, heddle_receive* found) {
  const heddle_wanted wanted = of_any_kind(wanted_of(comm, from.rank, from.tag));
  const auto try_it = claim ? heddle_try_claim : heddle_try_probe;
  Lane& lane = receiving_lane(comm, from.tag);
  heddle_status status = try_it(lane.worker, &wanted, found);
  if (status != HEDDLE_AGAIN) return status;
  progress(lane);
  status = try_it(lane.worker, &wanted, found);
  return status == HEDDLE_AGAIN && from.rank == MPI_ANY_SOURCE && sees_dead_member(comm) ? HEDDLE_ERR_PEER_FAILED
                                                                                         : status;
}

Outcome outcome_of_probe(const Comm& comm, const heddle_receive& found) {
  Outcome outcome;
  outcome.source = comm.rank_of_job(found.source.rank);
  outcome.tag = tag_of(found.tag);
  outcome.bytes = static_cast<MPI_Count>(found.bytes);
  return outcome;
}

// A probe. `flag` null: it waits. `message` null: the message stays in matching.
int probe_in(Call call, Comm& comm, const Source& from, int* flag, Request** message, MPI_Status* status) {
  if (const int code = check_receive(comm, from); code != MPI_SUCCESS) return code;
  if (from.rank == MPI_PROC_NULL) {
    if (flag != nullptr) *flag = 1;
    store(kNoProcess, status);
    return MPI_SUCCESS;
  }
  heddle_receive mine;
  Request* taken = nullptr;
  if (message != nullptr && (taken = take_request()) == nullptr) return no_memory_for("one more message");
  heddle_receive* const found = taken != nullptr ? &taken->receive : &mine;
  heddle_status outcome = look_for_message(comm, from, taken != nullptr, found);
  if (flag == nullptr && outcome == HEDDLE_AGAIN) {
    const auto ready = [&] {
      return (outcome = look_for_message(comm, from, taken != nullptr, found)) != HEDDLE_AGAIN;
    };
    const auto fill = [&](heddle_wait_facts& facts) { tell_sought(facts, {call, &comm, from.rank, from.tag}); };
    wait_until(receiving_lane(comm, from.tag), ready, call, fill);
  }
  if (flag != nullptr) *flag = outcome == HEDDLE_DONE ? 1 : 0;
  if (outcome == HEDDLE_DONE) store(outcome_of_probe(comm, *found), status);
  if (taken != nullptr && outcome == HEDDLE_DONE) {
    taken->kind = Request::Kind::message;
    taken->comm = &comm;
    taken->lane = &receiving_lane(comm, from.tag);
    *message = taken;
  } else if (taken != nullptr) {
    give_back(taken);
  }
  if (outcome != HEDDLE_ERR_PEER_FAILED) return code_of(outcome);
  return from.rank >= 0 ? error(MPI_ERR_PROC_ABORTED, "rank %d has died", from.rank)
                        : error(MPI_ERR_PROC_ABORTED, "a member of the communicator has died");
}

// A message that was claimed becomes a receive of its own.
int begin_claimed(Request& request, const Data& data) {
  request.kind = Request::Kind::receive;
  request.matched = true;
  request.buffer = data.buffer;
  request.count = data.count;
  request.type = retain(data.type);
  request.peer = MPI_ANY_SOURCE;
  request.tag = MPI_ANY_TAG;
  request.active = true;
  void* place = nullptr;
  if (const int code = landing(request, &place); code != MPI_SUCCESS) return code;
  const heddle_status status =
      heddle_recv_claimed(request.lane->worker, place, request.packed_bytes, &request.receive, nullptr);
  return status == HEDDLE_ERR_TRUNCATED ? MPI_SUCCESS : code_of(status);  // the outcome tells
}

int take_message(void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Message* handle, Request** request) {
  Data data;
  if (handle == nullptr) return null_argument("message");
  if (const int code = read_data(buf, count, datatype, &data); code != MPI_SUCCESS) return code;
  if (*handle == MPI_MESSAGE_NO_PROC) {
    if ((*request = take_request()) == nullptr) return no_memory_for("one more request");
    (*request)->kind = Request::Kind::done;
    (*request)->active = true;
    (*request)->lane = g_job.lanes[0];
    complete_without_process(**request);
  } else {
    Request* const message = message_of(*handle);
    if (message == nullptr) return error(MPI_ERR_REQUEST, "message is none, or was received");
    if (const int code = begin_claimed(*message, data); code != MPI_SUCCESS) return code;
    *request = message;
  }
  *handle = MPI_MESSAGE_NULL;
  return MPI_SUCCESS;
}

Comm* comm_of_message(const MPI_Message* handle) {
  const Request* const message = handle == nullptr ? nullptr : message_of(*handle);
  return message == nullptr ? nullptr : message->comm.get();
}

}  // namespace

int begin_receive(Request& request) {
  if (request.peer == MPI_PROC_NULL) {
    complete_without_process(request);
    return MPI_SUCCESS;
  }
  void* place = nullptr;
  if (const int code = landing(request, &place); code != MPI_SUCCESS) return code;
  const heddle_wanted wanted = of_any_kind(wanted_of(*request.comm, request.peer, request.tag));
  const heddle_status status =
      heddle_recv(request.lane->worker, &wanted, place, request.packed_bytes, &request.receive, nullptr);
  // a message that is too long, or a dead sender, is the outcome of the receive
  return status == HEDDLE_ERR_TRUNCATED || status == HEDDLE_ERR_PEER_FAILED ? MPI_SUCCESS : code_of(status);
}

int recv_any(Call call, void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm handle,
             MPI_Status* status) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int posted = irecv_any(call, buf, count, datatype, source, tag, handle, &request);
  if (posted != MPI_SUCCESS) return posted;
  Request* const made = request_of(request);
  Comm* const comm = made->comm;
  Outcome outcome;
  wait_request(*made);
  finish_request(*made, &outcome);
  store(outcome, status);
  return told(call, comm, outcome.code);
}

int recv_posted(Call call, Comm& comm, const WantedMessages& wanted, heddle_receive& receive, heddle_status status,
                MPI_Status* out) {
  if (status == HEDDLE_AGAIN || status == HEDDLE_POSTED)
    status = wait_receive(receiving_lane(comm, wanted.tag), receive, {call, &comm, wanted.source, wanted.tag});
  const Outcome outcome = outcome_of(comm, wanted, receive, status);
  store(outcome, out);
  return told(call, &comm, outcome.code);
}

int irecv_any(Call call, void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
              MPI_Request* request) {
  return make_receive(call, false, buf, count, datatype, {source, tag}, comm, request);
}

int irecv_not_posted(Call call, Request* made, heddle_status status, MPI_Request* request) {
  Comm* const comm = made->comm;
  // the outcome, which its wait reports
  if (status == HEDDLE_ERR_TRUNCATED || status == HEDDLE_ERR_PEER_FAILED) {
    *request = handle_of(made);
    return MPI_SUCCESS;
  }
  give_back(made);
  return report(call, comm, code_of(status));
}

int recv_init(Call call, void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
              MPI_Request* request) {
  return make_receive(call, true, buf, count, datatype, {source, tag}, comm, request);
}

// ---- probes -------------------------------------------------------------------------------------

namespace {

int probe_any(Call call, const Source& from, MPI_Comm handle, int* flag, Request** message, MPI_Status* status) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Comm* const comm = comm_of(handle);
  if (comm == nullptr) return report(call, bad_comm(handle));
  return told(call, comm, probe_in(call, *comm, from, flag, message, status));
}

void give_message(int source, Request* found, MPI_Message* message) {
  if (found != nullptr)
    *message = message_handle_of(found);
  else
    *message = source == MPI_PROC_NULL ? MPI_MESSAGE_NO_PROC : MPI_MESSAGE_NULL;
}

}  // namespace

int probe(Call call, int source, int tag, MPI_Comm comm, MPI_Status* status) {
  return probe_any(call, {source, tag}, comm, nullptr, nullptr, status);
}

int iprobe(Call call, int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  if (flag == nullptr) return report(call, comm_of(comm), null_argument("flag"));
  return probe_any(call, {source, tag}, comm, flag, nullptr, status);
}

int mprobe(Call call, int source, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status) {
  if (message == nullptr) return report(call, comm_of(comm), null_argument("message"));
  Request* found = nullptr;
  const int code = probe_any(call, {source, tag}, comm, nullptr, &found, status);
  if (code == MPI_SUCCESS) give_message(source, found, message);
  return code;
}

int improbe(Call call, int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status) {
  if (flag == nullptr || message == nullptr)
    return report(call, comm_of(comm), null_argument(flag == nullptr ? "flag" : "message"));
  Request* found = nullptr;
  const int code = probe_any(call, {source, tag}, comm, flag, &found, status);
  if (code == MPI_SUCCESS) give_message(source, found, message);
  return code;
}

int mrecv(Call call, void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Message* message, MPI_Status* status) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Comm* const comm = comm_of_message(message);
  Request* request = nullptr;
  if (const int code = take_message(buf, count, datatype, message, &request); code != MPI_SUCCESS)
    return report(call, comm, code);
  Outcome outcome;
  wait_request(*request);
  finish_request(*request, &outcome);
  store(outcome, status);
  return told(call, comm, outcome.code);
}

int imrecv(Call call, void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Message* message, MPI_Request* request) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Comm* const comm = comm_of_message(message);
  if (request == nullptr) return report(call, comm, null_argument("request"));
  Request* made = nullptr;
  const int code = take_message(buf, count, datatype, message, &made);
  if (code == MPI_SUCCESS) *request = handle_of(made);
  return told(call, comm, code);
}

// A send and a receive in one call.

namespace {

struct Ends {
  int dest;
  int sendtag;
  int source;
  int recvtag;
};

// A copy of the data as it travels, and how it is sent from there.
int copy_of(const Data& data, std::unique_ptr<std::byte[]>* copy) {
  copy->reset(new (std::nothrow) std::byte[std::max<std::size_t>(data.bytes(), 1)]);
  if (*copy == nullptr) return error(MPI_ERR_NO_MEM, "no memory to copy %zu bytes", data.bytes());
  pack(data.buffer, data.count, *data.type, copy->get());
  return MPI_SUCCESS;
}

// Both under way. `copy` belongs to the operation.
class SendReceive final : public MpiOperation {
 public:
  SendReceive(Comm& comm, std::unique_ptr<std::byte[]> copy) : comm_(comm), copy_(std::move(copy)) {}
  ~SendReceive() override {
    for (Request* request : {send_, receive_}) {
      if (request != nullptr) static_cast<void>(free_request(*request));
    }
  }
  void own(MPI_Request send, MPI_Request receive) {
    send_ = request_of(send);
    receive_ = request_of(receive);
  }
  bool test(Outcome* outcome) override {
    const bool sent = send_ == nullptr || send_ == &g_sent || poll_request(*send_);
    const bool received = poll_request(*receive_);
    if (!sent || !received) return false;
    Outcome of_send;
    if (send_ != nullptr) finish_request(*send_, &of_send);
    finish_request(*receive_, outcome);
    send_ = receive_ = nullptr;
    if (outcome->code == MPI_SUCCESS) outcome->code = of_send.code;
    return true;
  }
  Lane& lane() override { return *comm_.lane; }
  Comm* comm() override { return &comm_; }

 private:
  Comm& comm_;
  const std::unique_ptr<std::byte[]> copy_;
  Request* send_ = nullptr;
  Request* receive_ = nullptr;
};

// The data that is sent: the program's buffer or a copy.
struct Sent {
  const void* buffer;
  MPI_Count count;
  MPI_Datatype datatype;
  std::unique_ptr<std::byte[]> copy;
};
struct Received {
  void* buffer;
  MPI_Count count;
  MPI_Datatype datatype;
};

// Begins both; errors are reported.
int begin(Call call, Sent sent, const Received& received, const Ends& ends, MPI_Comm handle, MPI_Request* request) {
  Comm* const comm = comm_of(handle);
  if (comm == nullptr) return report(call, bad_comm(handle));
  if (request == nullptr) return report(call, comm, null_argument("request"));
  MPI_Request receive = MPI_REQUEST_NULL;
  MPI_Request send = MPI_REQUEST_NULL;
  if (const int code = check_target(*comm, ends.dest, "dest"); code != MPI_SUCCESS) return report(call, comm, code);
  if (const int code = check_tag(ends.sendtag); code != MPI_SUCCESS) return report(call, comm, code);
  int code =
      irecv(call, received.buffer, received.count, received.datatype, ends.source, ends.recvtag, handle, &receive);
  if (code != MPI_SUCCESS) return code;
  code = isend(call, sent.buffer, sent.count, sent.datatype, ends.dest, ends.sendtag, handle, &send);
  auto operation = std::make_unique<SendReceive>(*comm, std::move(sent.copy));
  operation->own(send, receive);
  if (code != MPI_SUCCESS) {
    static_cast<void>(cancel(call, &receive));
    return code;
  }
  return told(call, comm, new_request(std::move(operation), false, request));
}

int finish_now(Call call, MPI_Comm handle, MPI_Request begun, MPI_Status* status) {
  Request* const request = request_of(begun);
  Outcome outcome;
  wait_request(*request);
  finish_request(*request, &outcome);
  store(outcome, status);
  return told(call, comm_of(handle), outcome.code);
}

int prepare_replace(void* buf, MPI_Count count, MPI_Datatype datatype, Sent* sent) {
  Data data;
  if (const int code = read_data(buf, count, datatype, &data); code != MPI_SUCCESS) return code;
  if (const int code = copy_of(data, &sent->copy); code != MPI_SUCCESS) return code;
  sent->buffer = sent->copy.get();
  sent->count = static_cast<MPI_Count>(data.bytes());
  sent->datatype = MPI_BYTE;
  return MPI_SUCCESS;
}

}  // namespace

int sendrecv(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
             void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
             MPI_Status* status) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Request sent = MPI_REQUEST_NULL;
  int code = irecv(call, recvbuf, recvcount, recvtype, source, recvtag, comm, &request);
  if (code != MPI_SUCCESS) return code;
  code = isend(call, sendbuf, sendcount, sendtype, dest, sendtag, comm, &sent);
  if (code != MPI_SUCCESS) {
    static_cast<void>(cancel(call, &request));
    return code;
  }
  code = finish_now(call, comm, request, status);
  const int of_send = finish_now(call, comm, sent, MPI_STATUS_IGNORE);
  return code == MPI_SUCCESS ? of_send : code;
}

int isendrecv(Call call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
              void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
              MPI_Request* request) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  return begin(call, {sendbuf, sendcount, sendtype, nullptr}, {recvbuf, recvcount, recvtype},
               {dest, sendtag, source, recvtag}, comm, request);
}

int isendrecv_replace(Call call, void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int sendtag, int source,
                      int recvtag, MPI_Comm comm, MPI_Request* request) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Sent sent{};
  if (const int code = prepare_replace(buf, count, datatype, &sent); code != MPI_SUCCESS)
    return report(call, comm_of(comm), code);
  return begin(call, std::move(sent), {buf, count, datatype}, {dest, sendtag, source, recvtag}, comm, request);
}

int sendrecv_replace(Call call, void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int sendtag, int source,
                     int recvtag, MPI_Comm comm, MPI_Status* status) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = isendrecv_replace(call, buf, count, datatype, dest, sendtag, source, recvtag, comm, &request);
  return code == MPI_SUCCESS ? finish_now(call, comm, request, status) : code;
}

}  // namespace heddle::mpi
