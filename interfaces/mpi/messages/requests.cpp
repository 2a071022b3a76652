// Waiting for requests and testing them: one, all, any, some; and asking without completing them.

#include <span>

#include "mpi/core/arguments.hpp"
#include "mpi/inline/requests.hpp"
#include "mpi/messages/message.hpp"

namespace heddle::mpi {

namespace {

using Requests = std::span<MPI_Request>;

// A request that the program passes. Null handles are allowed; *request is null for them.
int read_request(MPI_Request handle, Request** request) {
  *request = nullptr;
  if (handle == MPI_REQUEST_NULL) return MPI_SUCCESS;
  *request = request_of(handle);
  return *request == nullptr ? bad_request(handle) : MPI_SUCCESS;
}

bool is_active(const Request* request) {
  return request != nullptr && (request == &g_sent || request->active);
}

// Finishes a request that has ended, and sets its handle. Returns the outcome's code.
int finish(MPI_Request* handle, Request* request, MPI_Status* status) {
  Outcome outcome;
  const bool persistent = request->persistent && !request->freed;
  finish_request(*request, &outcome);
  if (!persistent) *handle = MPI_REQUEST_NULL;
  store(outcome, status);
  return outcome.code;
}

// The object that errors of a request are reported to.
Comm* comm_of_request(const Request* request) {
  return request == nullptr ? nullptr : request->comm.get();
}

MPI_Status* status_at(MPI_Status* statuses, std::ptrdiff_t i) {
  return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + i;
}

int check_array(int count, const MPI_Request* requests) {
  if (count < 0) return error(MPI_ERR_COUNT, "count %d is negative", count);
  return count > 0 && requests == nullptr ? null_argument("array_of_requests") : MPI_SUCCESS;
}

int check_list(int count, const MPI_Request* requests) {
  if (const int code = check_array(count, requests); code != MPI_SUCCESS) return code;
  for (int i = 0; i < count; ++i) {
    Request* request = nullptr;
    if (const int code = read_request(requests[i], &request); code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

Request* request_in(MPI_Request handle) {
  Request* request = nullptr;
  static_cast<void>(read_request(handle, &request));
  return request;
}

Lane& lane_of(Requests requests) {
  for (const MPI_Request handle : requests) {
    const Request* const request = request_in(handle);
    if (is_active(request) && request->lane != nullptr) return *request->lane;
  }
  return *g_job.lanes[0];
}

// The results of several requests that were finished.
class Verdict {
 public:
  void add(Comm* comm, int code) {
    if (code == MPI_SUCCESS) return;
    comm_ = comm;
    last_ = code;
  }
  // MPI_ERR_IN_STATUS if one has failed; its status has the error. If there is only one request and
  // no status, the request's own error.
  [[nodiscard]] int tell(Call call, std::size_t requests, const MPI_Status* statuses) const {
    if (last_ == MPI_SUCCESS) return MPI_SUCCESS;
    return report(call, comm_, statuses == MPI_STATUSES_IGNORE && requests == 1 ? last_ : MPI_ERR_IN_STATUS);
  }

 private:
  int last_ = MPI_SUCCESS;
  Comm* comm_ = nullptr;
};

// Finishes one of several, which has ended, with its MPI_ERROR.
void finish_one(MPI_Request* handle, Request* request, MPI_Status* status, Verdict* verdict) {
  Comm* const comm = comm_of_request(request);
  const int code = finish(handle, request, status);
  if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = code;
  verdict->add(comm, code);
}

// Finishes all, which have ended.
int finish_all(Call call, Requests requests, MPI_Status* statuses) {
  Verdict verdict;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request* const request = request_in(requests[i]);
    MPI_Status* const status = status_at(statuses, static_cast<std::ptrdiff_t>(i));
    if (is_active(request))
      finish_one(&requests[i], request, status, &verdict);
    else
      store_empty(status);
  }
  return verdict.tell(call, requests.size(), statuses);
}

// Waits for one of several, and finishes it. Error: the handle names no request.
int complete_one(MPI_Request* handle, MPI_Status* status, Verdict* verdict) {
  Request* request = nullptr;
  if (*handle == handle_of(&g_sent))
    *handle = MPI_REQUEST_NULL;
  else if (const int code = read_request(*handle, &request); code != MPI_SUCCESS)
    return code;
  if (!is_active(request)) {
    store_empty(status);
  } else if (request->plain && wait_plain(*request, status)) {
    *handle = MPI_REQUEST_NULL;
    if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = MPI_SUCCESS;
  } else {
    wait_request(*request);
    finish_one(handle, request, status, verdict);
  }
  return MPI_SUCCESS;
}

}  // namespace

int wait_any_kind(Call call, MPI_Request* handle, MPI_Status* status) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (handle == nullptr) return report(call, null_argument("request"));
  Request* request = nullptr;
  if (const int code = read_request(*handle, &request); code != MPI_SUCCESS) return report(call, code);
  if (!is_active(request)) {
    store_empty(status);
    return MPI_SUCCESS;
  }
  if (request->plain && wait_plain(*request, status)) [[likely]] {
    *handle = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
  }
  Comm* const comm = comm_of_request(request);
  if (request != &g_sent) wait_request(*request);
  return told(call, comm, finish(handle, request, status));
}

int test(Call call, MPI_Request* handle, int* flag, MPI_Status* status) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (handle == nullptr || flag == nullptr) return report(call, null_argument(handle == nullptr ? "request" : "flag"));
  Request* request = nullptr;
  if (const int code = read_request(*handle, &request); code != MPI_SUCCESS) return report(call, code);
  *flag = 1;
  if (!is_active(request)) {
    store_empty(status);
    return MPI_SUCCESS;
  }
  Comm* const comm = comm_of_request(request);
  if (request != &g_sent && !poll_request(*request)) {
    *flag = 0;
    return MPI_SUCCESS;
  }
  return told(call, comm, finish(handle, request, status));
}

int waitall(Call call, int count, MPI_Request array_of_requests[], MPI_Status* array_of_statuses) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (const int code = check_array(count, array_of_requests); code != MPI_SUCCESS) return report(call, code);
  Verdict verdict;
  int wrong = MPI_SUCCESS;  // of what is no request
  for (int i = 0; i < count; ++i) {
    const int code = complete_one(&array_of_requests[i], status_at(array_of_statuses, i), &verdict);
    if (code != MPI_SUCCESS) wrong = code;
  }
  if (wrong != MPI_SUCCESS) return report(call, wrong);
  return verdict.tell(call, static_cast<std::size_t>(count), array_of_statuses);
}

