// Tagged messages.
#include <cstdio>
#include <cstring>
#include <span>

#include "api/arguments.hpp"
#include "base/fence.hpp"

using namespace heddle::api;  // NOLINT: the C functions below are this file's public face

namespace {

namespace base = heddle::base;
namespace tap = heddle::tap;
namespace engine = heddle::engine;
namespace protocol = heddle::protocol;
namespace worker = heddle::worker;
namespace transport = heddle::transport;

[[gnu::cold]] Status explain_peer(Worker& worker, std::uint32_t rank, std::uint32_t index) {
  if (rank >= worker.size()) {
    return base::fail(HEDDLE_ERR_RANK, "rank %u: the job has ranks 0-%u", rank, worker.size() - 1);
  }
  return base::fail(HEDDLE_ERR_RANK, "worker %u of rank %u: a process has at most %u workers (HEDDLE_MAX_WORKERS)",
                    index, rank, worker.max_workers());
}

[[gnu::cold]] Status too_long(std::uint64_t bytes) {
  return base::fail(HEDDLE_ERR_SIZE, "a message of %llu bytes: at most %llu are possible; is the length negative?",
                    static_cast<unsigned long long>(bytes),
                    static_cast<unsigned long long>(protocol::Tagged::kMaxBytes));
}

template <bool kShared>
[[gnu::cold]] Status no_room(Worker& worker, heddle_peer target) {
  Status status = HEDDLE_AGAIN;
  if constexpr (kShared) {
    status = worker.gate()->after_queued([&] { return worker.tagged().no_room(target); });
  } else {
    status = worker.tagged().no_room(target);
  }
  return status == HEDDLE_AGAIN ? again(worker) : status;
}

inline Status accepted(Worker& worker, std::uint64_t bytes, Status status) {
  worker.counts().add_operation(&Tally::sends, bytes);
  return status;
}

template <bool kShared>
[[gnu::always_inline]] inline Status post_reserved(Worker& worker, const protocol::SendRequest& request,
                                                   const engine::CallersCompletion& completion) {
  transport::Command command = protocol::Tagged::message(request);
  if constexpr (kShared) return worker.gate()->post(command, completion);
  const auto post = [&] { return worker.core().requester.post(command, completion); };
  return worker.tagged().post_numbered(command, post);
}

inline bool waits_for_receive(const heddle_completion* completion) {
  return completion != nullptr && completion->when == HEDDLE_WHEN_MATCHED;
}

inline Status resolve_offer(Worker& worker, const heddle_completion* from, engine::CallersCompletion* to) {
  if (!waits_for_receive(from)) return resolve(worker, from, to);
  heddle_completion same = *from;
  same.when = HEDDLE_WHEN_REMOTE;
  return resolve(worker, &same, to);
}

// A message that the receiver is told of, and fetches. It is complete when it has been received,
// whichever completion was asked for.
template <bool kShared>
[[gnu::noinline]] Status send_offer(Worker& worker, const protocol::SendRequest& request,
                                    const heddle_completion* completion) {
  if (request.bytes > protocol::Tagged::kMaxBytes) return too_long(request.bytes);
  engine::CallersCompletion resolved;
  if (const Status status = resolve_offer(worker, completion, &resolved); status != HEDDLE_DONE) return status;
  if (!worker.tagged().reserve_offer<kShared>(request.target)) return no_room<kShared>(worker, request.target);
  const Status status = worker::start(worker, worker::OfferStart{request, resolved});
  if (status == HEDDLE_DONE || status == HEDDLE_POSTED) [[likely]]
    return counted(accepted(worker, request.bytes, status), completion);
  worker.tagged().give_offer_back<kShared>(request.target);
  return status == HEDDLE_AGAIN ? again(worker) : status;
}

// A blocking send that has got AGAIN for many tries (may_offer) offers its message in two cases:
//  * There is no credit, and the message has at least kOfferedWithoutCredit bytes. Otherwise its
//    sender would wait until the receiver receives something.
//  * There is credit, but the transport takes no message now, and the message is longer than
//    kWaitsForRoom. A shorter message waits: the receiver's progress makes room for it.
constexpr std::uint64_t kOfferedWithoutCredit = 2048;
constexpr std::uint64_t kWaitsForRoom = 8192;
inline bool is_offered_instead(const protocol::SendRequest& request, std::uint64_t least_bytes) {
  return request.may_offer && request.bytes >= least_bytes;
}

// The result for the caller, after room was reserved for the message. Gives the room back on
// failure.
template <bool kShared>
[[gnu::always_inline]] inline Status told(Worker& worker, const protocol::SendRequest& request, Status status,
                                          const heddle_completion* completion) {
  if (status == HEDDLE_DONE || status == HEDDLE_POSTED) [[likely]]
    return accepted(worker, request.bytes, status);
  worker.tagged().give_back<kShared>(request.target, request.bytes);
  if (status != HEDDLE_AGAIN) return status;
  return is_offered_instead(request, kWaitsForRoom + 1) ? send_offer<kShared>(worker, request, completion)
                                                        : again(worker);
}

template <bool kShared>
[[gnu::noinline]] Status post_with_completion(Worker& worker, const protocol::SendRequest& request,
                                              const heddle_completion* completion) {
  engine::CallersCompletion resolved;
  Status status = resolve(worker, completion, &resolved);
  if (status != HEDDLE_DONE) {
    worker.tagged().give_back<kShared>(request.target, request.bytes);
    return status;
  }
  const bool at_once = resolved.told_when_accepted(transport::Command::inlines(sizeof request.tag, request.bytes));
  status = post_reserved<kShared>(worker, request, at_once ? engine::kNoCompletion : resolved);
  if (at_once && status == HEDDLE_POSTED) status = HEDDLE_DONE;
  const Status outcome = told<kShared>(worker, request, status, completion);
  return status == HEDDLE_DONE ? counted(outcome, completion) : outcome;
}

template <bool kShared>
[[gnu::always_inline]] inline Status send_packet(Worker& worker, const protocol::SendRequest& request,
                                                 const heddle_completion* completion) {
  if (!worker.tagged().reserve<kShared>(request.target, request.bytes)) [[unlikely]] {
    // The calling thread reserves the credit, so that no command in a queue ever waits for credit.
    return is_offered_instead(request, kOfferedWithoutCredit) ? send_offer<kShared>(worker, request, completion)
                                                              : no_room<kShared>(worker, request.target);
  }
  if (completion != nullptr) [[unlikely]]
    return post_with_completion<kShared>(worker, request, completion);
  return told<kShared>(worker, request, post_reserved<kShared>(worker, request, engine::kNoCompletion), nullptr);
}

template <bool kShared>
[[gnu::noinline]] Status send_parts(Worker& worker, const protocol::SendRequest& request,
                                    const heddle_completion* completion) {
  engine::CallersCompletion resolved;
  if (const Status status = resolve(worker, completion, &resolved); status != HEDDLE_DONE) return status;
  if (!worker.tagged().reserve<kShared>(request.target, request.bytes)) {
    const bool offered = request.bytes > worker.tagged().eager() || request.may_offer;
    return offered ? send_offer<kShared>(worker, request, completion) : no_room<kShared>(worker, request.target);
  }
  worker::OfferStart what{request, resolved};
  what.request.in_parts = true;
  const Status status = worker::start(worker, what);
  const Status outcome = told<kShared>(worker, request, status, completion);
  return status == HEDDLE_DONE ? counted(outcome, completion) : outcome;
}

// A message of more than at_once() bytes, or whose sender waits until it is received.
template <bool kShared>
[[gnu::noinline]] Status send_long(Worker& worker, const protocol::SendRequest& request,
                                   const heddle_completion* completion) {
  const protocol::WayLimits& limits = worker.tagged().limits(request.target);
  switch (protocol::way_of(limits, request.bytes, waits_for_receive(completion))) {
    case protocol::Way::inlined:
    case protocol::Way::eager:
      return send_packet<kShared>(worker, request, completion);
    case protocol::Way::piped:
      return send_parts<kShared>(worker, request, completion);
    case protocol::Way::pulled:
    case protocol::Way::fetched:
      break;
  }
  return send_offer<kShared>(worker, request, completion);
}

template <bool kShared>
[[gnu::always_inline]] inline Status send(Worker& worker, const protocol::SendRequest& request,
                                          const heddle_completion* completion) {
  if (request.bytes > worker.tagged().at_once() || waits_for_receive(completion)) [[unlikely]]
    return send_long<kShared>(worker, request, completion);
  return send_packet<kShared>(worker, request, completion);
}

[[gnu::noinline]] Status send_gated(Worker& worker, const protocol::SendRequest& request,
                                    const heddle_completion* completion) {
  Status status = HEDDLE_AGAIN;
  bool was_inside = false;
  const auto send_inside = [&] {
    was_inside = true;
    return send<false>(worker, request, completion);
  };
  if (!worker.gate()->may_be_owned() || !worker.gate()->visit_owned(send_inside, &status)) {
    return send<true>(worker, request, completion);
  }
  return was_inside ? status : again(worker);  // send() has counted its own
}

// ---- receives -----------------------------------------------------------------------------------

inline Status read_wanted(const char* function, Worker& worker, const heddle_wanted* from, protocol::Wanted* wanted) {
  if (from == nullptr) return null_argument(function, "wanted");
  const heddle_peer source = from->source;
  const bool any_rank = source.rank == HEDDLE_ANY;
  const bool any_worker = source.worker == HEDDLE_ANY;
  if (any_rank && !any_worker) [[unlikely]] {
    return base::fail(HEDDLE_ERR_ARGUMENT, "worker %u of any rank: give a rank, or HEDDLE_ANY for both", source.worker);
  }
  if ((!any_rank && source.rank >= worker.size()) || (!any_worker && source.worker >= worker.max_workers()))
      [[unlikely]] {
    return explain_peer(worker, source.rank, source.worker);
  }
  static_assert(HEDDLE_ANY == protocol::kAnyNumber);
  *wanted = {from->tag, from->mask, protocol::source_of(source)};
  return HEDDLE_DONE;
}

// Other threads may look at it by atomic loads.
void store_status(heddle_receive* receive, heddle_status status) {
  std::atomic_ref(receive->status).store(status, std::memory_order_relaxed);
}

// The receive is not posted: its status becomes the result of the call.
[[gnu::cold]] Status not_posted(Worker& worker, heddle_receive* receive, Status status) {
  store_status(receive, status);
  return status == HEDDLE_AGAIN ? again(worker) : status;
}

template <class Start>
inline Status post_receive(Worker& worker, Start& what, const heddle_completion* completion) {
  heddle_receive* const receive = what.request.receive;
  if (const Status status = resolve(worker, completion, &what.request.completion); status != HEDDLE_DONE)
    return not_posted(worker, receive, status);
  const Status status = worker::start(worker, what);
  if (status == HEDDLE_AGAIN) return not_posted(worker, receive, status);
  return counted(status, completion);  // on an error the engine has also set the receive's status
}

// Inline in both forms, as try_send(). On a worker without a gate a receive never has to be tried
// again.
[[gnu::noinline]] Status try_any_recv(heddle_worker handle, const heddle_wanted* wanted, void* data, std::size_t bytes,
                                      heddle_receive* receive, const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (receive == nullptr) return null_argument("recv", "receive");
  if (data == nullptr && bytes != 0) return null_argument("recv", "data");
  worker::ReceiveStart what{{}, {static_cast<std::byte*>(data), bytes, receive, {}}};
  if (const Status status = read_wanted("recv", *worker, wanted, &what.wanted); status != HEDDLE_DONE)
    return not_posted(*worker, receive, status);
  store_status(receive, HEDDLE_POSTED);  // set first, since another thread may execute the receive
  return post_receive(*worker, what, completion);
}

// The usual receive: from one worker, nobody is told, on a worker of one thread. Null: it is
// another one.
[[gnu::always_inline]] inline Worker* takes_at_once(heddle_worker handle, const heddle_wanted* wanted, const void* data,
                                                    std::size_t bytes, const heddle_receive* receive,
                                                    const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr || completion != nullptr || receive == nullptr || wanted == nullptr) return nullptr;
  if (data == nullptr && bytes != 0) return nullptr;
  if (wanted->source.rank >= worker->size() || wanted->source.worker >= worker->max_workers()) return nullptr;
  return worker::at_once(*worker) ? worker : nullptr;
}

