#include "engine/completer.hpp"

#include <algorithm>
#include <new>

#include "base/fence.hpp"
#include "engine/handlers.hpp"

namespace heddle::engine {

using transport::Event;

namespace {

// Polls between looks at whether workers that owe an answer still live.
constexpr std::uint64_t kClosedPeriod = 1024;
constexpr std::uint32_t kClosedRests = 32;  // or so many rests, with a poll before each
// Operations that one call of progress looks at when a peer has died or may have closed: with all
// of a large pool the gate would be held for as long.
constexpr std::size_t kPortion = 1024;

// A peer's first message makes the transport allocate. If there is no memory it is met again by the
// next poll.
std::size_t poll_guarded(transport::TransportWorker& transport, std::span<transport::Completion> arrivals) {
  try {
    return transport.poll(arrivals);
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

}  // namespace

void Completer::add(std::uint32_t row, Protocol& protocol) {
  if (std::find(protocols_.begin(), protocols_.end(), &protocol) == protocols_.end()) protocols_.push_back(&protocol);
  rows_[row] = &protocol;
}

void Completer::arrived(const transport::Completion& completion) {
  const heddle_peer source{completion.rank, completion.worker};
  Protocol* const protocol = rows_[wire::row_of(completion.immediate)];
  if (protocol != nullptr && protocol->arrived(source, completion.immediate, {completion.data, completion.bytes})) {
    return;
  }
  core_.drop(source, "it is not well formed");
}

// How many of the protocol at the front took them at once.
inline std::size_t Completer::deliver(std::span<const transport::Completion> arrivals) {
  Protocol* const protocol = rows_[wire::row_of(wire::kind_of(arrivals.front().immediate))];
  return protocol == nullptr ? 0 : protocol->deliver(arrivals);
}

inline void Completer::take_in(std::span<const transport::Completion> polled) {
  while (!polled.empty()) {
    std::size_t taken = 1;
    if (polled.front().event != Event::message) {
      completed(polled.front());
    } else if (const std::size_t delivered = deliver(polled); delivered != 0) [[likely]] {
      taken = delivered;
    } else {
      arrived(polled.front());
    }
    polled = polled.subspan(taken);
  }
}

// Most polls of a thread that waits find nothing. That path takes few registers and no call but
// poll().
int Completer::progress() {
  if (inside_of() != nullptr) [[unlikely]] {
    return reject_progress();
  }
  ++core_.stats.polls;
  const std::size_t events = poll_guarded(core_.transport, arrivals_);
  return events != 0 || has_work() ? advance(events) : 0;
}

inline bool Completer::has_work() const {
  if (!core_.operations.pending().empty() || !core_.responder.idle()) [[unlikely]]
    return true;
  if (!knows_failures()) [[unlikely]]
    return true;
  return core_.operations.under_way() > 0 && looks_for_closed();
}

// Called after a poll that found so many events.
[[gnu::noinline]] int Completer::advance(std::size_t events) {
  const Inside inside(core_);
  if (events != 0) take_in(std::span(arrivals_).first(events));
  if (!core_.operations.pending().empty() || !core_.responder.idle()) [[unlikely]] {
    events += advance_pending();
  }
  if (!knows_failures()) [[unlikely]] {
    if (note_failures()) ++events;  // if that is not all, the next call goes on
  }
  if (core_.operations.under_way() > 0 && looks_for_closed()) [[unlikely]] {
    if (note_closed()) ++events;
  }
  // Comes before the count of moves changes: for threads that then find their operation done, by
  // Worker::until() or inside.
  if (core_.is_told) [[unlikely]]
    tell_progress(events);
  if (events > 0) core_.note_moved();
  return static_cast<int>(events);
}

[[gnu::noinline]] void Completer::tell_progress(std::size_t events) {
  if (events == 0) return;
  base::show_release(core_.order());
  if (core_.tracer == nullptr) return;
  tap::TraceRecord record{};
  record.id = events;
  record.worker = static_cast<std::uint8_t>(core_.index);
  record.event = tap::TraceEvent::progressed;
  core_.tracer->note(record);
}

inline bool Completer::looks_for_closed() const {
  return closed_next_ != 0 || core_.stats.polls % kClosedPeriod == 0;
}

inline void Completer::completed(const transport::Completion& completion) {
  const bool done = completion.event == Event::done && completion.status == HEDDLE_DONE;
  if (!done || !core_.operations.complete_plain(completion.token)) completed_otherwise(completion);
}

void Completer::completed_otherwise(const transport::Completion& completion) {
  if (OperationPool::role(completion.token) == Role::unnotified) {
    const std::uint32_t count = completion.event == Event::several ? completion.bytes : 1;
    return core_.operations.end_unnotified(Unnotified::of(completion.token), completion.status, count);
  }
  if (completion.event == Event::several) {  // of one operation
    transport::Completion one = completion;
    one.event = Event::done;
    for (std::uint32_t i = 0; i < completion.bytes; ++i) completed(one);
    return;
  }
  Operation* operation = core_.operations.find(completion.token);
  // a carrier that outlived its operation
  if (completion.token == 0 || operation == nullptr) return;
  if (completion.event == Event::source_free || OperationPool::role(completion.token) == Role::carrier) {
    if (operation->unfreed > 0) --operation->unfreed;
    // A carrier that did not arrive is not answered; nor are those sent with it, since they went
    // the same way.
    if (completion.status != HEDDLE_DONE) return core_.operations.end_served(*operation, completion.status);
    return core_.operations.notify_and_free(*operation);
  }
  // `done` without a source_free before it (a failure): the source is free as well.
  if (completion.status != HEDDLE_DONE) operation->unfreed = 0;
  // the transport does not say of which piece
  core_.operations.complete(*operation, completion.status, kManyRanks);
}

std::size_t Completer::advance_pending() {
  std::size_t moved = core_.responder.flush();
  OperationQueue& pending = core_.operations.pending();
  // Each operation gets its turn once: one whose peer is busy must not hold up the others.
  for (std::size_t left = pending.size(); left > 0; --left) {
    Operation* operation = pending.pop_front();
    if (operation->kind == Kind::protocol_work) {
      if (advance_protocols()) ++moved;
      continue;
    }
    if (operation->posted || core_.requester.advance(*operation)) ++moved;
    if (operation->posted) {
      operation->pending = false;
      core_.operations.notify_and_free(*operation);
    } else {
      pending.push_back(operation);
    }
  }
  return moved;
}

bool Completer::advance_protocols() {
  core_.protocol_work.pending = false;
  bool moved = false;
  bool more = false;
  for (Protocol* protocol : protocols_) moved = protocol->advance(&more) || moved;
  if (more) core_.want_advance();
  return moved;
}

// True: some have failed since the last time.
bool Completer::note_failed_ranks() {
  core_.objects.note_failures();
  bool more = false;
  for (std::uint32_t rank = 0; rank < core_.failed.size(); ++rank) {
    if (core_.failed[rank] || !core_.job.failed(rank)) continue;
    core_.failed[rank] = core_.any_failed = true;
    more = true;
    core_.transport.peer_failed(rank);
    core_.responder.forget(rank);
  }
  if (!more) return false;
  failed_left_ = core_.operations.slots().size();
  for (Protocol* protocol : protocols_) protocol->note_failures();
  return true;
}

// Works in portions: commands posted from now on to a failed rank are rejected at once, so each
// operation needs only one look. False: no rank has failed; an inspection only asks for the state
// of this rank.
bool Completer::note_failures() {
  const std::uint64_t epoch = core_.failure_epoch.load(std::memory_order_acquire);
  bool failed = failed_left_ > 0;
  if (epoch != noted_epoch_) {
    noted_epoch_ = epoch;
    failed = note_failed_ranks() || failed;
    if (core_.attentive != nullptr) core_.attentive->called();
  }
  for (std::size_t i = 0; failed_left_ > 0 && i < kPortion; ++i) {
    Operation& operation = core_.operations.slots()[--failed_left_];
    if (operation.live && operation.served > 0 && core_.failed[operation.served_rank]) {
      core_.operations.end_served(operation, HEDDLE_ERR_PEER_FAILED);
    }
  }
  if (failed_left_ == 0) seen_epoch_ = noted_epoch_;
  return failed;
}

// A worker that was closed answers nothing more. Its last answers may still be on their way, so it
// is believed only when it was closed at two looks with many polls between them. A look at all
// operations goes on over several calls, one portion each.
bool Completer::note_closed() {
  std::vector<Operation>& all = core_.operations.slots();
  if (closed_next_ == 0 && !begin_look()) return false;
  std::size_t at = closed_next_ - 1;
  const std::size_t end = std::min(at + kPortion, all.size());
  bool ended = false;
  for (; at < end; ++at) {
    Operation& operation = all[at];
    if (!operation.live || operation.served == 0) continue;
    const bool closed = core_.transport.closed({operation.served_rank, operation.served_worker});
    if (closed && operation.seen_closed) {
      core_.operations.end_served(operation, HEDDLE_ERR_CANCELLED);
      ended = true;
    } else {
      operation.seen_closed = closed;
    }
  }
  closed_next_ = at == all.size() ? 0 : at + 1;
  return ended;
}

// A thread that rests between polls takes long for many polls, so rests count as well. It has
// polled in vain for a while before each rest; but several threads may rest after one poll.
void Completer::note_rest() {
  if (core_.operations.under_way() == 0 || closed_next_ != 0 || ++rests_ < kClosedRests) return;
  static_cast<void>(begin_look());
}

// False: there have been few polls since the last one began.
bool Completer::begin_look() {
  if (core_.stats.polls - closed_polls_ < kClosedRests) return false;
  closed_next_ = 1;
  closed_polls_ = core_.stats.polls;
  rests_ = 0;
  return true;
}

void Completer::cancel_all(base::Status status) {
  const Inside inside(core_);  // callbacks run: they may not close or wait
  for (Protocol* protocol : protocols_) protocol->begin_cancel();
  core_.protocol_work.pending = false;
  core_.operations.cancel_all(status);
  for (Protocol* protocol : protocols_) protocol->cancel(status);
}

}  // namespace heddle::engine
