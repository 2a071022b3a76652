#include "protocol/tagged.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/copy.hpp"
#include "engine/core.hpp"
#include "protocol/tagged_nodes.hpp"

namespace heddle::protocol {

namespace {

constexpr std::uint32_t kMostSpares = 1024;  // blocks of the smallest size kept for reuse

// Peers must not be able to choose collisions in the tables. The address of `here` is the next best
// secret.
std::uint64_t secret(const void* here) {
  std::uint64_t value = 0;
  if (getrandom(&value, sizeof value, GRND_NONBLOCK) != sizeof value) {
    value = reinterpret_cast<std::uintptr_t>(here);
  }
  return value;
}

}  // namespace

Tagged::Tagged(engine::Core& core)
    : core_(core),
      transport_(core.transport),
      tracer_(core.tracer),
      ordered_(core.capabilities.ordered_messages),
      max_workers_(core.max_workers),
      window_(core.job.environment().config.number(base::Var::tag_credit_bytes)),
      limits_(tagged_limits(core.capabilities, core.job.environment().config, false)),
      piped_limits_(tagged_limits(core.capabilities, core.job.environment().config, true)),
      pipes_(has_pipes(core.capabilities)),
      credits_(std::size_t{core.job.size()} * max_workers_),
      sources_(std::size_t{core.job.size()} * max_workers_),
      matching_({secret(&core), 1U << 20}) {
  static_assert(sizeof(Posted) <= sizeof(heddle_receive::library) && alignof(Posted) <= alignof(std::uint64_t));
  static_assert(sizeof(Kept) <= wire::kTaggedNode);
}

Tagged::~Tagged() {
  while (last_out_ != nullptr) delete std::exchange(last_out_, last_out_->made_before);
  while (last_in_ != nullptr) delete std::exchange(last_in_, last_in_->made_before);
  while (spare_ != nullptr) ::operator delete(std::exchange(spare_, static_cast<Kept*>(spare_->later)));
}

// ---- sending ------------------------------------------------------------------------------------

base::Status Tagged::no_room(heddle_peer target) {
  if (core_.job.failed(target.rank)) {
    return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has failed; nobody will receive the message", target.rank);
  }
  if (transport_.closed({target.rank, target.worker})) {
    return base::fail(HEDDLE_ERR_CANCELLED, "worker %u of rank %u was closed; nobody will receive the message",
                      target.worker, target.rank);
  }
  if (tracer_ != nullptr) core_.note_held("credit for tagged messages", target, 0);
  return HEDDLE_AGAIN;
}

base::Status Tagged::no_memory() {
  return base::fail(HEDDLE_ERR_NO_MEMORY, "memory is exhausted; the message was not sent");
}

// False: memory is exhausted.
bool Tagged::make_offered() {
  if (offered_ == nullptr) offered_.reset(new (std::nothrow) Offered[core_.operations.slots().size()]);
  return offered_ != nullptr;
}

base::Status Tagged::offer(const SendRequest& request, const engine::CallersCompletion& completion) {
  if (!make_offered() || (pipes_ && pipe_to(request.target) == nullptr)) return no_memory();
  engine::Operation* operation = core_.operations.begin(engine::Kind::protocol, request.target.rank, completion);
  if (operation == nullptr) return HEDDLE_AGAIN;
  auto lent = core_.objects.lend(request.target.rank, const_cast<void*>(request.data), request.bytes);
  if (!lent) {
    core_.operations.finish(*operation);
    return lent.status();
  }
  Offered& offered = offered_[core_.operations.index(*operation)];
  offered = {};
  offered.memory = *lent;
  offered.tag = request.tag;
  operation->owner = this;
  operation->target = request.target;
  wire::Offer head{
      request.tag, request.bytes, core_.operations.token(*operation, engine::Role::reply), lent->number, {}};
  static_assert(sizeof head.key == transport::kKeyBytes && sizeof head <= transport::kMaxHeaderBytes);
  if (lent->number != 0) {
    const transport::MemoryKey key = core_.job.transport().key_for(request.target.rank, lent->memory.key);
    std::memcpy(head.key, key.bytes.data(), sizeof head.key);
  }
  if (const base::Status status = post_offer(*operation, head); status != HEDDLE_POSTED) {
    core_.operations.finish(*operation);
    return status;
  }
  ++credit(request.target).sequence;
  note_offered(*operation, request);
  return HEDDLE_POSTED;
}

base::Status Tagged::post_offer(engine::Operation& operation, const wire::Offer& head) {
  transport::Command command;
  command.rank = operation.target.rank;
  command.worker = operation.target.worker;
  command.immediate = wire::encode_tagged(number(credit(operation.target)), true);
  command.header = &head;
  command.header_bytes = sizeof head;
  try {
    return core_.requester.post_message(command, operation, engine::Role::carrier) ? HEDDLE_POSTED : HEDDLE_AGAIN;
  } catch (const std::bad_alloc&) {  // the first message to a worker connects to it
    return base::fail(HEDDLE_ERR_NO_MEMORY, "memory is exhausted; the message was not sent");
  }
}

void Tagged::failed(const engine::Operation& operation) {
  leave_pipe(offered_[core_.operations.index(operation)]);
}

void Tagged::ended(engine::Operation& operation) {
  failed(operation);
  Offered& offered = offered_[core_.operations.index(operation)];
  if (offered.in_parts) return;
  if (operation.posted) core_.operations.give_offer_back();  // otherwise the sending code does that
  core_.objects.take_back(offered.memory);
}

// ---- arrivals -----------------------------------------------------------------------------------

// Returns the charge. Out of line: the usual payload is a word, which then needs fewer registers.
[[gnu::noinline]] std::uint64_t copy_payload(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes <= base::kShortBytes) {
    base::copy_short(to, from, bytes);
  } else {
    base::copy_data(to, from, bytes);
  }
  return wire::tagged_charge(bytes);
}

