#include "mpi/messages/request.hpp"

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "mpi/core/arguments.hpp"
#include "mpi/core/check.hpp"
#include "mpi/core/objects.hpp"
#include "mpi/messages/message.hpp"

namespace heddle::mpi {

// For reports: the call that waits for the request, alone or with others.
constexpr const char* kWaitCall = "MPI_Wait";

Request g_sent;

namespace {

constexpr std::uint32_t kMostRequests = 1U << 20;
constinit ObjectPool<Request, kMostRequests> g_requests;

// Gives a thread's requests back when it ends.
class Keeper {
 public:
  Keeper() : kept_(new(std::nothrow) KeptRequests) { t_kept = kept_.get(); }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper() {
    t_kept = nullptr;
    while (kept_ != nullptr && kept_->count > 0) g_requests.give_back(kept_->some[--kept_->count]);
  }
  void begin() {}  // so that it is there

 private:
  std::unique_ptr<KeptRequests> kept_;  // on the heap: core/objects.hpp says why
};
thread_local Keeper t_keeper;

// Requests that the program has freed while they were under way. They are removed when they have
// ended.
class Orphans final : public Stepped {
 public:
  void add(Request* request) {
    const std::scoped_lock lock(mutex_);
    all_.push_back(request);
    if (all_.size() == 1) add_stepped(this);
  }
  Made step() override {
    const std::scoped_lock lock(mutex_);
    const std::size_t before = all_.size();
    for (auto at = all_.begin(); at != all_.end();) {
      if (poll_request(**at)) {
        Outcome ignored;
        finish_request(**at, &ignored);
        at = all_.erase(at);
      } else {
        ++at;
      }
    }
    if (all_.empty()) return Made::finished;
    return all_.size() != before ? Made::moved : Made::nothing;
  }