int testall(Call call, int count, MPI_Request array_of_requests[], int* flag, MPI_Status* array_of_statuses) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (flag == nullptr) return report(call, null_argument("flag"));
  if (const int code = check_list(count, array_of_requests); code != MPI_SUCCESS) return report(call, code);
  const Requests requests(array_of_requests, static_cast<std::size_t>(count));
  *flag = 1;
  for (const MPI_Request handle : requests) {
    Request* const request = request_in(handle);
    if (is_active(request) && request != &g_sent && !poll_request(*request)) *flag = 0;
  }
  return *flag == 0 ? MPI_SUCCESS : finish_all(call, requests, array_of_statuses);
}

namespace {

// The first that has ended; -1: none has, -2: none is active. A look at one request may end an
// earlier one, so the earlier ones are looked at again.
std::ptrdiff_t find_ended(std::span<const MPI_Request> requests) {
  bool active = false;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request* const request = request_in(requests[i]);
    if (!is_active(request)) continue;
    active = true;
    if (request != &g_sent && !poll_request(*request)) continue;
    const std::ptrdiff_t earlier = i == 0 ? -1 : find_ended(requests.first(i));
    return earlier >= 0 ? earlier : static_cast<std::ptrdiff_t>(i);
  }
  return active ? -1 : -2;
}

int finish_any(Call call, Requests requests, std::ptrdiff_t which, int* index, MPI_Status* status) {
  if (which < 0) {
    *index = MPI_UNDEFINED;
    store_empty(status);
    return MPI_SUCCESS;
  }
  *index = static_cast<int>(which);
  MPI_Request* const handle = &requests[static_cast<std::size_t>(which)];
  Request* const request = request_in(*handle);
  Comm* const comm = comm_of_request(request);
  return told(call, comm, finish(handle, request, status));
}

}  // namespace

int waitany(Call call, int count, MPI_Request array_of_requests[], int* indx, MPI_Status* status) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (indx == nullptr) return report(call, null_argument("index"));
  if (const int code = check_list(count, array_of_requests); code != MPI_SUCCESS) return report(call, code);
  const Requests requests(array_of_requests, static_cast<std::size_t>(count));
  std::ptrdiff_t which = -1;
  wait_until(lane_of(requests), [&] { return (which = find_ended(requests)) != -1; }, call);
  return finish_any(call, requests, which, indx, status);
}

int testany(Call call, int count, MPI_Request array_of_requests[], int* indx, int* flag, MPI_Status* status) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (indx == nullptr || flag == nullptr) return report(call, null_argument(indx == nullptr ? "index" : "flag"));
  if (const int code = check_list(count, array_of_requests); code != MPI_SUCCESS) return report(call, code);
  const Requests requests(array_of_requests, static_cast<std::size_t>(count));
  const std::ptrdiff_t which = find_ended(requests);
  *flag = which == -1 ? 0 : 1;
  if (which != -1) return finish_any(call, requests, which, indx, status);
  *indx = MPI_UNDEFINED;
  return MPI_SUCCESS;
}

namespace {

// Finishes those that have ended. *outcount MPI_UNDEFINED: none is active.
int finish_some(Call call, Requests requests, int* outcount, int* indices, MPI_Status* statuses) {
  bool active = false;
  Verdict verdict;
  int count = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request* const request = request_in(requests[i]);
    if (!is_active(request)) continue;
    active = true;
    if (request != &g_sent && !poll_request(*request)) continue;
    finish_one(&requests[i], request, status_at(statuses, count), &verdict);
    indices[count++] = static_cast<int>(i);
  }
  *outcount = active ? count : MPI_UNDEFINED;
  return verdict.tell(call, requests.size(), statuses);
}