// takes_at_once() has returned *worker. If *worker becomes null, the caller must use
// recv_otherwise().
[[gnu::always_inline]] inline Status take_at_once(Worker** worker, const heddle_wanted& wanted, void* data,
                                                  std::size_t bytes, heddle_receive* receive) {
  worker::OwnEntry entry(**worker);
  if (!entry.inside()) [[unlikely]] {
    *worker = nullptr;
    return HEDDLE_AGAIN;
  }
  const Status status = (*worker)->tagged().receive_from(wanted, data, bytes, receive);
  // on any status: the sender of a kept message must be told that its room is free
  entry.leave(HEDDLE_POSTED);
  return status;
}

[[gnu::noinline]] Status recv_otherwise(heddle_worker handle, const heddle_wanted* wanted, void* data,
                                        std::size_t bytes, heddle_receive* receive,
                                        const heddle_completion* completion) {
  return blocking("heddle_recv", handle,
                  [=] { return try_any_recv(handle, wanted, data, bytes, receive, completion); });
}

// Runs look_inside() inside the worker, after everything queued before; AGAIN if that is impossible
// now.
template <class Look>
Status look(Worker& worker, Look&& look_inside) {
  return worker::use(worker) == nullptr ? look_inside() : worker.gate()->after_queued(std::forward<Look>(look_inside));
}