// The usual message: copied, for a posted receive without a completion that has room for it. It
// does what arrived() does for these, for one word without calls, and copies nothing twice. False:
// nothing happened; arrived() handles the message. `matches`: null, unless the job is traced.
[[gnu::always_inline]] inline bool Tagged::take_usual(const transport::Completion& arrival, Matches* matches) {
  constexpr std::uint32_t kWord = sizeof(std::uint64_t);
  if (!wire::is_plain(arrival.immediate) || arrival.bytes < kWord) return false;
  const std::uint32_t bytes = arrival.bytes - kWord;
  if (!ordered_ || arrival.worker >= max_workers_) [[unlikely]]
    return false;
  const std::uint32_t rank = arrival.rank;
  const std::uint32_t worker = arrival.worker;
  std::uint64_t tag = 0;
  std::memcpy(&tag, arrival.data, kWord);
  Posted* const posted = static_cast<Posted*>(matching_.awaits(tag, source_of({rank, worker})));
  if (posted == nullptr || posted->request.bytes < bytes || !posted->request.completion.empty()) return false;
  matching_.take_awaiting(posted);
  posted->owner = nullptr;
  heddle_receive* const receive = posted->request.receive;
  receive->source.rank = rank;
  receive->source.worker = worker;
  receive->tag = tag;
  receive->bytes = bytes;
  std::uint64_t charge = wire::tagged_charge(kWord);
  if (bytes == kWord) [[likely]] {
    std::memcpy(posted->request.data, arrival.data + kWord, kWord);
  } else {
    charge = copy_payload(posted->request.data, arrival.data + kWord, bytes);
  }
  Source& source = sources_[pair({rank, worker})];
  ++source.expected;
  free_credit(source, charge);
  ++core_.stats.receives;
  set_status(receive, HEDDLE_DONE);
  if (matches != nullptr) {
    const heddle_peer& last = matches->from;
    if (matches->times == 0 || matches->tag != tag || matches->bytes != bytes || last.rank != rank ||
        last.worker != worker) {
      note_matches(matches);
      *matches = {{rank, worker}, tag, bytes, 0};
    }
    ++matches->times;
  }
  return true;
}

