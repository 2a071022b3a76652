#include "api/arguments.hpp"

#include <cstdio>

namespace heddle::api {

Status bad_handle(const char* what, std::uint64_t id) {
  if (id == 0) {
    return base::fail(HEDDLE_ERR_HANDLE, "the %s is the null handle; pass one that was opened and is not closed", what);
  }
  return base::fail(HEDDLE_ERR_HANDLE,
                    "the %s 0x%llx is not open: it was closed, is of another type, or belongs to the parent of a fork",
                    what, static_cast<unsigned long long>(id));
}

Status null_argument(const char* function, const char* argument) {
  return base::fail(HEDDLE_ERR_ARGUMENT, "heddle_%s: %s is null; pass an address that is valid", function, argument);
}

Status explain_access(const Worker& worker, const RemoteRegion& remote, std::uint64_t offset, std::uint64_t bytes) {
  if (&worker.core().objects != remote.owner) {
    return base::fail(
        HEDDLE_ERR_ARGUMENT,
        "the worker and the remote region belong to different contexts; unpack the region in the worker's context");
  }
  if (remote.is(RemoteRegion::Barred::failed)) {
    return base::fail(HEDDLE_ERR_PEER_FAILED,
                      "rank %u, the owner of the region, has failed or left; release the region and go on without it",
                      remote.rank);
  }
  if (!remote.range(offset, bytes)) {
    return base::fail(HEDDLE_ERR_RANGE,
                      "offset %llu and %llu bytes leave the region of rank %u, which has %llu bytes; "
                      "an access lies inside its region",
                      static_cast<unsigned long long>(offset), static_cast<unsigned long long>(bytes), remote.rank,
                      static_cast<unsigned long long>(remote.bytes));
  }
  return HEDDLE_DONE;
}

Status meet(RemoteRegion& remote) {
  return guarded([&] { return remote.owner->meet(remote); });
}

Status meet_now(std::uint64_t handle) {
  RemoteRegion* remote = find_handle<RemoteRegion>(handle);
  return remote != nullptr && unmet(*remote) ? meet(*remote) : HEDDLE_DONE;
}

Status out_of_memory() {
  return base::fail(HEDDLE_ERR_NO_MEMORY,
                    "memory is exhausted; release what is not needed, or start fewer ranks on this machine");
}

Status AwaitedCompletion::wait(const char* call, heddle_worker handle) {
  Worker* worker = find_handle<Worker>(handle.id);
  // Waits again even if until() fails: the operation refers to this object until it has ended.
  const auto ended = [this] { return status_.load(std::memory_order_acquire) != HEDDLE_POSTED; };
  while (!ended()) {
    static_cast<void>(worker->until({call}, [&]() -> Status { return ended() ? HEDDLE_DONE : HEDDLE_AGAIN; }));
  }
  const Status status = status_.load(std::memory_order_relaxed);
  if (status == HEDDLE_DONE) return status;
  return base::fail(status, "%s: the operation has ended with %s", call, heddle_status_name(status));
}

Status explain_completion(Worker& worker, const heddle_completion& completion) {
  if (completion.when == HEDDLE_WHEN_MATCHED) {
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "HEDDLE_WHEN_MATCHED is for heddle_send and heddle_try_send: only these wait for a receive; take "
                      "HEDDLE_WHEN_REMOTE");
  }
  const OperationCounter* counter = find_handle<OperationCounter>(completion.counter.id);
  if (counter == nullptr) return bad_handle("counter of the completion", completion.counter.id);
  if (raised_by(*counter, worker)) return HEDDLE_DONE;
  return counter->only() != 0
             ? base::fail(HEDDLE_ERR_ARGUMENT, "the counter of the completion was created for another worker")
             : base::fail(HEDDLE_ERR_ARGUMENT,
                          "the counter of the completion belongs to another context; create one in the worker's");
}

// The counter may not exist: if nothing was transferred, it was not checked.
void raise_done(const heddle_completion& completion) {
  OperationCounter* counter = find_handle<OperationCounter>(completion.counter.id);
  if (counter != nullptr && counter->counts_done()) counter->raise(HEDDLE_DONE);
}

void describe_refused(Worker&, tap::Wait& wait) {
  worker::awaits(
      wait,
      "it is not accepted, since the worker's operations are all in use, or what takes it on is full, or its "
      "target has not been met yet");
}

}  // namespace heddle::api
