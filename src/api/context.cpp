// Contexts, jobs in one process, set-up collectives, counters, the names of statuses.

#include <cstring>

#include "api/arguments.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "collective/partitioned/switchboard.hpp"
#include "worker/worker.hpp"

using namespace heddle::api;  // NOLINT: the C functions below are this file's public face
namespace base = heddle::base;
namespace engine = heddle::engine;
namespace worker = heddle::worker;

namespace {

// An inproc job that has a handle.
struct Job {
  static constexpr engine::HandleType kType = engine::HandleType::inproc_job;
  explicit Job(uint32_t ranks) : job(ranks), size(ranks) {}
  heddle::bootstrap::inproc::ThreadJob job;
  uint32_t size;
};

Status check_options(const heddle_context_options* from, worker::ContextOptions* to) {
  heddle_context_options options{};
  if (const Status status = read_options("context options", from, kFirstContextOptions, &options);
      status != HEDDLE_DONE) {
    return status;
  }
  to->transport = options.transport;
  to->progress = options.progress;
  if (options.bootstrap != nullptr) to->bootstrap.name = options.bootstrap;
  if (std::strcmp(to->bootstrap.name, "inproc") != 0) return HEDDLE_DONE;
  Job* job = find_handle<Job>(options.job.id);
  if (job == nullptr) return bad_handle("inproc job", options.job.id);
  if (options.rank >= job->size) {
    return base::fail(HEDDLE_ERR_RANK, "rank %u of an inproc job of %u ranks", options.rank, job->size);
  }
  to->bootstrap.inproc_job = &job->job;
  to->bootstrap.rank = options.rank;
  return HEDDLE_DONE;
}

}  // namespace

const char* heddle_last_error(void) {
  return base::last_message();
}

void heddle_version(int* major, int* minor, int* patch) {
  if (major != nullptr) *major = HEDDLE_VERSION_MAJOR;
  if (minor != nullptr) *minor = HEDDLE_VERSION_MINOR;
  if (patch != nullptr) *patch = HEDDLE_VERSION_PATCH;
}

heddle_status heddle_context_join(const heddle_context_options* options, heddle_context* context) {
  if (context == nullptr) return null_argument("context_join", "context");
  *context = {};
  return guarded([&]() -> Status {
    worker::ContextOptions to;
    to.extension = heddle::collective::partitioned::Switchboard::open;
    if (const Status status = check_options(options, &to); status != HEDDLE_DONE) return status;
    auto joined = Context::join(to);
    if (!joined) return joined.status();
    context->id = (*joined)->handle();
    static_cast<void>(joined->release());  // its handle owns it until it leaves
    return HEDDLE_DONE;
  });
}

heddle_status heddle_context_leave(heddle_context handle) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (engine::RunningTask::of(*context)) return engine::reject_end("heddle_context_leave");
  return guarded([&]() -> Status {
    const Status status = context->leave();
    if (!context->left()) return status;
    delete context;
    return status;
  });
}

heddle_status heddle_context_rank(heddle_context handle, uint32_t* rank) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (rank == nullptr) return null_argument("context_rank", "rank");
  *rank = context->rank();
  return HEDDLE_DONE;
}

heddle_status heddle_context_size(heddle_context handle, uint32_t* size) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (size == nullptr) return null_argument("context_size", "size");
  *size = context->size();
  return HEDDLE_DONE;
}

heddle_status heddle_context_barrier(heddle_context handle, heddle_worker worker_handle, int64_t timeout_ns) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  Worker* worker = worker_handle.id == 0 ? nullptr : find_handle<Worker>(worker_handle.id);
  if (worker_handle.id != 0 && worker == nullptr) return bad_handle("worker", worker_handle.id);
  if (worker != nullptr && &worker->context() != context) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "heddle_context_barrier: the worker belongs to another context");
  }
  return guarded([&]() -> Status {
    std::vector<std::vector<std::byte>> none;
    return context->exchange({worker::Collective::barrier, {}, worker, timeout_ns}, &none);
  });
}

heddle_status heddle_context_exchange(heddle_context handle, const void* mine, size_t bytes, void* all) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (bytes == 0 || bytes > worker::kMostExchanged) {
    return base::fail(HEDDLE_ERR_SIZE, "an exchange of %zu bytes: 1 to %zu are possible", bytes,
                      worker::kMostExchanged);
  }
  if (mine == nullptr) return null_argument("context_exchange", "mine");
  if (all == nullptr) return null_argument("context_exchange", "all");
  return guarded([&]() -> Status {
    std::vector<std::vector<std::byte>> parts;
    const std::span part(static_cast<const std::byte*>(mine), bytes);
    const Status status = context->exchange({worker::Collective::exchange, part}, &parts);
    if (status != HEDDLE_DONE) return status;
    for (uint32_t rank = 0; rank < parts.size(); ++rank) {
      if (parts[rank].size() != bytes) {
        return base::fail(HEDDLE_ERR_SIZE, "rank %u exchanged %zu bytes, this rank %zu: they must agree", rank,
                          parts[rank].size(), bytes);
      }
      std::memcpy(static_cast<std::byte*>(all) + rank * bytes, parts[rank].data(), bytes);
    }
    return HEDDLE_DONE;
  });
}

heddle_status heddle_context_peer_status(heddle_context handle, uint32_t rank) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (rank >= context->size()) {
    return base::fail(HEDDLE_ERR_RANK, "rank %u: the job has ranks 0-%u", rank, context->size() - 1);
  }
  if (!context->bootstrap().failed(rank)) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has died or left the job", rank);
}

