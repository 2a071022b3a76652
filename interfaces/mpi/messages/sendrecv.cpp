// A send and a receive in one call.
#include <cstring>
#include <new>

#include "mpi/inline/messages.hpp"
#include "mpi/inline/requests.hpp"
#include "mpi/messages/arguments.hpp"

namespace heddle::mpi {
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
class SendReceive final : public Operation {
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
