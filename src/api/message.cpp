// Active messages.
#include <cstdio>
#include <cstring>
#include <span>

#include "api/arguments.hpp"

using namespace heddle::api;  // NOLINT: the C functions below are this file's public face

namespace {

namespace tap = heddle::tap;
namespace worker = heddle::worker;
using heddle::wire::kHandlerNumbers;

[[gnu::cold]] Status bad_handler(uint32_t handler) {
  return heddle::base::fail(HEDDLE_ERR_ARGUMENT,
                            "handler %u: numbers go from 0 to %d, and from HEDDLE_AM_USER (%d) to %u", handler,
                            HEDDLE_AM_HANDLERS - 1, HEDDLE_AM_USER, kHandlerNumbers - 1);
}

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
  if (message.handler >= kHandlerNumbers) return bad_handler(message.handler);
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

// With `below` = HEDDLE_AM_USER only messages of class NETWORK are well formed.
inline bool well_formed(Worker& worker, heddle_peer target, const heddle_am_message& message, uint32_t below) {
  return target.rank < worker.size() && target.worker < worker.max_workers() && message.handler < below &&
         message.header_bytes <= HEDDLE_AM_HEADER_BYTES && message.payload_bytes <= worker.max_payload() &&
         (message.header != nullptr || message.header_bytes == 0) &&
         (message.payload != nullptr || message.payload_bytes == 0);
}

inline Status accepted(Worker& worker, const heddle_am_message& message, Status status) {
  worker.counts().add_operation(&Tally::messages, message.payload_bytes);
  return status;
}

// Posts a message that does not fit one message of the transport.
[[gnu::noinline]] Status post_long(Worker& worker, heddle_peer target, const heddle_am_message& message,
                                   const heddle::engine::CallersCompletion& completion) {
  heddle::worker::LongMessageStart what{target, {}, completion};
  what.message.handler = message.handler;
  what.message.header_bytes = message.header_bytes;
  if (message.header_bytes != 0) std::memcpy(what.message.header.data(), message.header, message.header_bytes);
  what.message.payload = static_cast<const std::byte*>(message.payload);
  what.message.payload_bytes = message.payload_bytes;
  const bool offered = worker.messages().is_offered(message.payload_bytes);
  if (offered && !worker.core().operations.take_offer()) return HEDDLE_AGAIN;
  const Status status = heddle::worker::start(worker, what);
  if (offered && status != HEDDLE_DONE && status != HEDDLE_POSTED) worker.core().operations.give_offer_back();
  return status;
}

[[gnu::noinline]] Status post_any(Worker& worker, heddle_peer target, const heddle_am_message& message,
                                  std::uint32_t immediate, const heddle::engine::CallersCompletion& completion) {
  if (!worker.core().requester.fits_one(message.header_bytes, message.payload_bytes)) {
    return post_long(worker, target, message, completion);
  }
  heddle::transport::Command command(target.rank, target.worker, immediate);
  command.set_message(message.header, message.header_bytes, message.payload, message.payload_bytes);
  return heddle::worker::post(worker, command, completion);
}

// The usual message has a payload of one word.
inline bool is_word(const heddle_am_message& message) {
  return message.payload_bytes == 8 && message.header_bytes == 0;
}

[[gnu::always_inline]] inline Status post_message(Worker& worker, heddle_peer target, const heddle_am_message& message,
                                                  std::uint32_t immediate,
                                                  const heddle::engine::CallersCompletion& completion) {
  if (!is_word(message)) [[unlikely]]
    return post_any(worker, target, message, immediate, completion);
  heddle::transport::Command command(target.rank, target.worker, immediate);
  command.set_message(nullptr, 0, message.payload, 8);
  // It is no tagged message, so it needs no number.
  heddle::worker::Gate* gate = worker.gate();
  return gate == nullptr ? worker.core().requester.post(command, completion) : gate->post(command, completion);
}

// A message that lies in its command, on a worker of one thread (exclusive or auto). False: it is
// another one. `kWord`: is_word().
template <bool kWord>
[[gnu::always_inline]] inline bool posted_at_once(Worker& worker, heddle_peer target, const heddle_am_message& message,
                                                  Status* status) {
  const std::uint32_t header_bytes = kWord ? 0 : message.header_bytes;
  const std::uint64_t bytes = kWord ? 8 : message.payload_bytes;
  if (!heddle::transport::Command::inlines(header_bytes, bytes)) [[unlikely]]
    return false;
  const heddle::worker::OwnEntry entry(worker, heddle::worker::OwnEntry::LooksOnce{});
  if (!entry.inside()) return false;
  heddle::transport::Command command(target.rank, target.worker,
                                     heddle::wire::encode_am(message.handler, header_bytes));
  command.set_message(message.header, header_bytes, message.payload, bytes);
  // It is no tagged message, so it needs no number.
  *status = worker.core().requester.post(command, heddle::engine::kNoCompletion);
  if (*status == HEDDLE_DONE || *status == HEDDLE_POSTED) [[likely]] {
    worker.counts().add_own_operation(&Tally::messages, bytes);
  }
  entry.leave(*status);
  return true;
}

// Class USER: the message needs credit, since the receiver stores it. The caller takes the credit
// here: a queued command that waited for credit would delay the commands behind it.
[[gnu::noinline]] Status try_user(Worker& worker, heddle_peer target, const heddle_am_message& message,
                                  const heddle_completion* completion) {
  if (!well_formed(worker, target, message, kHandlerNumbers)) return explain_message(worker, target, message);
  heddle::engine::CallersCompletion resolved;
  if (const Status status = resolve(worker, completion, &resolved); status != HEDDLE_DONE) return status;
  return guarded([&]() -> Status {
    switch (const Status credit = worker.take_credit(target, message)) {
      case HEDDLE_DONE:
        break;
      case HEDDLE_AGAIN:
        return again(worker);
      default:
        return credit;
    }
    const std::uint32_t immediate = heddle::wire::encode_user(message.handler, message.header_bytes);
    const Status status = post_message(worker, target, message, immediate, resolved);
    if (status != HEDDLE_DONE && status != HEDDLE_POSTED)
      worker.messages().give_credit_back(target, message.header_bytes, message.payload_bytes);
    if (status == HEDDLE_AGAIN) return again(worker);
    return status < 0 ? status : counted(accepted(worker, message, status), completion);
  });
}

// For class NETWORK, with a completion.
[[gnu::noinline]] Status try_with_completion(Worker& worker, heddle_peer target, const heddle_am_message& message,
                                             const heddle_completion* completion) {
  heddle::engine::CallersCompletion resolved;
  if (const Status status = resolve(worker, completion, &resolved); status != HEDDLE_DONE) return status;
  const std::uint32_t immediate = heddle::wire::encode_am(message.handler, message.header_bytes);
  const bool at_once =
      resolved.told_when_accepted(heddle::transport::Command::inlines(message.header_bytes, message.payload_bytes));
  Status status = post_message(worker, target, message, immediate, at_once ? heddle::engine::kNoCompletion : resolved);
  if (status == HEDDLE_AGAIN) return again(worker);
  if (at_once && status == HEDDLE_POSTED) status = HEDDLE_DONE;
  return status < 0 ? status : counted(accepted(worker, message, status), completion);
}

[[gnu::cold]] void describe_message(Worker& worker, heddle_peer target, const heddle_am_message& message,
                                    tap::Wait& wait) {
  const auto used = static_cast<unsigned long long>(worker.messages().credit_used(target));
  const bool credit = message.handler >= HEDDLE_AM_USER && used > 0;
  wait.things.push_back({credit ? tap::Cause::tasks : tap::Cause::room, target.rank, target.worker,
                         message.payload_bytes, credit ? "USER message" : "message", ""});
  if (credit) {
    worker::awaits(
        wait,
        "the USER message to worker %u of rank %u is not accepted; %llu bytes to it are not known as handled yet: a "
        "thread there must call heddle_run_tasks",
        target.worker, target.rank, used);
  } else {
    worker::awaits(
        wait, "the message to worker %u of rank %u is not accepted; a thread there must make progress on that worker",
        target.worker, target.rank);
  }
}

// Any message, on any worker.
[[gnu::always_inline]] inline Status try_any(Worker& worker, heddle_peer target, const heddle_am_message* message,
                                             const heddle_completion* completion) {
  if (message == nullptr) [[unlikely]]
    return null_argument("am", "message");
  if (!well_formed(worker, target, *message, HEDDLE_AM_USER)) [[unlikely]] {
    return try_user(worker, target, *message, completion);
  }
  if (completion != nullptr) [[unlikely]]
    return try_with_completion(worker, target, *message, completion);
  const std::uint32_t immediate = heddle::wire::encode_am(message->handler, message->header_bytes);
  const Status status = post_message(worker, target, *message, immediate, heddle::engine::kNoCompletion);
  if (status == HEDDLE_DONE || status == HEDDLE_POSTED) [[likely]]
    return accepted(worker, *message, status);
  return status == HEDDLE_AGAIN ? again(worker) : status;
}

Status try_again(heddle_worker handle, heddle_peer target, const heddle_am_message* message,
                 const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  return worker == nullptr ? bad_handle("worker", handle.id) : try_any(*worker, target, message, completion);
}

template <bool kWaits>
[[gnu::noinline]] Status post_otherwise(Worker& worker, heddle_peer target, const heddle_am_message* message,
                                        const heddle_completion* completion) {
  const heddle_worker handle = worker.core().handle;
  // Credit is taken before the command is posted. Taking it reads state that a look by the worker's
  // previous owner would write, so use() comes first.
  static_cast<void>(heddle::worker::use(worker));
  const Status first = try_any(worker, target, message, completion);
  if (!kWaits || first != HEDDLE_AGAIN) [[likely]]
    return first;
  return blocking(
      "heddle_am", handle, [=] { return try_again(handle, target, message, completion); },
      [&](Worker& own, tap::Wait& wait) { describe_message(own, target, *message, wait); });
}

// Without a completion, on a worker of one thread.
template <bool kWaits, bool kWord>
[[gnu::noinline]] Status post_by_one(Worker& worker, heddle_peer target, const heddle_am_message* message) {
  Status status = HEDDLE_AGAIN;
  const bool posted =
      well_formed(worker, target, *message, HEDDLE_AM_USER) && posted_at_once<kWord>(worker, target, *message, &status);
  if (posted && status != HEDDLE_AGAIN) [[likely]]
    return status;
  return post_otherwise<kWaits>(worker, target, message, nullptr);
}

// Only chooses, so that neither way saves registers for the other.
template <bool kWaits>
[[gnu::always_inline]] inline Status post_am(heddle_worker handle, heddle_peer target, const heddle_am_message* message,
                                             const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) [[unlikely]]
    return bad_handle("worker", handle.id);
  if (heddle::worker::at_once(*worker) && message != nullptr && completion == nullptr) [[likely]] {
    return is_word(*message) ? post_by_one<kWaits, true>(*worker, target, message)
                             : post_by_one<kWaits, false>(*worker, target, message);
  }
  return post_otherwise<kWaits>(*worker, target, message, completion);
}

}  // namespace

heddle_status heddle_am_register(heddle_context handle, uint32_t handler, heddle_am_handler fn, void* arg) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (handler >= kHandlerNumbers) return bad_handler(handler);
  context->register_handler(handler, {fn, arg});
  return HEDDLE_DONE;
}

heddle_status heddle_try_am(heddle_worker worker, heddle_peer target, const heddle_am_message* message,
                            const heddle_completion* completion) {
  return post_am<false>(worker, target, message, completion);
}

heddle_status heddle_am(heddle_worker worker, heddle_peer target, const heddle_am_message* message,
                        const heddle_completion* completion) {
  return post_am<true>(worker, target, message, completion);
}

int heddle_run_tasks(heddle_worker handle, uint32_t most, int64_t timeout_ns) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (most == 0) return heddle::base::fail(HEDDLE_ERR_ARGUMENT, "heddle_run_tasks: most is 0; ask for 1 or more");
  return worker->run_tasks(handle, most, timeout_ns);
}
