// Boards of peers: taking a receive for a long message, and copying into it while the receiver
// computes.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "engine/core.hpp"
#include "protocol/tagged_nodes.hpp"

namespace heddle::protocol {

using wire::BoardPlace;
using wire::Stage;

namespace {

// A receiver that is there has begun by then.
constexpr std::uint64_t kGraceNs = 2'000;
// A part that is copied within one call of progress. It takes less time than the patience of a
// receiver that comes meanwhile and wants this sender's help.
constexpr std::uint64_t kPushedPart = std::uint64_t{32} << 10;
// Memory of a peer that cannot be written for so long, though it could before and the peer lives,
// is gone.
constexpr std::uint64_t kFailingNs = 1'000'000'000;

}  // namespace

void Tagged::arrived_board(heddle_peer from, std::span<const std::byte> packet) {
  const auto name = wire::decode_word<wire::BoardName>(packet);
  SendCredit& to = credit(from);
  if (!name || to.view != nullptr || !core_.capabilities.direct || from.rank == core_.job.rank()) {
    return core_.drop(from, "it names no board, or a second one");
  }
  std::unique_ptr<View> view(new (std::nothrow) View);
  if (view == nullptr) return;  // it is offered as before
  transport::MemoryKey key;
  std::memcpy(key.bytes.data(), name->key, sizeof name->key);
  try {
    // This never waits for a card: the card of a mapped peer is here before its message comes.
    const auto memory = core_.job.transport().import(from.rank, key);
    if (!memory) return core_.drop(from, "its board cannot be reached");
    view->memory = *memory;
  } catch (const std::bad_alloc&) {
    return;
  }
  const bool fits = view->memory.all_direct() && view->memory.bytes >= sizeof(wire::Board) &&
                    reinterpret_cast<std::uintptr_t>(view->memory.direct) % alignof(wire::Board) == 0;
  if (!fits) {
    core_.job.transport().release(view->memory);
    return core_.drop(from, "what it names cannot be a board");
  }
  view->to = from;
  view->board = reinterpret_cast<wire::Board*>(view->memory.direct);
  to.view = view.get();
  view->next = std::move(views_);
  views_ = std::move(view);
}

// Takes a receive instead of offering. False: no receive is shown that this message would certainly
// match.
bool Tagged::take_shown(engine::Operation& operation, const wire::Offer& head, const SendRequest& request) {
  SendCredit& to = credit(request.target);
  auto* const view = static_cast<View*>(to.view);
  wire::Board& board = *view->board;
  if (board.seen.load(std::memory_order_acquire) != to.sequence) return false;
  const std::uint64_t count = board.count.load(std::memory_order_acquire);
  for (std::uint32_t tries = 0; tries < wire::kBoardPlaces; ++tries) {
    BoardPlace* best = nullptr;
    std::uint64_t best_word = 0;
    std::uint64_t lowest = count;
    for (std::uint32_t i = 0, live = board.live.load(std::memory_order_acquire); i < wire::kBoardPlaces; ++i) {
      if ((live >> i & 1U) == 0) continue;
      BoardPlace& place = board.places[i];
      const std::uint64_t word = place.word.load(std::memory_order_acquire);
      if (wire::stage_of(word) != Stage::shown || place.tag.load(std::memory_order_relaxed) != head.tag) continue;
      const std::uint64_t number = place.number.load(std::memory_order_relaxed);
      if (number >= lowest) continue;
      best = &place;
      best_word = word;
      lowest = number;
    }
    if (best == nullptr) return false;
    std::memcpy(&best->offer, &head, sizeof head);
    // it was taken back: another may be the earliest now
    if (!wire::take_place(*best, best_word)) continue;
    Offered& offered = offered_[core_.operations.index(operation)];
    offered.view = view;
    offered.place = best;
    offered.word = wire::place_word(wire::generation_of(best_word), Stage::taken);
    offered.total = std::min(request.bytes, best->room);
    offered.index = static_cast<std::uint64_t>(best - board.places);
    offered.since = core_.job.clock().now_ns();
    offered.operation = &operation;
    offered.next = std::exchange(pushing_, &offered);
    ++core_.stats.taken;
    tell_taken(offered);
    core_.want_advance();
    // The message takes none of the memory for unexpected messages.
    const std::uint64_t charge = wire::tagged_charge(sizeof head);
    core_.unshared ? to.give_back<false>(charge) : to.give_back<true>(charge);
    return true;
  }
  return false;
}

void Tagged::tell_taken(Offered& offered) {
  const wire::TakenPlace body{offered.index, offered.word};
  offered.told = post_word(offered.view->to, wire::Word::taken, &body, sizeof body);
}

bool Tagged::advance_pushing() {
  bool moved = false;
  for (Offered *offered = pushing_, *next = nullptr; offered != nullptr; offered = next) {
    next = offered->next;  // code that runs at the end of a send adds to the front only
    const BoardPlace& place = *offered->place;
    if (!offered->told) {
      tell_taken(*offered);
      moved = moved || offered->told;
    }
    // which no sane receiver does
    const bool lost = place.word.load(std::memory_order_relaxed) != offered->word;
    if (!lost && !wire::all_finished(place, offered->total)) {
      if (may_push(*offered) && push_part(*offered)) moved = true;
      continue;
    }
    if (!lost && !offered->told) continue;  // the receiver would never look
    const std::int32_t told = place.status.load(std::memory_order_relaxed);
    const auto status = lost || !wire::status_known(told) ? HEDDLE_ERR_PROTOCOL : static_cast<base::Status>(told);
    offered->operation->served = 0;
    // which leaves the place
    core_.operations.complete(*offered->operation, status, offered->view->to.rank);
    moved = true;
  }
  return moved;
}

// The side that waits in the library copies. The receiver begins, since it may copy together with
// the sender.
bool Tagged::may_push(const Offered& offered) {
  const BoardPlace& place = *offered.place;
  if (offered.view->alone == View::Alone::impossible) return false;
  if (offered.began || place.shared.load(std::memory_order_relaxed) != 0) return true;
  return place.next.load(std::memory_order_relaxed) == 0 && core_.job.clock().now_ns() - offered.since >= kGraceNs;
}

bool Tagged::reach(Offered& offered) {
  if (!offered.imported) {
    transport::MemoryKey key;
    std::memcpy(key.bytes.data(), offered.place->key, sizeof offered.place->key);
    try {
      const auto memory = core_.job.transport().try_import(offered.view->to.rank, key);
      if (!memory) return false;
      offered.room = *memory;
    } catch (const std::bad_alloc&) {
      return false;
    }
    offered.imported = true;
  }
  if (offered.room.bytes < offered.total) return false;
  if (offered.view->alone == View::Alone::untried) {
    std::byte first{};
    const bool possible = copy_alone(offered.view->to, offered.room, transport::Opcode::get, &first, {0, 1});
    offered.view->alone = possible ? View::Alone::possible : View::Alone::impossible;
  }
  return offered.view->alone == View::Alone::possible;
}

bool Tagged::copy_alone(heddle_peer peer, const transport::RemoteMemory& remote, transport::Opcode opcode, void* local,
                        wire::BoardPart part) {
  transport::Command command;
  command.opcode = opcode;
  command.alone = true;
  command.rank = peer.rank;
  command.worker = peer.worker;
  command.local = local;
  command.bytes = part.bytes;
  command.remote = &remote;
  command.offset = part.at;
  try {
    return transport_.post({&command, 1}) == 1 && command.done;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool Tagged::push_part(Offered& offered) {
  BoardPlace& place = *offered.place;
  wire::BoardPart& part = offered.left;
  if (!reach(offered)) return false;
  if (part.bytes == 0 && !wire::claim_part(place, offered.total, kPushedPart, &part)) return false;
  offered.began = true;
  auto* const source = static_cast<std::byte*>(offered.memory.memory.address);
  if (copy_alone(offered.view->to, offered.room, transport::Opcode::put, source + part.at, part)) {
    wire::finish_part(place, std::exchange(part.bytes, 0), HEDDLE_DONE);
    offered.failing_since = 0;
    return true;
  }
  // The receiver has died, which will be reported; or it has unmapped its buffer.
  const std::uint64_t now = core_.job.clock().now_ns();
  if (offered.failing_since == 0) offered.failing_since = now;
  if (now - offered.failing_since < kFailingNs) return false;
  wire::finish_part(place, std::exchange(part.bytes, 0), HEDDLE_ERR_RANGE);
  wire::cancel_rest(place, offered.total, HEDDLE_ERR_RANGE);
  return true;
}

// The operation has ended, perhaps early: this side copies nothing more, and its memory should not
// be read any more.
void Tagged::leave_place(Offered& offered) {
  Offered** link = &pushing_;
  while (*link != &offered) link = &(*link)->next;
  *link = offered.next;
  BoardPlace& place = *offered.place;
  wire::abandon_place(place, offered.left, offered.total);
  if (offered.imported) core_.job.transport().release(offered.room);
  wire::leave_place(place, wire::generation_of(offered.word));
  offered.view = nullptr;
}

}  // namespace heddle::protocol