inline Status try_send(heddle_worker handle, const protocol::SendRequest& request,
                       const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) [[unlikely]]
    return bad_handle("worker", handle.id);
  if (request.target.rank >= worker->size() || request.target.worker >= worker->max_workers()) [[unlikely]] {
    return explain_peer(*worker, request.target.rank, request.target.worker);
  }
  if (request.data == nullptr && request.bytes != 0) [[unlikely]] {
    return null_argument("send", "data");
  }
  return worker::use(*worker) == nullptr ? send<false>(*worker, request, completion)
                                         : send_gated(*worker, request, completion);
}

[[gnu::cold]] void describe_send(Worker& worker, heddle_peer target, std::uint64_t tag, std::size_t bytes, bool matched,
                                 tap::Wait& wait) {
  const auto used = static_cast<unsigned long long>(worker.tagged().credit_used(target));
  // Shorter ones wait for credit, however many long ones are under way.
  engine::Operations& operations = worker.core().operations;
  const bool offered = protocol::way_of(worker.tagged().limits(target), bytes, matched) >= protocol::Way::pulled;
  const bool offers = offered && operations.all_offered();
  wait.things.push_back({offers || used > 0 ? tap::Cause::credit : tap::Cause::room, target.rank, target.worker, bytes,
                         "tagged message", worker.context().tag_text(tag, ~std::uint64_t{0})});
  if (offers) {
    worker::awaits(wait,
                   "the message of %zu bytes to worker %u of rank %u is not accepted; %zu long ones are under way, as "
                   "many as HEDDLE_WORKER_OPERATIONS allows: post their receives, and make progress on both sides",
                   bytes, target.worker, target.rank, operations.most_offers());
    return;
  }
  if (used == 0) {
    worker::awaits(wait,
                   "the message of %zu bytes to worker %u of rank %u is not accepted: it is not connected yet, or has "
                   "no room: make progress on that worker",
                   bytes, target.worker, target.rank);
    return;
  }
  worker::awaits(
      wait,
      "the message of %zu bytes to worker %u of rank %u is not accepted; %llu of HEDDLE_TAG_CREDIT_BYTES=%llu "
      "(long ones: twice that) are used by messages that are not received there: post receives there, and make "
      "progress on that worker",
      bytes, target.worker, target.rank, used,
      static_cast<unsigned long long>(worker.context().environment().config.number(base::Var::tag_credit_bytes)));
}

