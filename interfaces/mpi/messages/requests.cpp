// Requests: start, cancel, free; what a status says; requests of the program's own operations.
#include "mpi/inline/requests.hpp"
#include "mpi/messages/post.hpp"
#include "mpi/types/status.hpp"

namespace heddle::mpi {
namespace {

// Null: none, as bad_own() says.
Request* own_request(const MPI_Request* handle) {
  return handle == nullptr ? nullptr : request_of(*handle);
}
int bad_own(const MPI_Request* handle) {
  return handle == nullptr ? null_argument("request") : bad_request(*handle);
}

int start_checked(Request& request) {
  if (!request.persistent) return error(MPI_ERR_REQUEST, "the request is not persistent");
  if (request.active) return error(MPI_ERR_REQUEST, "the request is active: wait for it before it starts again");
  return start_request(request);
}

}  // namespace

int start(Call call, MPI_Request* handle) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Request* const request = own_request(handle);
  if (request == nullptr) return report(call, bad_own(handle));
  return told(call, request->comm.get(), start_checked(*request));
}

int startall(Call call, int count, MPI_Request array_of_requests[]) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (count < 0) return report(call, error(MPI_ERR_COUNT, "count %d is negative", count));
  if (count > 0 && array_of_requests == nullptr) return report(call, null_argument("array_of_requests"));
  for (int i = 0; i < count; ++i) {
    Request* const request = request_of(array_of_requests[i]);
    if (request == nullptr) return report(call, bad_request(array_of_requests[i]));
    if (const int code = start_checked(*request); code != MPI_SUCCESS) return report(call, request->comm.get(), code);
  }
  return MPI_SUCCESS;
}

// A receive is cancelled if no message has matched it. A send is on its way already.
int cancel(Call call, MPI_Request* handle) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Request* const request = own_request(handle);
  if (request == nullptr) return report(call, bad_own(handle));
  if (request == &g_sent || !request->active || request->complete) return MPI_SUCCESS;
  int code = MPI_SUCCESS;
  if (request->kind == Request::Kind::receive && !request->matched)
    code = code_of(heddle_recv_cancel(request->lane->worker, &request->receive));
  if (request->kind == Request::Kind::operation) code = request->operation->cancel();
  return told(call, request->comm.get(), code);
}

int request_free(Call call, MPI_Request* handle) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Request* const request = own_request(handle);
  if (request == nullptr) return report(call, bad_own(handle));
  Comm* const comm = request->comm;
  const int code = free_request(*request);
  *handle = MPI_REQUEST_NULL;
  return told(call, comm, code);
}

// ---- statuses -----------------------------------------------------------------------------------

namespace {

int check_not_ignored(const MPI_Status* status) {
  return status == MPI_STATUS_IGNORE ? error(MPI_ERR_ARG, "status is MPI_STATUS_IGNORE") : MPI_SUCCESS;
}

}  // namespace

int test_cancelled(Call call, const MPI_Status* status, int* flag) {
  if (flag == nullptr) return report(call, null_argument("flag"));
  if (const int code = check_not_ignored(status); code != MPI_SUCCESS) return report(call, code);
  *flag = is_cancelled(*status) ? 1 : 0;
  return MPI_SUCCESS;
}

int status_set_cancelled(Call call, MPI_Status* status, int flag) {
  if (const int code = check_not_ignored(status); code != MPI_SUCCESS) return report(call, code);
  set_cancelled(status, flag != 0);
  return MPI_SUCCESS;
}

namespace {

int read_field(Call call, const MPI_Status* status, int MPI_Status::* field, int* value) {
  if (value == nullptr) return report(call, null_argument("the result"));
  if (const int code = check_not_ignored(status); code != MPI_SUCCESS) return report(call, code);
  *value = status->*field;
  return MPI_SUCCESS;
}

int write_field(Call call, MPI_Status* status, int MPI_Status::* field, int value) {
  if (const int code = check_not_ignored(status); code != MPI_SUCCESS) return report(call, code);
  status->*field = value;
  return MPI_SUCCESS;
}

}  // namespace

int status_get_error(Call call, const MPI_Status* status, int* error) {
  return read_field(call, status, &MPI_Status::MPI_ERROR, error);
}
int status_get_source(Call call, const MPI_Status* status, int* source) {
  return read_field(call, status, &MPI_Status::MPI_SOURCE, source);
}
int status_get_tag(Call call, const MPI_Status* status, int* tag) {
  return read_field(call, status, &MPI_Status::MPI_TAG, tag);
}
int status_set_error(Call call, MPI_Status* status, int error) {
  return write_field(call, status, &MPI_Status::MPI_ERROR, error);
}
int status_set_source(Call call, MPI_Status* status, int source) {
  return write_field(call, status, &MPI_Status::MPI_SOURCE, source);
}
int status_set_tag(Call call, MPI_Status* status, int tag) {
  return write_field(call, status, &MPI_Status::MPI_TAG, tag);
}

// ---- generalized requests -----------------------------------------------------------------------

namespace {

class Generalized final : public Operation {
 public:
  Generalized(MPI_Grequest_query_function* query_fn, MPI_Grequest_free_function* free_fn,
              MPI_Grequest_cancel_function* cancel_fn, void* state)
      : query_(query_fn), free_(free_fn), cancel_(cancel_fn), state_(state) {}
  [[nodiscard]] Kind kind() const override { return Kind::generalized; }
  int end() override { return free_ == nullptr ? MPI_SUCCESS : free_(state_); }
  bool test(Outcome* outcome) override {
    if (!complete_.load(std::memory_order_acquire)) {
      progress(lane());
      if (!complete_.load(std::memory_order_acquire)) return false;
    }
    MPI_Status status{};
    set_bytes(&status, 0);
    set_cancelled(&status, false);
    status.MPI_SOURCE = MPI_UNDEFINED;
    status.MPI_TAG = MPI_UNDEFINED;
    const int code = query_ == nullptr ? MPI_SUCCESS : query_(state_, &status);
    *outcome = {status.MPI_SOURCE, status.MPI_TAG, code, bytes_of(status), is_cancelled(status)};
    return true;
  }
  Lane& lane() override { return *g_job.lanes[0]; }
  int cancel() override {
    if (cancel_ == nullptr) return MPI_SUCCESS;
    return cancel_(state_, complete_.load(std::memory_order_acquire) ? 1 : 0);
  }
  void complete() { complete_.store(true, std::memory_order_release); }

 private:
  MPI_Grequest_query_function* const query_;
  MPI_Grequest_free_function* const free_;
  MPI_Grequest_cancel_function* const cancel_;
  void* const state_;
  std::atomic<bool> complete_{false};  // release: complete(); acquire: the test, in any thread
};

}  // namespace

int grequest_start(Call call, MPI_Grequest_query_function* query_fn, MPI_Grequest_free_function* free_fn,
                   MPI_Grequest_cancel_function* cancel_fn, void* extra_state, MPI_Request* request) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (request == nullptr) return report(call, null_argument("request"));
  auto operation = std::make_unique<Generalized>(query_fn, free_fn, cancel_fn, extra_state);
  return told(call, new_request(std::move(operation), false, request));
}

int grequest_complete(Call call, MPI_Request handle) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Request* const request = request_of(handle);
  if (request == nullptr) return report(call, bad_request(handle));
  Operation* const operation = request->operation.get();
  if (operation == nullptr || operation->kind() != Operation::Kind::generalized)
    return report(call, error(MPI_ERR_REQUEST, "the request is not a generalized one"));
  static_cast<Generalized*>(operation)->complete();
  return MPI_SUCCESS;
}

}  // namespace heddle::mpi