std::size_t Tagged::deliver(std::span<const transport::Completion> arrivals) {
  return tracer_ == nullptr ? deliver_row<false>(arrivals) : deliver_row<true>(arrivals);
}

template <bool kTraced>
inline std::size_t Tagged::deliver_row(std::span<const transport::Completion> arrivals) {
  const transport::Completion* arrival = arrivals.data();
  const transport::Completion* const end = arrival + arrivals.size();
  Matches matches;
  for (; arrival != end && arrival->event == transport::Event::message; ++arrival) {
    if (take_usual(*arrival, kTraced ? &matches : nullptr)) [[likely]]
      continue;
    if constexpr (kTraced) note_matches(&matches);
    if (wire::kind_of(arrival->immediate) != wire::Kind::tagged ||
        !arrived({arrival->rank, arrival->worker}, arrival->immediate, {arrival->data, arrival->bytes})) {
      break;
    }
  }
  if constexpr (kTraced) note_matches(&matches);
  return static_cast<std::size_t>(arrival - arrivals.data());
}

[[gnu::noinline]] bool Tagged::arrived(heddle_peer from, std::uint32_t immediate, std::span<const std::byte> packet) {
  const auto message = wire::decode_tagged(immediate, packet);
  if (!message || from.worker >= max_workers_) [[unlikely]]
    return arrived_word(from, immediate, packet);
  Source& source = sources_[pair(from)];
  if (!ordered_) [[unlikely]] {
    arrived_unordered(from, source, *message);
    return true;
  }
  ++source.expected;
  take_in(from, source, *message, match(message->tag, from));
  return true;
}

void Tagged::arrived_unordered(heddle_peer from, Source& source, const wire::TaggedMessage& message) {
  if (message.sequence != (source.expected & wire::kSequenceMask)) return stash(from, source, message);
  ++source.expected;
  take_in(from, source, message, match(message.tag, from));
  take_stashed(from, source);
}

namespace {

std::uint64_t charge_of(const wire::TaggedMessage& message) {
  return wire::tagged_charge(message.begins ? message.bytes : message.payload.size());
}

}  // namespace

// `posted`: the receive that it belongs to; null: none.
void Tagged::take_in(heddle_peer from, Source& source, const wire::TaggedMessage& message, Posted* posted) {
  if (posted == nullptr) {
    if (core_.failed[from.rank]) return core_.drop(from, "its sender has failed, and nobody waited for it");
    const std::uint64_t begin = tracer_ != nullptr ? base::ticks() : 0;
    Kept* const kept = keep(from, source, message);
    if (kept == nullptr) return;
    ++core_.stats.kept;
    matching_.keep(kept);
    if (tracer_ != nullptr) {
      note(tap::TraceEvent::kept, from, message.tag, tap::trace_copy(message.bytes, base::ticks() - begin));
    }
    return;
  }
  if (tracer_ != nullptr) note(tap::TraceEvent::matched, from, message.tag, message.bytes);
  posted->owner = nullptr;
  const ReceiveRequest& request = posted->request;  // until the status is set
  const base::Status status = deliver(request, from, message);
  free_credit(source, charge_of(message));
  if (status != HEDDLE_POSTED) end(request, status);
}

