#include "protocol/active_messages.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "engine/core.hpp"
#include "engine/objects.hpp"

namespace heddle::protocol {

// A payload that waits for room, or is on its way here.
struct AmRendezvous::Fetch {
  AmRendezvous* owner = nullptr;
  Source* source = nullptr;
  Fetch* next = nullptr;
  heddle_peer from{};
  wire::AmOfferHeader head{};
  Reassembly::Message whole;
  engine::RemoteRegion remote;
  bool ready = false;  // admitted, with buffer and remote: only an operation is missing
};

AmRendezvous::AmRendezvous(engine::Core& core, ActiveMessages& messages)
    : core_(core),
      messages_(messages),
      limits_(active_limits(core.capabilities, core.job.environment().config)),
      most_(core.job.environment().config.number(base::Var::am_reassembly_bytes)),
      max_workers_(core.max_workers),
      sources_(core.job.size()) {}

AmRendezvous::~AmRendezvous() {
  cancel_waiting();
}

// ---- sending ------------------------------------------------------------------------------------

base::Status AmRendezvous::offer(heddle_peer target, const engine::LongMessage& message,
                                 const engine::CallersCompletion& completion) {
  if (lent_ == nullptr) {
    lent_.reset(new (std::nothrow) engine::LentMemory[core_.operations.slots().size()]);
    if (lent_ == nullptr) return base::fail(HEDDLE_ERR_NO_MEMORY, "memory is exhausted; the message was not sent");
  }
  engine::Operation* operation = core_.operations.begin(engine::Kind::protocol, target.rank, completion);
  if (operation == nullptr) return HEDDLE_AGAIN;
  operation->completion.when = HEDDLE_WHEN_REMOTE;  // the source is read until the end
  auto lent = core_.objects.lend(target.rank, const_cast<std::byte*>(message.payload), message.payload_bytes);
  if (!lent) {
    core_.operations.finish(*operation);
    return lent.status();
  }
  lent_[core_.operations.index(*operation)] = *lent;
  operation->owner = &messages_;
  operation->target = target;
  operation->handler = message.handler;
  operation->payload_bytes = message.payload_bytes;
  operation->header_bytes = message.header_bytes;
  operation->header = message.header;
  wire::AmOfferHeader head{core_.operations.token(*operation, engine::Role::reply),
                           message.payload_bytes,
                           lent->number,
                           message.handler,
                           message.header_bytes,
                           {}};
  static_assert(sizeof head.key == transport::kKeyBytes && sizeof head <= transport::kMaxHeaderBytes);
  const transport::MemoryKey key = core_.job.transport().key_for(target.rank, lent->memory.key);
  std::memcpy(head.key, key.bytes.data(), sizeof head.key);
  transport::Command command;
  command.rank = target.rank;
  command.worker = target.worker;
  command.immediate = wire::kAmOffer;
  command.header = &head;
  command.header_bytes = sizeof head;
  command.local = operation->header.data();
  command.bytes = message.header_bytes;
  base::Status status = HEDDLE_AGAIN;
  try {
    if (core_.requester.post_message(command, *operation, engine::Role::carrier)) status = HEDDLE_POSTED;
  } catch (const std::bad_alloc&) {  // the first message to a worker connects to it
    status = base::fail(HEDDLE_ERR_NO_MEMORY, "memory is exhausted; the message was not sent");
  }
  if (status != HEDDLE_POSTED) {
    core_.operations.finish(*operation);
    return status;
  }
  operation->posted = true;
  operation->charged = message.handler >= HEDDLE_AM_USER;
  engine::Requester::await_answer(*operation, target);
  return HEDDLE_POSTED;
}

void AmRendezvous::ended(const engine::Operation& operation) {
  if (operation.posted) core_.operations.give_offer_back();  // otherwise the sending code does that
  core_.objects.take_back(lent_[core_.operations.index(operation)]);
}

// ---- offers that arrive -------------------------------------------------------------------------

AmRendezvous::Class AmRendezvous::class_of(const Fetch& fetch) {
  return fetch.head.handler < HEDDLE_AM_USER ? kNetwork : kUser;
}

// Null: memory is exhausted.
AmRendezvous::Source* AmRendezvous::source_of(heddle_peer peer) {
  std::unique_ptr<Source[]>& row = sources_[peer.rank];
  if (row == nullptr) row.reset(new (std::nothrow) Source[max_workers_]);
  return row == nullptr ? nullptr : &row[peer.worker];
}

template <class Function>
void AmRendezvous::each_source(Function&& function) {
  for (std::uint32_t rank = 0; rank < sources_.size(); ++rank) {
    for (std::uint32_t at = 0; sources_[rank] != nullptr && at < max_workers_; ++at) function(rank, sources_[rank][at]);
  }
}

void AmRendezvous::reject(heddle_peer from, std::uint64_t token, base::Status status, const char* why) {
  core_.drop(from, why);
  core_.responder.answer(from, token, status);
}

void AmRendezvous::arrived(heddle_peer from, const wire::AmOffer& offer) {
  const wire::AmOfferHeader& head = offer.head;
  if (core_.failed[from.rank]) return core_.drop(from, "its sender has failed, so it cannot be fetched");
  if (from.worker >= max_workers_) return core_.drop(from, "its sender cannot exist");
  if (head.handler < HEDDLE_AM_USER && core_.job.handler(head.handler).fn == nullptr) {
    return reject(from, head.token, HEDDLE_DONE, "no handler is registered for the number of a large message");
  }
  if (head.bytes > most_ || head.bytes > core_.job.environment().config.number(base::Var::am_max_bytes)) {
    return reject(from, head.token, HEDDLE_ERR_NO_MEMORY,
                  "it is longer than HEDDLE_AM_REASSEMBLY_BYTES or HEDDLE_AM_MAX_BYTES");
  }
  Source* const source = source_of(from);
  if (source != nullptr && source->waiting >= kMostOffers) {
    return reject(from, head.token, HEDDLE_ERR_NO_MEMORY, "its sender offers more than it can have under way");
  }
  Fetch* const fetch = source == nullptr ? nullptr : new (std::nothrow) Fetch;
  if (fetch == nullptr) return reject(from, head.token, HEDDLE_ERR_NO_MEMORY, "memory is exhausted");
  fetch->owner = this;
  fetch->source = source;
  fetch->from = from;
  fetch->head = head;
  fetch->whole.token = head.token;
  fetch->whole.total_bytes = head.bytes;
  fetch->whole.handler = head.handler;
  fetch->whole.header_bytes = head.header_bytes;
  if (!offer.header.empty()) std::memcpy(fetch->whole.header.data(), offer.header.data(), offer.header.size());
  append(*source, fetch);
  kick(*source, class_of(*fetch));
}

// ---- the queues ---------------------------------------------------------------------------------

void AmRendezvous::append(Source& source, Fetch* fetch) {
  Queue& queue = source.queues[class_of(*fetch)];
  (queue.first == nullptr ? queue.first : queue.last->next) = fetch;
  queue.last = fetch;
  ++source.waiting;
  ++waiting_;
}

void AmRendezvous::take_first(Source& source, Class which) {
  Queue& queue = source.queues[which];
  queue.first = queue.first->next;
  --source.waiting;
  --waiting_;
}

// Takes room from what all sources share.
bool AmRendezvous::admit(const Fetch& fetch) {
  if (class_of(fetch) == kUser) return messages_.tasks().reserve(fetch.head.bytes);
  if (fetch.head.bytes > most_ - fetching_) return false;
  fetching_ += fetch.head.bytes;
  return true;
}

void AmRendezvous::leave(const Fetch& fetch) {
  if (class_of(fetch) == kUser) return messages_.tasks().release(fetch.head.bytes);
  fetching_ -= fetch.head.bytes;
}

// Begins as many fetches of a queue as it can. False: the first one waits for room that all sources
// share.
bool AmRendezvous::run(Source& source, Class which) {
  while (Fetch* const fetch = source.queues[which].first) {
    // The source's own fetches come back here when they end.
    if (source.fetching > 0 && fetch->head.bytes > kWindow - std::min(source.fetching, kWindow)) return true;
    if (!fetch->ready && !admit(*fetch)) return false;
    // if only the sender's card is missing, no other source has to wait
    if (!start(fetch)) return !fetch->ready;
  }
  return true;
}

void AmRendezvous::kick(Source& source, Class which) {
  if (draining_) return;
  draining_ = true;
  if (!source.queues[which].listed && !run(source, which)) {
    Blocked& list = blocked_[which];
    (list.first == nullptr ? list.first : list.last->next[which]) = &source;
    list.last = &source;
    source.next[which] = nullptr;
    source.queues[which].listed = true;
  }
  draining_ = false;
}

void AmRendezvous::drain(Class which) {
  if (draining_) return;
  draining_ = true;
  Blocked& list = blocked_[which];
  while (list.first != nullptr && run(*list.first, which)) {
    Source& source = *list.first;
    source.queues[which].listed = false;
    list.first = source.next[which];
  }
  draining_ = false;
}

// A fetch of this source has ended.
void AmRendezvous::start_more(Source& source) {
  for (const Class which : {kNetwork, kUser}) {
    kick(source, which);
    drain(which);
  }
}

void AmRendezvous::room_for_tasks() {
  drain(kUser);
}

bool AmRendezvous::advance(bool* left) {
  if (!starved_ && !unmet_) return false;
  const std::uint64_t before = waiting_;
  if (std::exchange(unmet_, false)) {
    each_source([this](std::uint32_t, Source& source) {
      kick(source, kNetwork);
      kick(source, kUser);
    });
  }
  if (std::exchange(starved_, false)) {
    drain(kNetwork);
    drain(kUser);
  }
  if (starved_ || unmet_) *left = true;
  return waiting_ != before;
}

// ---- fetching -----------------------------------------------------------------------------------

// Imports the sender's memory, and allocates the buffer. AGAIN: the sender's card is not here yet.
base::Status AmRendezvous::prepare(Fetch* fetch) {
  if (fetch->ready) return HEDDLE_DONE;
  const engine::LentName name{fetch->from, fetch->head.region, fetch->head.bytes, std::span(fetch->head.key)};
  const base::Status status = engine::reach_lent(core_.objects, name, &fetch->remote);
  if (status != HEDDLE_DONE) return status;
  fetch->whole.payload.reset(new (std::nothrow) std::byte[fetch->head.bytes]);
  fetch->ready = fetch->whole.payload != nullptr;
  if (!fetch->ready) engine::let_go(fetch->remote);
  return fetch->ready ? HEDDLE_DONE : HEDDLE_ERR_NO_MEMORY;
}

// Starts the first fetch of its queue, which is admitted. True: it has left the queue. False: it
// waits for a free operation; or it is no longer admitted, and waits for its sender's card.
bool AmRendezvous::start(Fetch* fetch) {
  Source& source = *fetch->source;
  base::Status status = prepare(fetch);
  if (status == HEDDLE_AGAIN) {
    leave(*fetch);
    unmet_ = true;
    core_.want_advance();
    return false;
  }
  if (status == HEDDLE_DONE) {
    const engine::CallersCompletion ended{[](void* arg, heddle_status how) {
                                            auto* const done = static_cast<Fetch*>(arg);
                                            done->owner->end(done, how);
                                          },
                                          fetch, nullptr, HEDDLE_WHEN_REMOTE};
    const engine::Pieces pieces(fetch->whole.payload.get(), &fetch->remote, 0, {fetch->head.bytes, 1, 0, 0});
    status = core_.requester.try_transfer(engine::Kind::get, pieces, fetch->from.rank, ended);
    if (status == HEDDLE_AGAIN) {
      starved_ = true;
      core_.want_advance();
      return false;
    }
  }
  take_first(source, class_of(*fetch));
  source.fetching += fetch->head.bytes;
  if (status != HEDDLE_POSTED) end(fetch, status);
  return true;
}

void AmRendezvous::end(Fetch* fetch, base::Status status) {
  Source& source = *fetch->source;
  if (fetch->ready) engine::let_go(fetch->remote);
  source.fetching -= fetch->head.bytes;
  if (status == HEDDLE_DONE) {
    hand_on(fetch);
  } else {
    // Only a sender that is closed takes its memory back before it has been read.
    const bool taken_back = status == HEDDLE_ERR_RANGE || status == HEDDLE_ERR_HANDLE;
    const bool lost = status != HEDDLE_ERR_PEER_FAILED && status != HEDDLE_ERR_CANCELLED;
    if (lost) {
      core_.drop(fetch->from, status == HEDDLE_ERR_NO_MEMORY ? "there is no memory to fetch it to"
                              : taken_back ? "its sender has taken its memory back before it was fetched"
                                           : "the memory that it offers cannot be read");
    }
    core_.responder.answer(fetch->from, fetch->head.token, taken_back ? HEDDLE_ERR_CANCELLED : status);
    leave(*fetch);
  }
  delete fetch;
  start_more(source);
}

// Handles it as a message that has arrived whole: see ActiveMessages::arrived_fragment().
void AmRendezvous::hand_on(Fetch* fetch) {
  Reassembly::Message& whole = fetch->whole;
  if (class_of(*fetch) == kUser) return messages_.store_long(fetch->from, &whole, Tasks::Room::reserved);
  core_.responder.answer(fetch->from, fetch->head.token, HEDDLE_DONE);
  messages_.run_handler(fetch->from, {whole.handler, whole.header_bytes, whole.header.data(), whole.payload.get(), 0},
                        whole.total_bytes);
  leave(*fetch);
}

// ---- ends ---------------------------------------------------------------------------------------

void AmRendezvous::drop_waiting(Source& source, base::Status status) {
  for (const Class which : {kNetwork, kUser}) {
    while (Fetch* const fetch = source.queues[which].first) {
      take_first(source, which);
      if (status != HEDDLE_ERR_PEER_FAILED) core_.responder.answer(fetch->from, fetch->head.token, status);
      if (fetch->ready) {
        engine::let_go(fetch->remote);
        leave(*fetch);
      }
      delete fetch;
    }
  }
}

// Fetches that are on their way end with their gets.
void AmRendezvous::note_failures() {
  if (waiting_ == 0) return;
  each_source([this](std::uint32_t rank, Source& source) {
    if (core_.failed[rank]) drop_waiting(source, HEDDLE_ERR_PEER_FAILED);
  });
  drain(kNetwork);
  drain(kUser);
}

void AmRendezvous::cancel_waiting() {
  if (waiting_ == 0) return;
  each_source([this](std::uint32_t, Source& source) { drop_waiting(source, HEDDLE_ERR_CANCELLED); });
}

}  // namespace heddle::protocol