heddle_status heddle_context_abort(heddle_context handle, int code, const char* message) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  context->abort(code, message == nullptr ? "" : message);
}

heddle_status heddle_inproc_create(uint32_t size, heddle_inproc_job* job) {
  constexpr uint32_t kMaxRanks = 1024;
  if (job == nullptr) return null_argument("inproc_create", "job");
  *job = {};
  if (size == 0 || size > kMaxRanks) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "an inproc job of %u ranks: 1 to %u are possible", size, kMaxRanks);
  }
  return guarded([&]() -> Status {
    auto created = std::make_unique<Job>(size);
    job->id = engine::open_handle(Job::kType, created.get());
    if (job->id == 0) return base::fail(HEDDLE_ERR_NO_MEMORY, "all handles of this process are open; close some");
    static_cast<void>(created.release());  // its handle owns it
    return HEDDLE_DONE;
  });
}

heddle_status heddle_inproc_close(heddle_inproc_job handle) {
  Job* job = find_handle<Job>(handle.id);
  if (job == nullptr) return bad_handle("inproc job", handle.id);
  if (job->job.in_use()) {
    return base::fail(HEDDLE_ERR_STATE, "contexts of this inproc job are still open; leave them first");
  }
  engine::close_handle(handle.id);
  delete job;
  return HEDDLE_DONE;
}

heddle_status heddle_inproc_fail(heddle_inproc_job handle, uint32_t rank) {
  Job* job = find_handle<Job>(handle.id);
  if (job == nullptr) return bad_handle("inproc job", handle.id);
  if (rank >= job->size) return base::fail(HEDDLE_ERR_RANK, "rank %u of an inproc job of %u ranks", rank, job->size);
  return guarded([&]() -> Status { return job->job.fail(rank); });
}

heddle_status heddle_counter_create(heddle_context handle, const heddle_counter_options* options,
                                    heddle_counter* counter) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (counter == nullptr) return null_argument("counter_create", "counter");
  *counter = {};
  heddle_counter_options own{};
  if (const Status status = read_options("counter options", options, kFirstCounterOptions, &own);
      status != HEDDLE_DONE) {
    return status;
  }
  Worker* only = own.worker.id != 0 ? find_handle<Worker>(own.worker.id) : nullptr;
  if (own.worker.id != 0 && only == nullptr) return bad_handle("worker", own.worker.id);
  if (only != nullptr && &only->context() != context) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "the worker of the counter belongs to another context");
  }
  return guarded([&]() -> Status {
    // Several threads raise the counters of a worker that is not exclusive.
    auto opened = context->objects().open_counter(only != nullptr && only->core().unshared ? only->core().handle.id : 0,
                                                  own.counts_done != 0);
    if (!opened) return opened.status();
    counter->id = context->objects().handle_of(*opened);
    return HEDDLE_DONE;
  });
}

heddle_status heddle_counter_free(heddle_counter handle) {
  OperationCounter* counter = find_handle<OperationCounter>(handle.id);
  if (counter == nullptr) return bad_handle("counter", handle.id);
  return guarded([&]() -> Status {
    counter->owner().close_counter(counter);
    return HEDDLE_DONE;
  });
}

heddle_status heddle_counter_read(heddle_counter handle, uint64_t* value) {
  const OperationCounter* counter = find_handle<OperationCounter>(handle.id);
  if (counter == nullptr) return bad_handle("counter", handle.id);
  if (value == nullptr) return null_argument("counter_read", "value");
  *value = counter->value();
  counter->learnt();
  const Status status = counter->status();
  if (status == HEDDLE_DONE) return status;
  return base::fail(status, "an operation of this counter ended with %s", heddle_status_name(status));
}

heddle_status heddle_counter_reset(heddle_counter handle) {
  OperationCounter* counter = find_handle<OperationCounter>(handle.id);
  if (counter == nullptr) return bad_handle("counter", handle.id);
  counter->reset();
  return HEDDLE_DONE;
}

// The texts that programs add to reports about jobs that hang, and to traces.

heddle_status heddle_wait_note(heddle_worker handle, heddle_tell_wait tell, void* arg) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (tell == nullptr) return null_argument("wait_note", "tell");
  heddle::worker::Context& context = worker->context();
  const heddle::worker::Inspection::Waiting waiting{nullptr, worker->index(), tell, arg};
  heddle::worker::Inspection& inspection = context.inspection();
  if (inspection.note(waiting, context.clock().now_ns())) {
    inspection.answer(heddle::worker::Inspection::From::program, {});
  }
  return HEDDLE_DONE;
}

heddle_status heddle_wait_end(heddle_worker handle, const void* arg) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  worker->context().inspection().end_noted(arg);
  return HEDDLE_DONE;
}

heddle_status heddle_context_list_held(heddle_context handle, heddle_list_held function) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  context->inspection().list_held(function);
  return HEDDLE_DONE;
}

heddle_status heddle_context_name_tags(heddle_context handle, heddle_name_tag function) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  context->name_tags(function);
  return HEDDLE_DONE;
}

int heddle_trace_begin(heddle_context handle, const char* name, const char* text) {
  const Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (name == nullptr) return null_argument("trace_begin", "name");
  heddle::tap::Tracer* const tracer = context->tracer();
  if (tracer == nullptr) return 0;
  tracer->begin_call(name, text != nullptr ? text : "");
  return 1;
}

heddle_status heddle_trace_end(heddle_context handle, const char* name) {
  const Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (name == nullptr) return null_argument("trace_end", "name");
  if (context->tracer() != nullptr) context->tracer()->end_call(name);
  return HEDDLE_DONE;
}
