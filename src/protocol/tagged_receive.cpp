// Receives: posting, claiming, cancelling; where the data goes, and fetching it.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "engine/core.hpp"
#include "engine/handlers.hpp"
#include "engine/objects.hpp"
#include "protocol/tagged_nodes.hpp"

namespace heddle::protocol {

// ---- the end of a receive -----------------------------------------------------------------------

void Tagged::end_unposted(const ReceiveRequest& request, base::Status status) {
  set_status(request.receive, status);
  request.completion.fire(status);
}

// ---- receiving: data ----------------------------------------------------------------------------

base::Status Tagged::fetch(const ReceiveRequest& request, heddle_peer from, const wire::TaggedMessage& message) {
  wire::Offer head;
  std::memcpy(&head, message.payload.data(), sizeof head);
  const std::uint64_t bytes = std::min(head.bytes, request.bytes);
  const base::Status outcome = bytes == head.bytes ? HEDDLE_DONE : HEDDLE_ERR_TRUNCATED;
  const auto rejected = [&](base::Status status) {
    core_.responder.answer(from, head.token, status);
    return status == HEDDLE_DONE ? outcome : status;
  };
  if (bytes == 0) return rejected(HEDDLE_DONE);
  Fetch* const fetch = new (std::nothrow) Fetch;
  if (fetch == nullptr) return rejected(HEDDLE_ERR_NO_MEMORY);
  fetch->tagged = this;
  fetch->from = from;
  fetch->offer = head;
  fetch->request = request;
  fetch->bytes = bytes;
  fetch->outcome = outcome;
  const base::Status status = may_pull(*fetch) ? pull(fetch) : waiting_ == nullptr ? start_fetch(fetch) : HEDDLE_AGAIN;
  if (status == HEDDLE_POSTED) return status;
  if (status != HEDDLE_AGAIN) return end_fetch(fetch, status);
  (waiting_ == nullptr ? waiting_ : waiting_last_->next) = fetch;
  waiting_last_ = fetch;
  core_.want_advance();
  return HEDDLE_POSTED;
}

// Memory that this process maps is copied at once, and what the transport cannot bring in parts is
// fetched by a get.
bool Tagged::may_pull(Fetch& fetch) {
  if (!pipes_ || !core_.job.transport().direct_to(fetch.from.rank)) return false;
  const base::Status status = import(fetch.offer, fetch.from, &fetch.remote);
  fetch.reached = status == HEDDLE_DONE;
  return fetch.reached ? !fetch.remote.memory.all_direct() : status == HEDDLE_AGAIN;
}

base::Status Tagged::import(const wire::Offer& offer, heddle_peer from, engine::RemoteRegion* to) {
  return engine::reach_lent(core_.objects, {from, offer.region, offer.bytes, std::span(offer.key)}, to);
}

// POSTED: a call of end_fetch follows at its end. AGAIN: not now: if the memory is reached, there
// is no free operation; otherwise the sender's card is not here yet. Any other result: the caller
// must end it.
base::Status Tagged::start_fetch(Fetch* fetch) {
  if (!fetch->reached) {
    const base::Status status = import(fetch->offer, fetch->from, &fetch->remote);
    if (status != HEDDLE_DONE) return status;
    fetch->reached = true;
  }
  const engine::CallersCompletion ended{[](void* arg, heddle_status status) {
                                          auto* const done = static_cast<Fetch*>(arg);
                                          Tagged& tagged = *done->tagged;
                                          const ReceiveRequest request = done->request;
                                          tagged.end(request, tagged.end_fetch(done, status));
                                        },
                                        fetch, nullptr, HEDDLE_WHEN_REMOTE};
  const engine::Pieces pieces(fetch->request.data, &fetch->remote, 0, {fetch->bytes, 1, 0, 0});
  return core_.requester.try_transfer(engine::Kind::get, pieces, fetch->from.rank, ended);
}

// Answers the sender, and returns how the receive has ended.
base::Status Tagged::end_fetch(Fetch* fetch, base::Status status) {
  if (fetch->reached) {
    // Only a sender that is closed takes its memory back before it has been read.
    if (status == HEDDLE_ERR_RANGE || status == HEDDLE_ERR_HANDLE) status = HEDDLE_ERR_CANCELLED;
    core_.job.transport().release(fetch->remote.memory);
  }
  core_.responder.answer(fetch->from, fetch->offer.token, status);
  const base::Status outcome = status == HEDDLE_DONE ? fetch->outcome : status;
  delete fetch;
  return outcome;
}

bool Tagged::advance(bool* left) {
  bool moved = false;
  for (Source** link = &owed_; *link != nullptr;) {
    Source& source = **link;
    if (!tell_owed(source)) {
      link = &source.next;
      continue;
    }
    *link = source.next;
    source.owed = false;
    moved = true;
  }
  if (waiting_ != nullptr && advance_waiting()) moved = true;
  if (sending_ != nullptr && advance_sending()) moved = true;
  if (receiving_ != nullptr && advance_receiving()) moved = true;
  *left = owed_ != nullptr || waiting_ != nullptr || sending_ != nullptr || receiving_ != nullptr;
  return moved;
}

// Fetches that wait for a free operation keep their order. A fetch that waits for its sender's card
// lets those of others pass.
bool Tagged::advance_waiting() {
  bool moved = false;
  Fetch* before = nullptr;
  for (Fetch *fetch = waiting_, *next = nullptr; fetch != nullptr; fetch = next) {
    next = fetch->next;
    const base::Status status = start_fetch(fetch);
    if (status == HEDDLE_AGAIN) {
      if (fetch->reached) break;
      before = fetch;
      continue;
    }
    moved = true;
    (before == nullptr ? waiting_ : before->next) = next;
    if (next == nullptr) waiting_last_ = before;
    if (status == HEDDLE_POSTED) continue;
    const ReceiveRequest request = fetch->request;
    end(request, end_fetch(fetch, status));  // may append others, for the next call
  }
  return moved;
}

// ---- receiving: calls ---------------------------------------------------------------------------

// True: nothing will come from this source any more.
inline bool Tagged::from_failed(protocol::Source source) const {
  return core_.any_failed && source != kAnySource && core_.failed[rank_of(source)];
}

base::Status Tagged::reject_failed(protocol::Source source) {
  return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has failed; nothing will come from it", rank_of(source));
}

[[gnu::always_inline]] inline base::Status Tagged::post_receive(const Wanted& wanted, const ReceiveRequest& request) {
  if (from_failed(wanted.source)) [[unlikely]] {
    request.receive->source = peer_of(wanted.source);
    set_status(request.receive, HEDDLE_ERR_PEER_FAILED);
    return reject_failed(wanted.source);
  }
  set_posted(request.receive);
  mark(request.completion.counter);
  auto* const posted = new (request.receive->library) Posted(wanted, request, this);
  auto* const kept = static_cast<Kept*>(matching_.post(posted));
  if (kept != nullptr) [[unlikely]] {
    return take_kept(posted, kept);
  }
  if (tracer_ != nullptr) [[unlikely]]
    note_receive(*posted);
  return HEDDLE_POSTED;
}

void Tagged::note_receive(const Posted& posted) {
  if (posted.wanted == noted_.wanted && posted.request.bytes == noted_.bytes && noted_.repeat.suffices()) [[likely]] {
    noted_.repeat.note();
  } else {
    note_other_receive(posted);
  }
}

void Tagged::note_other_receive(const Posted& posted) {
  const heddle_peer source = peer_of(posted.wanted.source);
  const std::uint32_t detail = posted.wanted.mask == kWholeTag ? 0 : 1;
  const std::uint64_t who =
      tap::TraceNote::who_of(tap::TraceEvent::receive, source.rank, source.worker, core_.index, detail, 0);
  tap::TraceRing* const ring = tracer_->ring();
  if (ring == nullptr) return;
  ring->add_alike({posted.wanted.tag, posted.request.bytes, who}, ring->time_of_many());
  noted_.wanted = posted.wanted;
  noted_.bytes = posted.request.bytes;
  noted_.repeat.begin(*ring);
}

// Its message was here before.
[[gnu::noinline]] base::Status Tagged::take_kept(Posted* posted, Kept* kept) {
  if (tracer_ != nullptr) note_receive(*posted);
  posted->owner = nullptr;
  const ReceiveRequest request = posted->request;  // with the status it is the program's again
  return deliver_kept(request, kept);
}

base::Status Tagged::receive(const Wanted& wanted, const ReceiveRequest& request) {
  return post_receive(wanted, request);
}

base::Status Tagged::receive_from(const heddle_wanted& wanted, void* data, std::size_t bytes, heddle_receive* receive) {
  return post_receive({wanted.tag, wanted.mask, source_of(wanted.source)},
                      {static_cast<std::byte*>(data), bytes, receive, engine::kNoCompletion});
}

// The counter is marked.
base::Status Tagged::deliver_kept(const ReceiveRequest& request, Kept* kept) {
  if (tracer_ != nullptr) note(tap::TraceEvent::matched, kept->from(), kept->tag, kept->length, true);
  base::Status status = kept->ended;
  if (status == HEDDLE_DONE) [[likely]] {
    status = deliver(request, kept->from(), kept->message());
  } else {
    tell(request.receive, kept->from(), kept->tag, kept->length);
    status = base::fail(
        status, "of the message of %llu bytes only %llu have come: rank %u has failed, or has closed its worker",
        static_cast<unsigned long long>(kept->length), static_cast<unsigned long long>(kept->payload_bytes),
        kept->from().rank);
  }
  free_kept(kept);
  if (status == HEDDLE_POSTED) return status;
  count_end(status);
  const std::uint64_t length = request.receive->bytes;
  set_status(request.receive, status);
  unmark(request.completion.counter);
  if (status == HEDDLE_ERR_TRUNCATED) {
    return base::fail(status, "the message has %llu bytes, the room for it %llu; probe tells the length before",
                      static_cast<unsigned long long>(length), static_cast<unsigned long long>(request.bytes));
  }
  return status;
}

base::Status Tagged::receive_claimed(const ReceiveRequest& request) {
  Posted& posted = posted_of(request.receive);
  if (posted.owner != this || posted.claimed == nullptr) {
    set_status(request.receive, HEDDLE_ERR_ARGUMENT);
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "no message was claimed with this heddle_receive on this worker, or it was received already");
  }
  Kept* const kept = std::exchange(posted.claimed, nullptr);
  posted.owner = nullptr;
  remove_claimed(kept);
  if (request.data == nullptr) {
    reject(kept, HEDDLE_DONE);
    set_status(request.receive, HEDDLE_DONE);
    return HEDDLE_DONE;
  }
  mark(request.completion.counter);
  set_posted(request.receive);
  return deliver_kept(request, kept);
}