int check_some(int count, const MPI_Request* requests, const int* outcount, const int* indices) {
  if (outcount == nullptr) return null_argument("outcount");
  if (count > 0 && indices == nullptr) return null_argument("array_of_indices");
  return check_list(count, requests);
}

}  // namespace

int waitsome(Call call, int incount, MPI_Request array_of_requests[], int* outcount, int array_of_indices[],
             MPI_Status* array_of_statuses) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (const int code = check_some(incount, array_of_requests, outcount, array_of_indices); code != MPI_SUCCESS)
    return report(call, code);
  const Requests requests(array_of_requests, static_cast<std::size_t>(incount));
  wait_until(lane_of(requests), [&] { return find_ended(requests) != -1; }, call);
  return finish_some(call, requests, outcount, array_of_indices, array_of_statuses);
}

int testsome(Call call, int incount, MPI_Request array_of_requests[], int* outcount, int array_of_indices[],
             MPI_Status* array_of_statuses) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (const int code = check_some(incount, array_of_requests, outcount, array_of_indices); code != MPI_SUCCESS)
    return report(call, code);
  const Requests requests(array_of_requests, static_cast<std::size_t>(incount));
  return finish_some(call, requests, outcount, array_of_indices, array_of_statuses);
}

// ---- asking without completing ------------------------------------------------------------------

namespace {

// True: it has ended, or is not active; *outcome says how. The request does not change.
bool ask(MPI_Request handle, Outcome* outcome) {
  Request* const request = request_in(handle);
  *outcome = kEmptyOutcome;
  if (request == nullptr || request == &g_sent) return true;
  if (!poll_request(*request)) return false;
  if (request->active) *outcome = request->outcome;
  return true;
}

void store_with_error(const Outcome& outcome, MPI_Status* status) {
  store(outcome, status);
  if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = outcome.code;
}

}  // namespace

int request_get_status(Call call, MPI_Request request, int* flag, MPI_Status* status) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (flag == nullptr) return report(call, null_argument("flag"));
  if (const int code = check_list(1, &request); code != MPI_SUCCESS) return report(call, code);
  Outcome outcome;
  *flag = ask(request, &outcome) ? 1 : 0;
  if (*flag != 0) is_active(request_in(request)) ? store(outcome, status) : store_empty(status);
  return MPI_SUCCESS;
}

int request_get_status_all(Call call, int count, const MPI_Request array_of_requests[], int* flag,
                           MPI_Status* array_of_statuses) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (flag == nullptr) return report(call, null_argument("flag"));
  if (const int code = check_list(count, array_of_requests); code != MPI_SUCCESS) return report(call, code);
  *flag = 1;
  Outcome outcome;
  for (int i = 0; i < count; ++i)
    if (!ask(array_of_requests[i], &outcome)) *flag = 0;
  for (int i = 0; *flag != 0 && i < count; ++i) {
    ask(array_of_requests[i], &outcome);
    store_with_error(outcome, status_at(array_of_statuses, i));
  }
  return MPI_SUCCESS;
}

int request_get_status_any(Call call, int count, const MPI_Request array_of_requests[], int* indx, int* flag,
                           MPI_Status* status) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (indx == nullptr || flag == nullptr) return report(call, null_argument(indx == nullptr ? "index" : "flag"));
  if (const int code = check_list(count, array_of_requests); code != MPI_SUCCESS) return report(call, code);
  const std::ptrdiff_t which = find_ended({array_of_requests, static_cast<std::size_t>(count)});
  *flag = which == -1 ? 0 : 1;
  *indx = which < 0 ? MPI_UNDEFINED : static_cast<int>(which);
  Outcome outcome = kEmptyOutcome;
  if (which >= 0) ask(array_of_requests[which], &outcome);
  if (which >= 0) store(outcome, status);
  if (which == -2) store_empty(status);
  return MPI_SUCCESS;
}

int request_get_status_some(Call call, int incount, const MPI_Request array_of_requests[], int* outcount,
                            int array_of_indices[], MPI_Status* array_of_statuses) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (const int code = check_some(incount, array_of_requests, outcount, array_of_indices); code != MPI_SUCCESS)
    return report(call, code);
  bool active = false;
  int count = 0;
  for (int i = 0; i < incount; ++i) {
    if (!is_active(request_in(array_of_requests[i]))) continue;
    active = true;
    Outcome outcome;
    if (!ask(array_of_requests[i], &outcome)) continue;
    store_with_error(outcome, status_at(array_of_statuses, count));
    array_of_indices[count++] = i;
  }
  *outcount = active ? count : MPI_UNDEFINED;
  return MPI_SUCCESS;
}

// Requests: start, cancel, free; what a status says; requests of the program's own operations.

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

class Generalized final : public MpiOperation {
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
  MpiOperation* const operation = request->operation.get();
  if (operation == nullptr || operation->kind() != MpiOperation::Kind::generalized)
    return report(call, error(MPI_ERR_REQUEST, "the request is not a generalized one"));
  static_cast<Generalized*>(operation)->complete();
  return MPI_SUCCESS;
}

}  // namespace heddle::mpi