// Copies the message into a block of its own; null: it is dropped.
Tagged::Kept* Tagged::keep(heddle_peer from, Source& source, const wire::TaggedMessage& message) {
  const std::uint64_t charge = charge_of(message);
  // Messages may arrive in another order than that in which their credit was reserved: offers that
  // use the second window may come before a copied message that was counted in the first one. So
  // the limit here is both windows for every message. The sender keeps copied messages within the
  // first window.
  if (!source.credit.hold(charge, kOfferWindows * window_)) [[unlikely]] {
    core_.drop(from, "its sender had no credit for it; is HEDDLE_TAG_CREDIT_BYTES the same in all ranks?");
    return nullptr;
  }
  void* block = nullptr;
  if (charge == wire::kTaggedLeast && spare_ != nullptr) [[likely]] {
    block = spare_;
    spare_ = static_cast<Kept*>(spare_->later);
    --spares_;
  } else {
    block = ::operator new(charge, std::nothrow);
  }
  if (block == nullptr) [[unlikely]] {
    source.credit.held -= charge;
    free_credit(source, charge);
    core_.drop(from, "memory is exhausted");
    if (message.offer) {  // its sender waits for an answer
      wire::Offer head;
      std::memcpy(&head, message.payload.data(), sizeof head);
      core_.responder.answer(from, head.token, HEDDLE_ERR_NO_MEMORY);
    }
    return nullptr;
  }
  Kept* const kept = new (block) Kept;
  kept->tag = message.tag;
  kept->source = source_of(from);
  kept->bytes = charge;
  kept->length = message.bytes;
  kept->payload_bytes = message.payload.size();
  kept->sequence = message.sequence;
  kept->offer = message.offer;
  base::copy_data(kept->payload(), message.payload.data(), message.payload.size());
  if (message.begins) source.pipe->kept = kept;
  return kept;
}

void Tagged::free_kept(Kept* kept) {
  const std::uint64_t charge = kept->bytes;
  Source& source = sources_[pair(kept->from())];
  if (!kept->is_whole() && source.pipe->kept == kept) source.pipe->kept = nullptr;
  source.credit.held -= charge;
  if (charge == wire::kTaggedLeast && spares_ < kMostSpares) {
    kept->later = spare_;
    spare_ = kept;
    ++spares_;
  } else {
    ::operator delete(kept);
  }
  free_credit(source, charge);
}

// Ends a message that no receive will match.
void Tagged::reject(Kept* kept, base::Status status) {
  if (kept->offer) {
    wire::Offer head;
    std::memcpy(&head, kept->payload(), sizeof head);
    core_.responder.answer(kept->from(), head.token, status);
  }
  free_kept(kept);
}

// ---- messages that overtook others --------------------------------------------------------------

void Tagged::stash(heddle_peer from, Source& source, const wire::TaggedMessage& message) {
  const auto distance = [&source](std::uint32_t sequence) {
    return (sequence - static_cast<std::uint32_t>(source.expected)) & wire::kSequenceMask;
  };
  Kept* before = nullptr;
  for (Kept* at = source.stash; at != nullptr && distance(at->sequence) <= distance(message.sequence);
       at = static_cast<Kept*>(at->later)) {
    before = at;
  }
  const bool twice = before != nullptr && before->sequence == message.sequence;
  if (twice || distance(message.sequence) > wire::kSequenceMask / 2) {
    return core_.drop(from, "its number was used before");
  }
  Kept* const kept = keep(from, source, message);
  if (kept == nullptr) return;
  if (before == nullptr) {
    kept->later = source.stash;
    source.stash = kept;
  } else {
    kept->later = before->later;
    before->later = kept;
  }
}

void Tagged::take_stashed(heddle_peer from, Source& source) {
  while (source.stash != nullptr && source.stash->sequence == (source.expected & wire::kSequenceMask)) {
    Kept* const kept = source.stash;
    source.stash = static_cast<Kept*>(kept->later);
    ++source.expected;
    auto* const posted = static_cast<Posted*>(matching_.arrive(kept->tag, kept->source));
    if (posted == nullptr) {
      ++core_.stats.kept;
      matching_.keep(kept);
      if (tracer_ != nullptr) note(tap::TraceEvent::kept, from, kept->tag, kept->length);
      continue;
    }
    if (tracer_ != nullptr) note(tap::TraceEvent::matched, from, kept->tag, kept->length);
    posted->owner = nullptr;
    const ReceiveRequest& request = posted->request;
    const base::Status status = deliver(request, from, kept->message());
    free_kept(kept);
    if (status != HEDDLE_POSTED) end(request, status);
  }
}

// ---- credit -------------------------------------------------------------------------------------

// A later advance() tells the credit that the transport does not take now.
void Tagged::owe(Source& source) {
  if (source.owed) return;
  source.owed = true;
  source.next = owed_;
  owed_ = &source;
  core_.want_advance();
}

bool Tagged::tell_owed(Source& source) {
  return tell_credit(source);
}