[[gnu::noinline]] Status send_otherwise(heddle_worker worker, heddle_peer target, uint64_t tag, const void* data,
                                        std::size_t bytes, const heddle_completion* completion) {
  // A receiver that polls makes room within so many tries, each with a look for progress.
  constexpr int kTriesForRoom = 64;
  auto attempt = [=, tries = 0]() mutable {
    const bool may_offer = tries == kTriesForRoom;
    if (!may_offer) ++tries;
    return try_send(worker, {target, tag, data, bytes, may_offer}, completion);
  };
  return blocking("heddle_send", worker, attempt, [=](Worker& own, tap::Wait& wait) {
    describe_send(own, target, tag, bytes, waits_for_receive(completion), wait);
  });
}
[[gnu::noinline]] Status try_send_otherwise(heddle_worker worker, heddle_peer target, uint64_t tag, const void* data,
                                            std::size_t bytes, const heddle_completion* completion) {
  return try_send(worker, {target, tag, data, bytes}, completion);
}
template <bool kWaits>
inline constexpr auto kSendOtherwise = kWaits ? &send_otherwise : &try_send_otherwise;

// The usual message: on a worker of one thread (exclusive or auto), whose transport keeps the
// order. Null: it is another one, or something is wrong with it.
[[gnu::always_inline]] inline Worker* sends_at_once(heddle_worker handle, heddle_peer target, const void* data) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr || data == nullptr) return nullptr;
  if (!worker::at_once(*worker)) return nullptr;
  if (target.rank >= worker->size() || target.worker >= worker->max_workers()) return nullptr;
  return worker->tagged().ordered() ? worker : nullptr;
}

