// Boards of this worker: showing receives to their senders, and fetching the messages for which a
// sender has taken a receive.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/clock.hpp"
#include "engine/core.hpp"
#include "protocol/tagged_nodes.hpp"

namespace heddle::protocol {

using wire::BoardPlace;
using wire::Stage;

namespace {

// Bytes of a part that this side fetches: enough that a get is worth its price, but not so many
// that the sender finds nothing left when it comes.
constexpr std::uint64_t kFetchedPart = std::uint64_t{256} << 10;
constexpr std::uint64_t kSharedPart = std::uint64_t{64} << 10;
// after so many receives in a row that were shown in vain, 2^6 are not shown
constexpr std::uint32_t kMostVain = 6;
// How long a worker that is closed waits for the parts that senders are just writing, all of them
// together.
constexpr std::int64_t kCompleteNs = 10'000'000'000;

}  // namespace

// ---- showing ------------------------------------------------------------------------------------

// Opens a board with the first long message of a worker. Without memory for it, everything goes on
// as without boards.
void Tagged::open_inlet(heddle_peer from, Source& source) {
  if (source.inlet != nullptr || source.no_inlet || !shows_ || from.rank == core_.job.rank()) return;
  source.no_inlet = true;
  if (!core_.job.transport().direct_to(from.rank)) return;
  std::unique_ptr<Inlet> inlet(new (std::nothrow) Inlet);
  if (inlet == nullptr) return;
  try {
    // The context's, so that it stays when this worker is closed: the sender may still look at it.
    const auto region = core_.objects.open_region(nullptr, sizeof(wire::Board));
    if (!region) return;
    const transport::LocalMemory& memory = (*region)->memory;
    inlet->board = new (memory.address) wire::Board{};
    inlet->name.region = (*region)->number;
    const transport::MemoryKey key = core_.job.transport().key_for(from.rank, memory.key);
    std::memcpy(inlet->name.key, key.bytes.data(), sizeof inlet->name.key);
  } catch (const std::bad_alloc&) {
    return;
  }
  inlet->from = from;
  inlet->board->seen.store(source.expected, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < wire::kBoardPlaces; ++i) {
    inlet->places[i].index = i;
    inlet->places[i].inlet = inlet.get();
    inlet->places[i].tagged = this;
  }
  source.inlet = inlet.get();
  inlet->next = std::move(inlets_);
  inlets_ = std::move(inlet);
  if (!tell_board(*source.inlet)) owe(source);
}

bool Tagged::tell_board(Inlet& inlet) {
  inlet.told = post_word(inlet.from, wire::Word::board, &inlet.name, sizeof inlet.name);
  return inlet.told;
}

Tagged::Shown* Tagged::unused_place(Inlet& inlet) {
  for (Shown& shown : inlet.places) {
    if (shown.use == Shown::Use::ended) {
      BoardPlace& place = inlet.board->places[shown.index];
      if (!wire::was_left(place, shown.generation)) continue;
      place.word.store(wire::place_word(shown.generation, Stage::free), std::memory_order_relaxed);
      shown.use = Shown::Use::unused;
    }
    if (shown.use == Shown::Use::unused) return &shown;
  }
  return nullptr;
}

// The receive has just been posted. board.hpp says why only some may be shown.
void Tagged::show(Posted* posted) {
  const Wanted& wanted = posted->wanted;
  if (wanted.mask != kWholeTag || static_cast<std::uint32_t>(wanted.source) == kAnyNumber) return;
  Inlet* const inlet = sources_[pair(peer_of(wanted.source))].inlet;
  if (inlet == nullptr || !matching_.only_exact()) return;
  const auto* before = static_cast<const Posted*>(Matching::before(posted));
  if (before != nullptr && before->shown == nullptr) return;
  if (inlet->skip > 0) {
    --inlet->skip;
    return;
  }
  Shown* const shown = unused_place(*inlet);
  if (shown == nullptr) return;
  transport::LocalMemory lent;
  try {
    const auto memory =
        core_.job.transport().register_for(inlet->from.rank, posted->request.data, posted->request.bytes);
    if (!memory) return;
    lent = *memory;
  } catch (const std::bad_alloc&) {
    return;
  }
  shown->use = Shown::Use::shown;
  shown->posted = posted;
  shown->lent = lent;
  ++shown->generation;
  posted->shown = shown;
  wire::Board& board = *inlet->board;
  BoardPlace& place = board.places[shown->index];
  place.tag.store(wanted.tag, std::memory_order_relaxed);
  place.number.store(inlet->count, std::memory_order_relaxed);
  place.room = posted->request.bytes;
  const transport::MemoryKey key = core_.job.transport().key_for(inlet->from.rank, lent.key);
  std::memcpy(place.key, key.bytes.data(), sizeof place.key);
  place.shared.store(0, std::memory_order_relaxed);
  wire::show_place(place, shown->generation);
  board.live.fetch_or(1U << shown->index, std::memory_order_release);
  board.count.store(++inlet->count, std::memory_order_release);
}

// True: the receive is ours again. False: its sender has taken it.
bool Tagged::take_back(Shown& shown) {
  if (!wire::hide_place(shown.inlet->board->places[shown.index], shown.generation)) return false;
  shown.inlet->board->live.fetch_and(~(1U << shown.index), std::memory_order_relaxed);
  core_.job.transport().deregister(shown.lent);
  shown.posted->shown = nullptr;
  shown.posted = nullptr;
  shown.use = Shown::Use::unused;
  return true;
}

// Takes in a message of a worker that has a board. A receive that the sender has taken cannot match
// another message.
void Tagged::take_in_shown(heddle_peer from, Source& source, const wire::TaggedMessage& message) {
  Inlet& inlet = *source.inlet;
  Posted* posted = match(message.tag, from);
  while (posted != nullptr && posted->shown != nullptr) {
    if (take_back(*posted->shown)) {
      inlet.vain = std::min(inlet.vain + 1, kMostVain);
      inlet.skip = inlet.vain < 2 ? 0 : 1U << inlet.vain;
      break;
    }
    begin_taken(*posted->shown);
    posted = match(message.tag, from);
  }
  const std::uint64_t seen = source.expected;
  take_in(from, source, message, posted);
  inlet.board->seen.store(seen, std::memory_order_release);
}

// ---- taken --------------------------------------------------------------------------------------

void Tagged::arrived_taken(heddle_peer from, std::span<const std::byte> packet) {
  const auto body = wire::decode_word<wire::TakenPlace>(packet);
  Inlet* const inlet = sources_[pair(from)].inlet;
  if (!body || inlet == nullptr || body->place >= wire::kBoardPlaces) {
    return core_.drop(from, "it names no place of a board");
  }
  Shown& shown = inlet->places[body->place];
  const std::uint64_t word = wire::place_word(shown.generation, Stage::taken);
  if (shown.use != Shown::Use::shown || body->word != word) return;  // known already
  if (inlet->board->places[shown.index].word.load(std::memory_order_acquire) != word) {
    return core_.drop(from, "it names a place that was not taken");
  }
  matching_.cancel(shown.posted);
  begin_taken(shown);
}

// Begins the copying of a message whose receive is out of the matching, with the next advance().
void Tagged::begin_taken(Shown& shown) {
  Inlet& inlet = *shown.inlet;
  BoardPlace& place = inlet.board->places[shown.index];
  std::memcpy(&shown.offer, &place.offer, sizeof shown.offer);
  Posted& posted = *std::exchange(shown.posted, nullptr);
  posted.owner = nullptr;
  posted.shown = nullptr;
  shown.request = posted.request;
  shown.total = std::min(shown.offer.bytes, shown.request.bytes);
  shown.outcome = shown.offer.bytes == shown.total ? HEDDLE_DONE : HEDDLE_ERR_TRUNCATED;
  shown.use = Shown::Use::taken;
  shown.dead = core_.failed[inlet.from.rank];
  shown.imported = false;
  shown.fetching = {};
  inlet.vain = 0;
  inlet.board->live.fetch_and(~(1U << shown.index), std::memory_order_relaxed);
  tell(shown.request.receive, inlet.from, posted.wanted.tag, shown.offer.bytes);
  if (tracer_ != nullptr) note(tap::TraceEvent::matched, inlet.from, posted.wanted.tag, shown.offer.bytes);
  shown.next = taken_;
  taken_ = &shown;
  core_.want_advance();
}

bool Tagged::advance_all_taken() {
  bool moved = false;
  for (Shown *shown = taken_, *next = nullptr; shown != nullptr; shown = next) {
    next = shown->next;  // code at the end of a receive adds to the front only
    if (advance_taken(*shown)) moved = true;
  }
  return moved;
}

bool Tagged::advance_taken(Shown& shown) {
  bool moved = false;
  for (std::size_t which = 0; which < Shown::kAtOnce; ++which) {
    if (shown.fetching[which].posted || !fetch_part(shown, which)) continue;
    moved = true;
    if (!shown.fetching[which].posted) break;  // copied here and now: others get their turn
  }
  const auto claimed = [](const Shown::Fetching& fetching) { return fetching.claimed; };
  if (std::ranges::any_of(shown.fetching, claimed)) return moved;
  const BoardPlace& place = shown.inlet->board->places[shown.index];
  if (!shown.dead && !wire::all_finished(place, shown.total)) return moved;
  end_taken(shown);
  return true;
}

// False: there is no part left, or the transport does not take it now.
bool Tagged::fetch_part(Shown& shown, std::size_t which) {
  BoardPlace& place = shown.inlet->board->places[shown.index];
  Shown::Fetching& fetching = shown.fetching[which];
  if (!fetching.claimed) {
    const bool shared = place.shared.load(std::memory_order_relaxed) != 0;
    if (!wire::claim_part(place, shown.total, shared ? kSharedPart : kFetchedPart, &fetching.part)) return false;
    fetching.claimed = true;
  }
  if (!shown.imported) {
    const base::Status status = import(shown.offer, shown.inlet->from, &shown.from);
    if (status == HEDDLE_AGAIN) return false;
    if (status != HEDDLE_DONE) {
      end_part(shown, which, status);
      return true;
    }
    shown.imported = true;
  }
  // If the sender copies parts as well, neither side makes progress for the other meanwhile, so
  // each of them copies alone. The transport's experience with both together does not apply here.
  if (place.shared.load(std::memory_order_relaxed) != 0 &&
      copy_alone(shown.inlet->from, shown.from.memory, transport::Opcode::get, shown.request.data + fetching.part.at,
                 fetching.part)) {
    end_part(shown, which, HEDDLE_DONE);
    return true;
  }
  fetching.shown = &shown;
  fetching.posted = true;  // before it can end
  const engine::CallersCompletion ended{
      [](void* arg, heddle_status status) {
        auto* const done = static_cast<Shown::Fetching*>(arg);
        end_part(*done->shown, static_cast<std::size_t>(done - done->shown->fetching.data()), status);
      },
      &fetching, nullptr, HEDDLE_WHEN_REMOTE};
  const engine::Pieces pieces(shown.request.data + fetching.part.at, &shown.from, fetching.part.at,
                              {fetching.part.bytes, 1, 0, 0});
  const base::Status status = core_.requester.try_transfer(engine::Kind::get, pieces, shown.inlet->from.rank, ended);
  if (status == HEDDLE_POSTED) return true;
  fetching.posted = false;
  if (status == HEDDLE_AGAIN) return false;
  // it needed no other process: the sender may help
  if (status == HEDDLE_DONE) place.shared.store(1, std::memory_order_relaxed);
  end_part(shown, which, status);
  return true;
}

void Tagged::end_part(Shown& shown, std::size_t which, base::Status status) {
  BoardPlace& place = shown.inlet->board->places[shown.index];
  Shown::Fetching& fetching = shown.fetching[which];
  fetching.claimed = false;
  fetching.posted = false;
  // Only a sender that is closed takes its memory back before it has been read.
  if (status == HEDDLE_ERR_RANGE || status == HEDDLE_ERR_HANDLE) status = HEDDLE_ERR_CANCELLED;
  wire::finish_part(place, fetching.part.bytes, status);
  if (status != HEDDLE_DONE) wire::cancel_rest(place, shown.total, status);
}

// Nobody writes to its buffer any more.
void Tagged::end_taken(Shown& shown) {
  Shown** link = &taken_;
  while (*link != &shown) link = &(*link)->next;
  *link = shown.next;
  const BoardPlace& place = shown.inlet->board->places[shown.index];
  base::Status status = shown.outcome;
  if (!wire::all_finished(place, shown.total)) {
    status = shown.dead ? HEDDLE_ERR_PEER_FAILED : HEDDLE_ERR_CANCELLED;
  } else if (const std::int32_t told = place.status.load(std::memory_order_relaxed); told != HEDDLE_DONE) {
    status = wire::status_known(told) ? static_cast<base::Status>(told) : HEDDLE_ERR_PROTOCOL;
  }
  if (shown.imported) core_.job.transport().release(shown.from.memory);
  core_.job.transport().deregister(shown.lent);
  shown.use = shown.dead ? Shown::Use::unused : Shown::Use::ended;
  end(ReceiveRequest(shown.request), status);
}

// The worker is closed. Each sender copies its present part within one call, so this call waits for
// these parts. There is one time limit for all of them, since this thread is inside and a sender
// may have been stopped.
void Tagged::complete_all_taken(base::Status status) {
  if (taken_ == nullptr) return;
  base::Timeout timeout(kCompleteNs, *core_.job.environment().clock);
  while (taken_ != nullptr) {
    const bool over = timeout.over();
    for (Shown *shown = taken_, *next = nullptr; shown != nullptr; shown = next) {
      next = shown->next;  // code at the end of a receive adds to the front only
      if (!stop(*shown, status)) {
        if (!over) continue;
        report_incomplete(*shown);
      }
      end_taken(*shown);
    }
    if (taken_ != nullptr) sched_yield();
  }
}

// Begins nothing more of it. True: nobody writes to its buffer any more.
bool Tagged::stop(Shown& shown, base::Status status) {
  BoardPlace& place = shown.inlet->board->places[shown.index];
  for (std::size_t which = 0; which < Shown::kAtOnce; ++which) {
    if (shown.fetching[which].claimed) end_part(shown, which, status);
  }
  wire::cancel_rest(place, shown.total, status);
  shown.dead = shown.dead || core_.job.failed(shown.inlet->from.rank);
  return shown.dead || wire::all_finished(place, shown.total);
}

void Tagged::report_incomplete(const Shown& shown) {
  core_.job.environment().log.line(
      base::Level::warn, "worker %u was closed while rank %u was writing into a receive, which has not ended in 10 s",
      core_.index, shown.inlet->from.rank);
}

// Receives that the dead had taken end when our own parts have; the others are ended by the
// matching.
void Tagged::note_failed_inlets() {
  for (Inlet* inlet = inlets_.get(); inlet != nullptr; inlet = inlet->next.get()) {
    if (!core_.failed[inlet->from.rank]) continue;
    for (Shown& shown : inlet->places) {
      if (shown.use == Shown::Use::shown && !take_back(shown)) {
        matching_.cancel(shown.posted);
        begin_taken(shown);
      }
      if (shown.use == Shown::Use::ended) shown.use = Shown::Use::unused;
      if (shown.use != Shown::Use::taken) continue;
      shown.dead = true;
      wire::cancel_rest(inlet->board->places[shown.index], shown.total, HEDDLE_ERR_PEER_FAILED);
    }
  }
}

}  // namespace heddle::protocol