base::Status Tagged::cancel(heddle_receive* receive) {
  Posted& posted = posted_of(receive);
  if (posted.owner != this || !posted.stored()) return HEDDLE_DONE;
  matching_.cancel(&posted);
  posted.owner = nullptr;
  receive->source = peer_of(posted.wanted.source);
  const engine::Inside inside(core_);  // its completion may not wait
  end(ReceiveRequest(posted.request), HEDDLE_ERR_CANCELLED);
  core_.note_moved();
  core_.job.transport().ring();  // another thread may sleep until it ends
  return HEDDLE_DONE;
}

// A program that asks until there is a message would otherwise ask for ever.
base::Status Tagged::not_found(const Wanted& wanted) const {
  return from_failed(wanted.source) ? reject_failed(wanted.source) : HEDDLE_AGAIN;
}

base::Status Tagged::probe(const Wanted& wanted, heddle_receive* found) {
  const auto* kept = static_cast<const Kept*>(matching_.probe(wanted));
  if (kept == nullptr) return not_found(wanted);
  tell(found, kept->from(), kept->tag, kept->length);
  return HEDDLE_DONE;
}

base::Status Tagged::claim(const Wanted& wanted, heddle_receive* found) {
  auto* kept = static_cast<Kept*>(matching_.probe(wanted));
  if (kept == nullptr) return not_found(wanted);
  matching_.take(kept);
  kept->earlier = nullptr;
  kept->later = claimed_;
  if (claimed_ != nullptr) claimed_->earlier = kept;
  claimed_ = kept;
  tell(found, kept->from(), kept->tag, kept->length);
  set_status(found, HEDDLE_DONE);
  Posted* const posted = new (found->library) Posted(wanted, {}, this);
  posted->claimed = kept;
  return HEDDLE_DONE;
}

void Tagged::remove_claimed(Kept* kept) {
  if (kept->earlier != nullptr) {
    kept->earlier->later = kept->later;
  } else {
    claimed_ = static_cast<Kept*>(kept->later);
  }
  if (kept->later != nullptr) kept->later->earlier = kept->earlier;
}

}  // namespace heddle::protocol