// Sends a message that lies in its command. If it does not go at once, kSendOtherwise starts again
// from the beginning, with the values that are in the command, so that no argument has to be kept
// for that case.
template <bool kWaits, bool kTold>
[[gnu::noinline]] Status send_short(Worker& worker, heddle_peer target, std::uint64_t tag, const void* data,
                                    std::size_t bytes, const heddle_completion* completion) {
  OperationCounter* counter = nullptr;
  if constexpr (kTold) {
    // With HEDDLE_WHEN_LOCAL the message is DONE when it is accepted: only a counter has to be
    // raised.
    engine::CallersCompletion told;
    if (completion->when != HEDDLE_WHEN_LOCAL || !resolved(worker, completion, &told)) [[unlikely]]
      return kSendOtherwise<kWaits>(worker.core().handle, target, tag, data, bytes, completion);
    counter = told.counter;
  }
  worker::OwnEntry entry(worker);
  if (!entry.inside()) [[unlikely]]
    return kSendOtherwise<kWaits>(worker.core().handle, target, tag, data, bytes, kTold ? completion : nullptr);
  protocol::SendCredit* const credit = worker.tagged().reserve_own(target, bytes);
  if (credit == nullptr) [[unlikely]] {
    entry.leave(HEDDLE_AGAIN);
    return kSendOtherwise<kWaits>(worker.core().handle, target, tag, data, bytes, kTold ? completion : nullptr);
  }
  transport::Command command = protocol::Tagged::short_message(target, tag, data, bytes);
  const Status status = worker.core().requester.post(command, engine::kNoCompletion);
  const std::size_t length = command.bytes - sizeof(std::uint64_t);
  if (status != HEDDLE_DONE && status != HEDDLE_POSTED) [[unlikely]] {
    worker.tagged().give_back<false>({command.rank, command.worker}, length);
    entry.leave(status);
    std::uint64_t same = 0;
    std::memcpy(&same, command.packet, sizeof same);
    return kSendOtherwise<kWaits>(worker.core().handle, {command.rank, command.worker}, same,
                                  command.packet + sizeof same, length, kTold ? completion : nullptr);
  }
  ++credit->sequence;
  worker.counts().add_own_operation(&Tally::sends, length);
  entry.leave(status);
  if constexpr (!kTold) return status;
  if (counter != nullptr && counter->counts_done()) counter->raise(HEDDLE_DONE);
  return HEDDLE_DONE;
}
// The same for a longer one, whose source may still be in use where the transport does not copy it.
template <bool kWaits>
[[gnu::noinline]] Status send_copied(Worker& worker, heddle_peer target, std::uint64_t tag, const void* data,
                                     std::size_t bytes, const heddle_completion* completion) {
  engine::CallersCompletion told;
  if (bytes > worker.tagged().at_once() || waits_for_receive(completion) || !resolved(worker, completion, &told))
      [[unlikely]]
    return kSendOtherwise<kWaits>(worker.core().handle, target, tag, data, bytes, completion);
  worker::OwnEntry entry(worker);
  if (!entry.inside()) [[unlikely]]
    return kSendOtherwise<kWaits>(worker.core().handle, target, tag, data, bytes, completion);
  protocol::SendCredit* const credit = worker.tagged().reserve_own(target, bytes);
  if (credit == nullptr) [[unlikely]] {
    entry.leave(HEDDLE_AGAIN);
    return kSendOtherwise<kWaits>(worker.core().handle, target, tag, data, bytes, completion);
  }
  const protocol::SendRequest request{target, tag, data, bytes};
  transport::Command command = protocol::Tagged::message(request);
  const Status status = worker.core().requester.post(command, told);
  if (status != HEDDLE_DONE && status != HEDDLE_POSTED) [[unlikely]] {
    worker.tagged().give_back<false>(target, bytes);
    entry.leave(status);
    return kSendOtherwise<kWaits>(worker.core().handle, target, tag, data, bytes, completion);
  }
  ++credit->sequence;
  worker.counts().add_own_operation(&Tally::sends, bytes);
  entry.leave(status);
  return counted(status, completion);
}