 private:
  std::mutex mutex_;
  std::list<Request*> all_;
};

// A thread's turn at a request's operation. Only one thread at a time may test or end the
// operation: the request's user may do so, and MPI_Comm_disconnect in another thread.
bool try_take_turn(Request& request) {
  return g_job.thread_level != MPI_THREAD_MULTIPLE || !request.in_turn.exchange(true, std::memory_order_acquire);
}
void end_turn(Request& request) {
  if (g_job.thread_level == MPI_THREAD_MULTIPLE) request.in_turn.store(false, std::memory_order_release);
}
// The other thread makes one look, and waits for nobody.
void take_turn(Request& request) {
  wait_until(request.operation->lane(), [&] { return try_take_turn(request); });
}

// Called in the thread's turn.
bool test_operation(Request& request) {
  if (request.complete) return true;
  request.outcome = {};
  request.complete = request.operation->test(&request.outcome);
  return request.complete;
}

// If the type is not contiguous, the received data is in the packed buffer.
void unpack_received(Request& request) {
  if (request.packed == nullptr) return;
  const auto bytes = static_cast<MPI_Count>(std::min<std::uint64_t>(request.receive.bytes, request.packed_bytes));
  unpack(request.packed.get(), bytes, request.buffer, request.count, *request.type);
}

void complete_receive(Request& request, heddle_status status) {
  if (status == HEDDLE_DONE || status == HEDDLE_ERR_TRUNCATED) unpack_received(request);
  request.outcome =
      outcome_of(*request.comm, {request.peer, request.tag, request.packed_bytes}, request.receive, status);
  if (g_checks && status == HEDDLE_DONE)
    request.outcome.code = check_kind(*request.comm, request.receive, *request.type);
  request.complete = true;
}

void complete_send(Request& request, int code) {
  request.outcome = {};
  // the engine's text stays with the thread that ran the completion
  request.outcome.code =
      code == MPI_SUCCESS ? code : error(code, "the send to rank %d with tag %d has failed", request.peer, request.tag);
  if (g_checks && code == MPI_SUCCESS) request.outcome.code = check_unchanged(request);
  request.complete = true;
}

}  // namespace

// ---- handles ------------------------------------------------------------------------------------

Request* request_of(MPI_Request handle) {
  if (reinterpret_cast<Request*>(handle) == &g_sent) return &g_sent;
  Request* const request = g_requests.find(handle);
  using enum Request::Kind;
  return request == nullptr || request->kind == unused || request->kind == message ? nullptr : request;
}

Request* message_of(MPI_Message handle) {
  Request* const request = g_requests.find(handle);
  return request == nullptr || request->kind != Request::Kind::message ? nullptr : request;
}

MPI_Message message_handle_of(Request* request) {
  return reinterpret_cast<MPI_Message>(request);
}

int bad_request(MPI_Request handle) {
  if (handle == MPI_REQUEST_NULL) return error(MPI_ERR_REQUEST, "request is MPI_REQUEST_NULL");
  return error(MPI_ERR_REQUEST, "request %#llx is none, or was freed",
               static_cast<unsigned long long>(value_of(handle)));
}

std::uint32_t number_of(const Request* request) {
  return request == &g_sent ? kMostRequests : g_requests.number(request);
}
Request* request_at(std::uint32_t number) {
  return number == kMostRequests ? &g_sent : g_requests.at(number);
}

constinit thread_local KeptRequests* t_kept = nullptr;

Request* take_request() {
  if (Request* const request = take_kept(); request != nullptr) return request;
  try {
    return g_requests.take();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void keep(Request* request) {
  if (t_kept == nullptr) t_keeper.begin();
  KeptRequests* const kept = t_kept;
  if (kept != nullptr && kept->count < KeptRequests::kMost)
    kept->some[kept->count++] = request;
  else
    g_requests.give_back(request);
}

void give_back(Request* request) {
  if (request->type != nullptr) release(std::exchange(request->type, nullptr));
  request->packed.reset();
  request->operation.reset();
  request->kind = Request::Kind::unused;
  request->comm = nullptr;
  request->persistent = request->active = request->complete = request->freed = request->matched = request->plain =
      false;
  keep(request);
}

std::size_t live_requests() {
  std::size_t live = 0;
  g_requests.each(
      [&](const Request& request) { live += request.kind == Request::Kind::unused || request.freed ? 0 : 1; });
  return live;
}

bool has_requests(const Comm& comm) {
  bool found = false;
  g_requests.each([&](const Request& request) {
    found = found || (request.kind != Request::Kind::unused && request.comm == &comm);
  });
  return found;
}

namespace {

// Operations that are this thread's turn.
struct Taken {
  Taken() = default;
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  ~Taken() {
    for (Request* request : all) end_turn(*request);
  }
  bool take(Request& request) {
    all.push_back(&request);
    if (try_take_turn(request)) return true;
    all.pop_back();
    return false;
  }
  std::vector<Request*> all;
};

}  // namespace

bool has_pending(const Comm& comm) {
  bool found = false;
  // They are tested without the pool's lock, since a step may need requests. They are not removed
  // during this thread's turn.
  Taken operations;
  const auto goes_on = [&](const Request& request) {
    return request.comm == &comm && request.active && !request.complete;
  };
  g_requests.each([&](Request& request) {
    if (!goes_on(request)) return;
    if (request.kind == Request::Kind::send)
      found = found || request.ended.load(std::memory_order_acquire) == kPending;
    else if (request.kind == Request::Kind::receive)
      found = found || !has_ended(request.receive);
    else if (request.kind != Request::Kind::operation)
      return;
    else if (request.freed || !operations.take(request))
      found = true;  // freed ones are tested elsewhere, others by their user just now
  });
  for (Request* request : operations.all) {
    const bool still = goes_on(*request) && request->kind == Request::Kind::operation && !request->freed;
    found = (still && !test_operation(*request)) || found;
  }
  return found;
}

int new_request(std::unique_ptr<MpiOperation> operation, bool persistent, MPI_Request* handle) {
  Request* const request = take_request();
  if (request == nullptr) return no_memory_for("one more request");
  request->kind = Request::Kind::operation;
  request->lane = &operation->lane();
  request->comm = operation->comm();
  request->operation = std::move(operation);
  request->persistent = persistent;
  request->active = !persistent;
  *handle = handle_of(request);
  return MPI_SUCCESS;
}

void store(const Outcome& outcome, MPI_Status* status) {
  if (status == MPI_STATUS_IGNORE) return;
  status->MPI_SOURCE = outcome.source;
  status->MPI_TAG = outcome.tag;
  set_bytes(status, outcome.bytes);
  set_cancelled(status, outcome.cancelled);
}

void store_empty(MPI_Status* status) {
  store(kEmptyOutcome, status);
  if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = MPI_SUCCESS;
}

Outcome outcome_of(const Comm& comm, const WantedMessages& wanted, const heddle_receive& receive,
                   heddle_status status) {
  Outcome outcome;
  switch (status) {
    case HEDDLE_DONE:
      break;
    case HEDDLE_ERR_TRUNCATED:
      outcome.code = error(MPI_ERR_TRUNCATE, "a message of %llu bytes from rank %d, tag %d: the buffer has %zu",
                           static_cast<unsigned long long>(receive.bytes), comm.rank_of_job(receive.source.rank),
                           tag_of(receive.tag), wanted.room);
      break;
    case HEDDLE_ERR_CANCELLED:
      outcome.cancelled = true;
      return outcome;
    case HEDDLE_ERR_PEER_FAILED:
      outcome.code = wanted.source >= 0 ? error(MPI_ERR_PROC_ABORTED, "rank %d has died", wanted.source)
                                        : error(MPI_ERR_PROC_ABORTED, "a member of the communicator has died");
      outcome.source = wanted.source;
      outcome.tag = wanted.tag;
      return outcome;
    default:
      outcome.code = error_of_status(status);
      outcome.source = wanted.source;
      outcome.tag = wanted.tag;
      return outcome;
  }
  outcome.source = wanted.source >= 0 ? wanted.source : comm.rank_of_job(receive.source.rank);
  outcome.tag = tag_of(receive.tag);
  outcome.bytes = static_cast<MPI_Count>(std::min<std::uint64_t>(receive.bytes, wanted.room));
  return outcome;
}

// ---- running ------------------------------------------------------------------------------------

namespace {

// For a receive from any source: once a member has died, it ends as a wait for it does
// (wait_receive). False: it goes on, or its message is on its way.
bool ends_by_death(Request& request) {
  if (request.peer != MPI_ANY_SOURCE || request.matched || !sees_dead_member(*request.comm)) return false;
  static_cast<void>(heddle_recv_cancel(request.lane->worker, &request.receive));
  if (!has_ended(request.receive)) return false;
  const heddle_status status = heddle_recv_wait(request.lane->worker, &request.receive, 0);
  complete_receive(request, status == HEDDLE_ERR_CANCELLED ? HEDDLE_ERR_PEER_FAILED : status);
  return true;
}

}  // namespace

bool poll_request(Request& request) {
  if (!request.active || request.complete) return true;
  switch (request.kind) {
    case Request::Kind::send:
      if (request.ended.load(std::memory_order_acquire) == kPending) {
        progress(*request.lane);
        if (request.ended.load(std::memory_order_acquire) == kPending) return false;
      }
      complete_send(request, request.ended.load(std::memory_order_relaxed));
      return true;
    case Request::Kind::receive:
      if (!has_ended(request.receive)) {
        progress(*request.lane);
        if (!has_ended(request.receive)) return ends_by_death(request);
      }
      complete_receive(request, heddle_recv_wait(request.lane->worker, &request.receive, 0));
      return true;
    case Request::Kind::operation: {
      if (!try_take_turn(request)) return request.complete;
      const bool ended = test_operation(request);
      end_turn(request);
      return ended;
    }
    default:
      request.complete = true;
      return true;
  }
}

bool wait_plain(Request& request, MPI_Status* status) {
  const heddle_receive& receive = request.receive;
  if (load_status(receive) != HEDDLE_DONE) [[unlikely]] {
    const heddle_status outcome =
        wait_receive(*request.lane, request.receive, {kWaitCall, request.comm, request.peer, request.tag});
    if (outcome != HEDDLE_DONE) {
      complete_receive(request, outcome);
      return false;
    }
  }
  if (status != MPI_STATUS_IGNORE) {
    status->MPI_SOURCE = request.peer >= 0 ? request.peer : request.comm->rank_of_job(receive.source.rank);
    status->MPI_TAG = tag_of(receive.tag);
    set_bytes(status, static_cast<MPI_Count>(receive.bytes));
    set_cancelled(status, false);
  }
  request.kind = Request::Kind::unused;
  request.active = request.complete = request.plain = false;
  keep(&request);
  return true;
}

void wait_request(Request& request) {
  if (!request.active || request.complete) return;
  if (request.kind == Request::Kind::receive) {
    const Sought sought{kWaitCall, request.comm, request.peer, request.tag, request.matched};
    complete_receive(request, wait_receive(*request.lane, request.receive, sought));
    return;
  }
  wait_until(*request.lane, [&] { return poll_request(request); }, kWaitCall);
}

void finish_request(Request& request, Outcome* outcome) {
  if (&request == &g_sent || !request.active) {
    *outcome = kEmptyOutcome;
    return;
  }
  const bool operation = request.operation != nullptr;
  if (operation) take_turn(request);
  *outcome = request.outcome;
  request.active = false;
  request.complete = false;
  if (operation) end_turn(request);
  if (request.persistent && !request.freed) return;
  const int code = operation ? request.operation->end() : MPI_SUCCESS;
  if (outcome->code == MPI_SUCCESS) outcome->code = code;
  give_back(&request);
}

int start_request(Request& request) {
  request.complete = false;
  request.outcome = {};
  if (request.kind == Request::Kind::operation) {
    const int code = request.operation->start();
    request.active = code == MPI_SUCCESS;
    return code;
  }
  request.active = true;
  const int code = request.kind == Request::Kind::send ? begin_send(request) : begin_receive(request);
  if (code != MPI_SUCCESS) request.active = false;
  return code;
}

int free_request(Request& request) {
  if (&request == &g_sent) return MPI_SUCCESS;
  const bool operation = request.kind == Request::Kind::operation;
  if (operation) take_turn(request);
  const bool goes_on = request.active && !request.complete && (!operation || request.operation->outlives_request());
  if (goes_on)
    request.freed = true;
  else
    request.active = false;  // nobody else takes a turn from here on
  if (operation) end_turn(request);
  if (goes_on) {
    static Orphans orphans;
    orphans.add(&request);
    return MPI_SUCCESS;
  }
  const int code = operation ? request.operation->end() : MPI_SUCCESS;
  give_back(&request);
  return code;
}

}  // namespace heddle::mpi