// False: the transport does not take it now.
bool Tagged::tell_credit(Source& source) {
  const auto at = static_cast<std::size_t>(&source - &sources_[0]);
  const std::uint64_t freed = source.credit.freed;
  const heddle_peer to{static_cast<std::uint32_t>(at / max_workers_), static_cast<std::uint32_t>(at % max_workers_)};
  if (!post_word(to, wire::Word::credit, &freed, sizeof freed)) return false;
  source.credit.told = freed;
  return true;
}

bool Tagged::post_word(heddle_peer to, wire::Word word, const void* body, std::uint32_t bytes) {
  transport::Command command;
  command.opcode = transport::Opcode::message;
  command.rank = to.rank;
  command.worker = to.worker;
  command.immediate = wire::encode_word(word);
  command.header = body;
  command.header_bytes = bytes;
  command.token = 0;  // nobody waits for it
  try {
    return transport_.post({&command, 1}) != 0;
  } catch (const std::bad_alloc&) {  // the first message to a worker connects to it
    return false;
  }
}

// False: the word is not known.
bool Tagged::arrived_word(heddle_peer from, std::uint32_t immediate, std::span<const std::byte> packet) {
  if (!wire::is_word(immediate) || from.worker >= max_workers_) return false;
  switch (wire::word_of(immediate)) {
    case wire::Word::credit: {
      const auto freed = wire::decode_credit(packet);
      if (!freed || !credit(from).learn(*freed)) core_.drop(from, "it grants credit that was never used");
      return true;
    }
    case wire::Word::piped:
      arrived_piped(from, packet);
      return true;
    case wire::Word::part:
      arrived_part(from, packet);
      return true;
    case wire::Word::pull:
      arrived_pull(from, packet);
      return true;
    case wire::Word::pulled:
      arrived_pulled(from, packet);
      return true;
  }
  return false;
}

// ---- ends ---------------------------------------------------------------------------------------

void Tagged::note_failures() {
  const auto dead = [this](std::uint32_t rank) { return bool(core_.failed[rank]); };
  end_pipes_of_failed();
  cancel_receives(matching_.forget(dead), HEDDLE_ERR_PEER_FAILED);
  for (std::uint32_t rank = 0; !ordered_ && rank < core_.job.size(); ++rank) {
    if (dead(rank)) drop_stashes(rank);
  }
  // Claimed messages stay: the program holds them. Fetches end with their operations.
}

void Tagged::cancel(base::Status status) {
  while (waiting_ != nullptr) {
    Fetch* const fetch = std::exchange(waiting_, waiting_->next);
    const ReceiveRequest request = fetch->request;
    end(request, end_fetch(fetch, status));
  }
  cancel_receives(matching_.forget_all(), status);
  end_pipes(status);
  while (claimed_ != nullptr) {
    Kept* const kept = claimed_;
    remove_claimed(kept);
    reject(kept, status);
  }
  for (std::uint32_t rank = 0; !ordered_ && rank < core_.job.size(); ++rank) drop_stashes(rank);
}

void Tagged::drop_stashes(std::uint32_t rank) {
  for (std::uint32_t worker = 0; worker < max_workers_; ++worker) {
    Source& source = sources_[pair({rank, worker})];
    while (source.stash != nullptr) {
      reject(std::exchange(source.stash, static_cast<Kept*>(source.stash->later)), HEDDLE_ERR_CANCELLED);
    }
  }
}

void Tagged::cancel_receives(Matching::Removed removed, base::Status status) {
  for (KeptMessage* message = removed.messages; message != nullptr;) {
    auto* const kept = static_cast<Kept*>(message);
    message = Matching::after(kept);
    reject(kept, status);
  }
  for (PostedReceive* receive = removed.receives; receive != nullptr;) {
    auto* const posted = static_cast<Posted*>(receive);
    receive = Matching::after(posted);
    // for programs that ask what it waited for
    posted->request.receive->source = peer_of(posted->wanted.source);
    posted->owner = nullptr;
    end(ReceiveRequest(posted->request), status);
  }
}

}  // namespace heddle::protocol