template <bool kWaits>
[[gnu::always_inline]] inline Status send_at_once(heddle_worker handle, heddle_peer target, std::uint64_t tag,
                                                  const void* data, std::size_t bytes,
                                                  const heddle_completion* completion) {
  Worker* worker = sends_at_once(handle, target, data);
  if (worker == nullptr) [[unlikely]]
    return kSendOtherwise<kWaits>(handle, target, tag, data, bytes, completion);
  if (!transport::Command::inlines(sizeof tag, bytes) || bytes > worker->tagged().eager())
    return send_copied<kWaits>(*worker, target, tag, data, bytes, completion);
  return completion == nullptr ? send_short<kWaits, false>(*worker, target, tag, data, bytes, nullptr)
                               : send_short<kWaits, true>(*worker, target, tag, data, bytes, completion);
}

Status status_of(heddle_receive* receive) {
  // Acquire: a thread that sees the end sees the data. Partner: the engine's release store of the
  // status.
  return std::atomic_ref(receive->status).load(std::memory_order_acquire);
}

// Another thread may have received it. Out of line: the usual way saves no registers for it.
[[gnu::noinline, gnu::cold]] Status learnt(heddle_receive* receive) {
  heddle::base::show_acquire(&receive->status);
  return HEDDLE_DONE;
}

// heddle_recv_wait of one that has not ended, or with an error.
[[gnu::noinline]] Status wait_for(Worker& worker, heddle_receive* receive, int64_t timeout_ns) {
  const auto ended = [receive] { return status_of(receive) == HEDDLE_POSTED ? HEDDLE_AGAIN : HEDDLE_DONE; };
  const Status status = worker.until({"heddle_recv_wait", timeout_ns, true}, ended, [&](tap::Wait& wait) {
    const auto tell = [&] { worker.tagged().tell_receive(*receive, &wait.things); };
    worker::use(worker) == nullptr ? tell() : static_cast<void>(worker.gate()->look(tell));
    if (wait.things.empty()) return;
    const tap::Awaited& thing = wait.things.front();
    const bool rest = thing.cause == tap::Cause::answer;
    if (thing.rank == tap::kNobody) {
      worker::awaits(wait, "a message with %s from anybody", thing.tag.c_str());
    } else {
      worker::awaits(wait, "%sa message with %s from rank %u", rest ? "the rest of " : "", thing.tag.c_str(),
                     thing.rank);
    }
  });
  if (status == HEDDLE_ERR_TIMEOUT) {
    return base::fail(status, "heddle_recv_wait: after %lld ns no message has come",
                      static_cast<long long>(timeout_ns));
  }
  if (status != HEDDLE_DONE) return status;
  const Status outcome = status_of(receive);
  heddle::base::show_acquire(&receive->status);
  if (outcome == HEDDLE_DONE) return outcome;
  if (outcome == HEDDLE_AGAIN) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "the receive is not posted: the call that should have said HEDDLE_AGAIN");
  }
  if (outcome == HEDDLE_ERR_TRUNCATED) {
    return base::fail(outcome,
                      "the message of %llu bytes with tag %llu from rank %u is longer than the buffer of its receive, "
                      "which has what fits",
                      static_cast<unsigned long long>(receive->bytes), static_cast<unsigned long long>(receive->tag),
                      receive->source.rank);
  }
  if (receive->source.rank == HEDDLE_ANY) {
    return base::fail(outcome, "the receive, from anybody, has ended with %s", heddle_status_name(outcome));
  }
  return base::fail(outcome, "the receive from rank %u has ended with %s", receive->source.rank,
                    heddle_status_name(outcome));
}

}  // namespace

