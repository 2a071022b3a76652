// Active messages.
#include "api/arguments.hpp"

using namespace heddle::api;  // NOLINT: the C functions below are this file's public face

namespace {

using Sent = heddle::transport::TransportWorker::Sent;

[[gnu::cold]] Status explain_message(Worker& worker, heddle_peer target, const heddle_am_message& message) {
  Context& context = worker.context();
  const uint64_t limit = context.environment().config.number(heddle::base::Var::am_max_bytes);
  if (target.rank >= context.size()) {
    return heddle::base::fail(HEDDLE_ERR_RANK, "rank %u: the job has ranks 0-%u", target.rank, context.size() - 1);
  }
  if (target.worker >= context.transport().capabilities().max_workers) {
    return heddle::base::fail(HEDDLE_ERR_RANK,
                              "worker %u of rank %u: a process has at most %u workers (HEDDLE_MAX_WORKERS)",
                              target.worker, target.rank, context.transport().capabilities().max_workers);
  }
  if (message.handler >= HEDDLE_AM_HANDLERS) {
    return heddle::base::fail(HEDDLE_ERR_ARGUMENT, "handler %u: numbers go from 0 to %d", message.handler,
                              HEDDLE_AM_HANDLERS - 1);
  }
  if (message.header_bytes > HEDDLE_AM_HEADER_BYTES) {
    return heddle::base::fail(HEDDLE_ERR_SIZE, "a header of %u bytes: at most %d travel inline, the rest is payload",
                              message.header_bytes, HEDDLE_AM_HEADER_BYTES);
  }
  if (message.payload_bytes > limit) {
    return heddle::base::fail(HEDDLE_ERR_SIZE, "a payload of %zu bytes exceeds HEDDLE_AM_MAX_BYTES=%llu",
                              message.payload_bytes, static_cast<unsigned long long>(limit));
  }
  if (message.header == nullptr && message.header_bytes > 0) return null_argument("am", "message->header");
  return null_argument("am", "message->payload");
}

inline bool well_formed(Worker& worker, heddle_peer target, const heddle_am_message& message) {
  return target.rank < worker.size() && target.worker < worker.max_workers() && message.handler < HEDDLE_AM_HANDLERS &&
         message.header_bytes <= HEDDLE_AM_HEADER_BYTES && message.payload_bytes <= worker.max_payload() &&
         (message.header != nullptr || message.header_bytes == 0) &&
         (message.payload != nullptr || message.payload_bytes == 0);
}

inline Status accepted(Worker& worker, const heddle_am_message& message, Status status) {
  worker.count(&Tally::messages);
  worker.count(&Tally::bytes, message.payload_bytes);
  return status;
}

}  // namespace

heddle_status heddle_am_register(heddle_context handle, uint32_t handler, heddle_am_handler fn, void* arg) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (handler >= HEDDLE_AM_HANDLERS) {
    return heddle::base::fail(HEDDLE_ERR_ARGUMENT, "handler %u: numbers go from 0 to %d", handler,
                              HEDDLE_AM_HANDLERS - 1);
  }
  context->handler(handler).arg.store(arg, std::memory_order_relaxed);
  context->handler(handler).fn.store(fn, std::memory_order_release);
  return HEDDLE_DONE;
}

heddle_status heddle_try_am(heddle_worker handle, heddle_peer target, const heddle_am_message* message,
                            const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (message == nullptr) return null_argument("am", "message");
  if (!well_formed(*worker, target, *message)) [[unlikely]] {
    return explain_message(*worker, target, *message);
  }
  if (completion == nullptr || completion->counter.id == 0) [[likely]] {
    heddle::engine::Gate* gate = worker->gate();
    switch (gate == nullptr ? worker->try_send(target, *message) : gate->try_send(target, *message)) {
      case Sent::sent:
        return accepted(*worker, *message, HEDDLE_DONE);
      case Sent::full:
        return again(*worker);
      case Sent::unsuitable:
        break;
    }
  }
  heddle::engine::Completion resolved;
  if (const Status status = resolve(*worker, completion, &resolved); status != HEDDLE_DONE) return status;
  const Status status = heddle::engine::post(*worker, heddle::engine::MessageCommand{target, message, &resolved});
  if (status == HEDDLE_AGAIN) return again(*worker);
  return status < 0 ? status : accepted(*worker, *message, status);
}

heddle_status heddle_am(heddle_worker worker, heddle_peer target, const heddle_am_message* message,
                        const heddle_completion* completion) {
  return blocking(worker, [&] { return heddle_try_am(worker, target, message, completion); });
}
