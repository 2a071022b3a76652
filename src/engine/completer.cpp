// The completer: what the transport reports becomes finished operations, handlers and answers.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/fence.hpp"
#include "engine/handler.hpp"
#include "engine/worker.hpp"
#include "protocol/aggregation.hpp"

namespace heddle::engine {

using transport::Event;

namespace {

// Polls between looks at whether workers that owe an answer still live.
constexpr std::uint64_t kClosedPeriod = 1024;
constexpr std::uint32_t kClosedRests = 32;  // or so many rests, with a poll before each
// Operations that one call of progress looks at when a peer has died or may have closed: with all of a large pool the gate would be
// held for as long.
constexpr std::size_t kPortion = 1024;

// A peer's first message makes the transport allocate. If there is no memory it is met again by the next poll.
std::size_t poll_guarded(transport::TransportWorker& transport, std::span<transport::Completion> arrivals) {
  try {
    return transport.poll(arrivals);
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

}  // namespace

// The common arrival: a small active message, well formed, with a handler. False: handle() must see what it is.
inline bool Worker::deliver(const transport::Completion& completion) {
  if (completion.event != Event::message || wire::kind_of(completion.immediate) != wire::Kind::active_message ||
      handle_.id == 0) [[unlikely]] {
    return false;
  }
  const auto message = wire::decode_am(completion.immediate, {completion.data, completion.bytes});
  if (!message) [[unlikely]]
    return false;
  const Handler handler = context_.handler(message->handler);
  if (handler.fn == nullptr) [[unlikely]]
    return false;
  ++stats_.received;
  const heddle_am_arrival arrival{handle_,
                                  {completion.rank, completion.worker},
                                  message->handler,
                                  message->header_bytes,
                                  message->header,
                                  message->payload,
                                  message->payload_bytes};
  call(handler.fn, arrival, handler.arg);
  return true;
}

int Worker::progress_inside() {
  if (inside_of() != nullptr) [[unlikely]] {
    return refuse_progress();
  }
  const Inside inside(*this);
  ++stats_.polls;
  std::size_t events = poll_guarded(*transport_, arrivals_);
  for (std::size_t i = 0; i < events; ++i) {
    const transport::Completion& arrival = arrivals_[i];
    if (deliver(arrival)) [[likely]]
      continue;
    if (arrival.event == Event::message && wire::kind_of(arrival.immediate) == wire::Kind::tagged) {
      tagged_.arrived({arrival.rank, arrival.worker}, arrival.immediate, {arrival.data, arrival.bytes});
    } else {
      handle(arrival);
    }
  }
  if (!pending_.empty() || !responder_.idle()) [[unlikely]] {
    events += advance_pending();
  }
  if (failure_epoch_.load(std::memory_order_relaxed) != seen_epoch_) [[unlikely]] {
    static_cast<void>(note_failures());  // if that is not all, the next call goes on
    ++events;
  }
  if (outstanding_total_ > 0 && (closed_next_ != 0 || stats_.polls % kClosedPeriod == 0)) [[unlikely]] {
    if (note_closed()) ++events;
  }
  if (events > 0) note_moved();
  return static_cast<int>(events);
}

// settle(), of an operation of which only the end is left, and that has gone well.
inline void Worker::end_plain(Operation& operation) {
  const bool marked = operation.marked;
  operation.fired = true;
  operation.unfinished = 0;
  if (operation.completion.observed()) operation.completion.fire(HEDDLE_DONE);
  --outstanding_total_;
  --outstanding_[operation.rank];
  operations_.give_back(&operation);
  if (marked && context_.retired()) [[unlikely]] {
    context_.reclaim();
  }
}

void Worker::handle(const transport::Completion& completion) {
  if (completion.event == Event::message) return arrived(completion);
  if (OperationPool::role(completion.token) == Role::untold) {
    return end_untold(Untold::of(completion.token), completion.status);
  }
  Operation* operation = operations_.find(completion.token);
  if (completion.token == 0 || operation == nullptr) return;  // a carrier that outlived its operation
  const bool well = completion.event == Event::done && completion.status == HEDDLE_DONE;
  if (well && OperationPool::role(completion.token) == Role::command && operation->ends_next()) [[likely]] {
    return end_plain(*operation);
  }
  if (completion.event == Event::source_free || OperationPool::role(completion.token) == Role::carrier) {
    if (operation->unfreed > 0) --operation->unfreed;
    // A carrier that did not arrive is not answered; nor are those sent with it, since they went the same way.
    if (completion.status != HEDDLE_DONE) return end_served(*operation, completion.status);
    return conclude(*operation);
  }
  // `done` without a source_free before it (a failure): the source is free as well.
  if (completion.status != HEDDLE_DONE) operation->unfreed = 0;
  settle(*operation, completion.status, kManyRanks);  // the transport does not say of which piece
}

void Worker::end_untold(Untold untold, base::Status status) {
  if (outstanding_[untold.rank] == 0) return;  // cancelled before
  --outstanding_total_;
  --outstanding_[untold.rank];
  if (status != HEDDLE_DONE) [[unlikely]] {
    ++stats_.failed;
    keep_error(untold.rank, status);
  }
  if (untold.memory && operations_.marks().leave_untold() && context_.retired()) [[unlikely]] {
    context_.reclaim();
  }
}

void Worker::arrived(const transport::Completion& completion) {
  const heddle_peer source{completion.rank, completion.worker};
  const std::span packet(completion.data, completion.bytes);
  switch (wire::kind_of(completion.immediate)) {
    case wire::Kind::active_message:
      if (const auto message = wire::decode_am(completion.immediate, packet)) [[likely]] {
        return run_handler(source, *message, message->payload_bytes);
      }
      break;
    case wire::Kind::fragment:
      if (completion.immediate == wire::kAmOffer) {
        if (const auto offer = wire::decode_am_offer(packet)) return am_rendezvous_.arrived(source, *offer);
        break;
      }
      if (completion.immediate == wire::kExtension) {
        if (extension_ != nullptr && extension_->arrived(source, packet)) return;
        break;
      }
      if (const auto fragment = wire::decode_fragment(packet)) return arrived_fragment(source, *fragment);
      break;
    case wire::Kind::request:
      if (const auto request = wire::decode_request(packet)) return responder_.serve(source, *request);
      break;
    case wire::Kind::reply:
      if (const auto reply = wire::decode_reply(packet)) return arrived_reply(source, *reply);
      break;
    case wire::Kind::tagged:
      return tagged_.arrived(source, completion.immediate, packet);
    case wire::Kind::packet:
      return arrived_packet(completion);
    case wire::Kind::user:
      return arrived_user(source, completion);
    case wire::Kind::invalid:
      break;
  }
  drop(source, "it is not well formed");
}

// Each as if it had come alone.
void Worker::arrived_packet(const transport::Completion& packet) {
  const std::span bytes(packet.data, packet.bytes);
  if (!protocol::well_formed_packet(bytes)) return drop({packet.rank, packet.worker}, "it is no well-formed packet");
  transport::Completion one = packet;
  protocol::PacketReader reader(bytes);
  while (const auto message = reader.next()) {
    one.immediate = message->immediate;
    one.data = message->bytes.data();
    one.bytes = static_cast<std::uint32_t>(message->bytes.size());
    if (!deliver(one)) arrived(one);
  }
}

void Worker::run_handler(heddle_peer source, const wire::ActiveMessage& message, std::uint64_t payload_bytes) {
  const Handler handler = context_.handler(message.handler);
  if (handler.fn == nullptr) [[unlikely]] {
    std::array<char, 64> why;
    std::snprintf(why.data(), why.size(), "no handler is registered for its number, %u", message.handler);
    return drop(source, why.data());
  }
  ++stats_.received;
  if (handle_.id == 0) [[unlikely]] {
    handle_.id = context_.handle_of(this);
  }
  const heddle_am_arrival arrival{handle_,        source,          message.handler, message.header_bytes,
                                  message.header, message.payload, payload_bytes};
  call(handler.fn, arrival, handler.arg);
}

void Worker::arrived_fragment(heddle_peer source, const wire::Fragment& fragment) {
  if (failed_[source.rank]) return drop(source, "its sender has failed, so it would never be whole");
  protocol::Reassembly::Message whole;
  switch (reassembly_.add(source, fragment, &whole)) {
    case protocol::Reassembly::Outcome::incomplete:
      return;
    case protocol::Reassembly::Outcome::malformed:
      return drop(source, "it is no part of its message, or was here before");
    case protocol::Reassembly::Outcome::refused:
      drop(source, "its parts exceed HEDDLE_AM_REASSEMBLY_BYTES");
      return responder_.answer(source, whole.token, HEDDLE_ERR_NO_MEMORY);
    case protocol::Reassembly::Outcome::complete:
      if (whole.handler >= HEDDLE_AM_USER) return store_large(source, &whole, Tasks::Room::asked);
      responder_.answer(source, whole.token, HEDDLE_DONE);
      return run_handler(source, {whole.handler, whole.header_bytes, whole.header.data(), whole.payload.get(), 0},
                         whole.total_bytes);
  }
}

void Worker::arrived_reply(heddle_peer source, const wire::Reply& reply) {
  Operation* operation = operations_.find(reply.head.token);
  if (operation == nullptr || OperationPool::role(reply.head.token) != Role::reply || operation->served == 0 ||
      operation->served_rank != source.rank) {
    // What it was to answer has ended with its sender: it was in the ring already when the death became known.
    if (context_.failed(source.rank)) {
      ++stats_.dropped;
      return;
    }
    return drop(source, "it answers nothing that was asked");
  }
  if (!reply.payload.empty()) {
    const std::uint64_t bytes = reply.payload.size();
    if (operation->kind != Kind::get || reply.head.offset > operation->window_bytes ||
        bytes > operation->window_bytes - reply.head.offset || bytes > operation->window_left) {
      return drop(source, "it answers a get with data outside what was asked");
    }
    std::memcpy(operation->window + reply.head.offset, reply.payload.data(), bytes);
    operation->window_left -= bytes;
  }
  // Parts of a get may overtake each other: it is finished when all its bytes are here, or with an error.
  const bool finished = operation->kind == Kind::get && reply.head.status == HEDDLE_DONE ? operation->window_left == 0
                                                                                         : reply.head.last == 1;
  if (!finished) return;
  if (operation->kind == Kind::atomic && operation->result != nullptr && reply.head.status == HEDDLE_DONE) {
    std::memcpy(operation->result, &reply.head.value, wire::atomic_bytes(operation->atomic_op));
  }
  --operation->served;
  settle(*operation, static_cast<base::Status>(reply.head.status), source.rank);
}

void Worker::drop(heddle_peer source, const char* why) {
  ++stats_.dropped;
  context_.report_drop(index_, source, why);
}

void Worker::settle(Operation& operation, base::Status status, std::uint32_t rank) {
  if (operation.unfinished > 0) --operation.unfinished;
  operation.fail(status, rank);
  conclude(operation);
}

void Worker::conclude(Operation& operation) {
  // A carrier may still be on its way when its request was answered with an error: the source is in use till then.
  const bool ended = operation.posted && operation.unfinished == 0 && operation.unfreed == 0;
  const bool local = operation.completion.when == HEDDLE_WHEN_LOCAL && operation.posted && operation.unfreed == 0;
  if (!operation.fired && (ended || local)) {
    operation.fired = true;
    if (operation.status != HEDDLE_DONE) {
      ++stats_.failed;
      if (operation.kind == Kind::offer) tagged_.abandon(operation);  // the source is the program's from here on
    }
    if (operation.completion.observed()) {
      operation.completion.fire(operation.status);
    } else if (operation.status != HEDDLE_DONE) {
      operation.rank == kManyRanks ? keep_error(operation.error_rank, operation.status, operation.pieces)
                                   : keep_error(operation.rank, operation.status);
    }
  }
  if (!ended || operation.pending) return;
  if (operation.charged && operation.status != HEDDLE_DONE) [[unlikely]] {
    credits_.give_back(operation.target, charge(operation.header_bytes, operation.payload_bytes));
  }
  finish(operation);
}

void Worker::end_queued(base::Status status, const Completion& completion, std::uint32_t rank, const Pieces& pieces) {
  if (status > HEDDLE_DONE) return;  // POSTED, AGAIN
  if (status != HEDDLE_DONE) ++stats_.failed;
  if (completion.observed()) {
    completion.fire(status);
  } else if (status != HEDDLE_DONE) {
    rank == kManyRanks ? keep_error(rank, status, pieces) : keep_error(rank, status);
  }
}

void Worker::keep_error(std::uint32_t rank, base::Status status) {
  has_unreported_ = true;
  if (unreported_[rank] == HEDDLE_DONE) unreported_[rank] = status;
}

// Of a list over several ranks. A flush must not pass over a part that failed, nor over one that was not begun since another had
// failed. Where nobody knows which part failed each rank of the list is told; and where the list names a region that is no
// more, every rank.
void Worker::keep_error(std::uint32_t rank, base::Status status, const Pieces& pieces) {
  const auto keep = [&](std::uint32_t of) { keep_error(of, status); };
  if (rank != kManyRanks) keep(rank);
  if (pieces.each_rank(rank == kManyRanks ? Pieces::Which::all : Pieces::Which::left, keep)) return;
  for (std::uint32_t of = 0; of < size(); ++of) keep(of);
}

base::Status Worker::take_error(std::uint32_t rank) {
  const base::Status status = unreported_[rank];
  unreported_[rank] = HEDDLE_DONE;
  if (status == HEDDLE_DONE) return status;
  const bool gone = status == HEDDLE_ERR_RANGE || status == HEDDLE_ERR_HANDLE;  // the range was checked when posted
  const char* reason = gone ? ": the owner has released the region or unmapped its memory" : "";
  return base::fail(status, "an operation to rank %u that had no completion ended with %s%s", rank,
                    heddle_status_name(status), reason);
}

base::Status Worker::flush_inside(std::uint32_t rank) {
  if (outstanding_[rank] + outstanding_many_ > 0) return HEDDLE_AGAIN;
  base::full_fence();  // direct stores are visible to everybody before anything that follows
  if (has_unreported_) [[unlikely]] {
    if (const base::Status status = take_error(rank); status != HEDDLE_DONE) return status;
  }
  if (failure_epoch_.load(std::memory_order_relaxed) != 0 && context_.failed(rank)) [[unlikely]] {
    return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has failed; what was put to it may be lost", rank);
  }
  return HEDDLE_DONE;
}

base::Status Worker::quiet_inside() {
  if (outstanding_total_ > 0) return HEDDLE_AGAIN;
  base::full_fence();
  if (!has_unreported_) [[likely]] {
    return HEDDLE_DONE;
  }
  has_unreported_ = false;
  base::Status first = HEDDLE_DONE;
  for (std::uint32_t rank = static_cast<std::uint32_t>(unreported_.size()); rank-- > 0;) {
    if (const base::Status status = take_error(rank); status != HEDDLE_DONE)
      first = status;  // the lowest rank's, and its text
  }
  return first;
}

// In portions: what is posted from now on to a rank that has failed is refused at once, so that each operation needs one look.
// False: there is more to do.
bool Worker::note_failures() {
  const std::uint64_t epoch = failure_epoch_.load(std::memory_order_acquire);
  if (epoch != noted_epoch_) {
    noted_epoch_ = epoch;
    context_.note_failures();
    bool more = false;
    for (std::uint32_t rank = 0; rank < failed_.size(); ++rank) {
      if (failed_[rank] || !context_.failed(rank)) continue;
      failed_[rank] = true;
      more = true;
      transport_->peer_failed(rank);
      responder_.forget(rank);
      reassembly_.forget(rank);
    }
    if (more) {
      failed_left_ = operations_.all().size();
      tagged_.note_failures();
      am_rendezvous_.note_failures();
      if (extension_ != nullptr) extension_->note_failures();
    }
  }
  for (std::size_t i = 0; failed_left_ > 0 && i < kPortion; ++i) {
    Operation& operation = operations_.all()[--failed_left_];
    if (operation.live && operation.served > 0 && failed_[operation.served_rank]) {
      end_served(operation, HEDDLE_ERR_PEER_FAILED);
    }
  }
  if (failed_left_ > 0) return false;
  seen_epoch_ = noted_epoch_;
  return true;
}

// A worker that was closed answers nothing more. Its last answers may still be on their way, so it is believed only when it was
// closed at two looks with many polls between them. A look at all operations goes on over several calls, one portion each.
bool Worker::note_closed() {
  std::vector<Operation>& all = operations_.all();
  if (closed_next_ == 0 && !begin_look()) return false;
  std::size_t at = closed_next_ - 1;
  const std::size_t end = std::min(at + kPortion, all.size());
  bool ended = false;
  for (; at < end; ++at) {
    Operation& operation = all[at];
    if (!operation.live || operation.served == 0) continue;
    const bool closed = transport_->closed({operation.served_rank, operation.served_worker});
    if (closed && operation.seen_closed) {
      end_served(operation, HEDDLE_ERR_CANCELLED);
      ended = true;
    }
    operation.seen_closed = closed;
  }
  closed_next_ = at == all.size() ? 0 : at + 1;
  return ended;
}

// Who rests between polls takes long for many of them. It has polled in vain for a while before each rest; but several threads may rest
// after one poll.
void Worker::note_rest() {
  if (outstanding_total_ == 0 || closed_next_ != 0 || ++rests_ < kClosedRests) return;
  static_cast<void>(begin_look());
}

// False: there have been few polls since the last one began.
bool Worker::begin_look() {
  if (stats_.polls - closed_polls_ < kClosedRests) return false;
  closed_next_ = 1;
  closed_polls_ = stats_.polls;
  rests_ = 0;
  return true;
}

// The requests of this operation that wait for answers will not get any.
void Worker::end_served(Operation& operation, base::Status status) {
  operation.unfinished -= operation.served;
  operation.served = 0;
  operation.unfreed = 0;
  operation.fail(status, operation.served_rank);
  if (operation.kind == Kind::message) operation.posted = true;  // no more parts
  conclude(operation);
}

// What is still counted has no operation.
void Worker::cancel_untold() {
  stats_.failed += outstanding_total_;
  outstanding_total_ = 0;
  std::fill(outstanding_.begin(), outstanding_.end(), 0U);
  operations_.marks().forget_untold();
}

void Worker::cancel_all(base::Status status) {
  const Inside inside(*this);  // callbacks run: they may not close or wait
  if (extension_ != nullptr) extension_->end();
  pending_.clear();
  chores_.pending = false;
  am_rendezvous_.cancel_waiting();  // so that what ends below begins nothing new
  for (Operation& operation : operations_.all()) {
    if (!operation.live) continue;
    operation.pending = false;
    operation.posted = true;
    operation.unfinished = 0;
    operation.unfreed = 0;
    operation.fail(status, kManyRanks);
    conclude(operation);
  }
  cancel_untold();
  tagged_.cancel_all(status);
}

}  // namespace heddle::engine