heddle_status heddle_try_send(heddle_worker handle, heddle_peer target, uint64_t tag, const void* data, size_t bytes,
                              const heddle_completion* completion) {
  return send_at_once<false>(handle, target, tag, data, bytes, completion);
}

heddle_status heddle_send(heddle_worker handle, heddle_peer target, uint64_t tag, const void* data, size_t bytes,
                          const heddle_completion* completion) {
  return send_at_once<true>(handle, target, tag, data, bytes, completion);
}

heddle_status heddle_try_recv(heddle_worker handle, const heddle_wanted* wanted, void* data, size_t bytes,
                              heddle_receive* receive, const heddle_completion* completion) {
  Worker* worker = takes_at_once(handle, wanted, data, bytes, receive, completion);
  if (worker != nullptr) [[likely]] {
    const Status status = take_at_once(&worker, *wanted, data, bytes, receive);
    if (worker != nullptr) [[likely]]
      return status;
  }
  return try_any_recv(handle, wanted, data, bytes, receive, completion);
}

heddle_status heddle_recv(heddle_worker handle, const heddle_wanted* wanted, void* data, size_t bytes,
                          heddle_receive* receive, const heddle_completion* completion) {
  Worker* worker = takes_at_once(handle, wanted, data, bytes, receive, completion);
  // never AGAIN
  if (worker != nullptr) [[likely]] {
    const Status status = take_at_once(&worker, *wanted, data, bytes, receive);
    if (worker != nullptr) [[likely]]
      return status;
  }
  return recv_otherwise(handle, wanted, data, bytes, receive, completion);
}

heddle_status heddle_recv_wait(heddle_worker handle, heddle_receive* receive, int64_t timeout_ns) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (receive == nullptr) return null_argument("recv_wait", "receive");
  if (status_of(receive) != HEDDLE_DONE) return wait_for(*worker, receive, timeout_ns);
  return heddle::base::has_thread_sanitizer() ? learnt(receive) : HEDDLE_DONE;
}

heddle_status heddle_try_recv_cancel(heddle_worker handle, heddle_receive* receive) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (receive == nullptr) return null_argument("recv_cancel", "receive");
  // Not as a queued command: the receive may end, and its memory be freed, before the command runs.
  return look(*worker, [&] { return worker->tagged().cancel(receive); });
}

heddle_status heddle_recv_cancel(heddle_worker worker, heddle_receive* receive) {
  return blocking("heddle_recv_cancel", worker, [&] { return heddle_try_recv_cancel(worker, receive); });
}

heddle_status heddle_try_probe(heddle_worker handle, const heddle_wanted* wanted, heddle_receive* found) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (found == nullptr) return null_argument("probe", "found");
  protocol::Wanted what;
  if (const Status status = read_wanted("probe", *worker, wanted, &what); status != HEDDLE_DONE) return status;
  const Status status = look(*worker, [&] { return worker->tagged().probe(what, found); });
  if (status == HEDDLE_DONE) found->status = status;
  return status;
}

heddle_status heddle_try_claim(heddle_worker handle, const heddle_wanted* wanted, heddle_receive* found) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (found == nullptr) return null_argument("claim", "found");
  protocol::Wanted what;
  if (const Status status = read_wanted("claim", *worker, wanted, &what); status != HEDDLE_DONE) return status;
  return look(*worker, [&] { return worker->tagged().claim(what, found); });
}

heddle_status heddle_try_recv_claimed(heddle_worker handle, void* data, size_t bytes, heddle_receive* claimed,
                                      const heddle_completion* completion) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (claimed == nullptr) return null_argument("recv_claimed", "claimed");
  if (data == nullptr && bytes != 0) return null_argument("recv_claimed", "data");
  store_status(claimed, HEDDLE_POSTED);
  worker::ClaimedStart what{{static_cast<std::byte*>(data), bytes, claimed, {}}};
  return post_receive(*worker, what, completion);
}

heddle_status heddle_recv_claimed(heddle_worker worker, void* data, size_t bytes, heddle_receive* claimed,
                                  const heddle_completion* completion) {
  return blocking("heddle_recv_claimed", worker,
                  [&] { return heddle_try_recv_claimed(worker, data, bytes, claimed, completion); });
}
