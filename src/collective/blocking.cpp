#include "collective/blocking.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <span>

#include "collective/collective.hpp"

namespace heddle::collective {
namespace {

// Keys that a team keeps operations for, and the memory that these may take, about.
constexpr std::size_t kMostKept = 64;
constexpr std::uint64_t kMostKeptBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kFewKeptBytes = std::uint64_t{2} << 20;  // if a member keeps much in all
// A key gets more operations after so many calls, if these let some members run ahead of others, as
// far as their bytes allow. Each is set up, and takes memory that all teams share.
constexpr std::uint32_t kOften = 16;
constexpr std::uint64_t kTurns = 8;
constexpr std::ptrdiff_t kMostAhead = 8;  // keys
// Lengths of calls of blocks that may come again.
constexpr std::size_t kMostLately = 8;

// Calls go in pieces of this many bytes, which are still in the cache when they are copied on.
constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 10;

// Many members wait longer for each other, so their pieces are longer. Those of a reduction up a
// tree are copied more often.
std::uint64_t long_piece(const Call& call) {
  constexpr std::uint64_t kMostOfShort = std::uint64_t{1} << 20;
  const bool shorter = call.bytes <= kMostOfShort || call.operation == Operation::reduce;
  return std::uint64_t{shorter ? 256U : 512U} << 10;
}

bool lets_run_ahead(Operation operation) {
  return operation == Operation::broadcast || operation == Operation::reduce;
}

bool has_blocks(Operation operation) {
  switch (operation) {
    case Operation::gather:
    case Operation::allgather:
    case Operation::scatter:
    case Operation::alltoall:
    case Operation::reduce_scatter:
      return true;
    default:
      return false;
  }
}

// Not zero, and whole elements.
std::uint64_t whole_elements(std::uint64_t bytes, const Call& call) {
  return std::max(bytes / call.element_bytes * call.element_bytes, call.element_bytes);
}

// The bytes of the call from `at` on.
Call piece_of(const Call& call, std::uint64_t at, std::uint64_t bytes) {
  Call piece = call;
  piece.bytes = bytes;
  piece.whole = call.bytes;
  if (call.send != nullptr) piece.send = static_cast<const std::byte*>(call.send) + at;
  if (call.receive != nullptr) piece.receive = static_cast<std::byte*>(call.receive) + at;
  return piece;
}

// Two for pieces of `most` bytes, if the call has two of them; the last piece is shorter.
std::size_t operations_for(std::uint64_t bytes, std::uint64_t most, const Call& call) {
  return bytes == most && 2 * most <= call.bytes ? 2 : 1;
}

}  // namespace

BlockingCalls::BlockingCalls(Team& team) : team_(team) {
  lately_.reserve(kMostLately);
}

BlockingCalls::~BlockingCalls() {
  drop_until(0);
}

// ---- operations that are kept -------------------------------------------------------------------

std::size_t BlockingCalls::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = static_cast<std::uint64_t>(key.operation) << 32 | key.root;
  for (const std::uint64_t part : {key.bytes, key.whole, key.element_bytes, std::uint64_t{key.reduction_name}})
    hash = (hash ^ part) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 32;
}

BlockingCalls::Key BlockingCalls::key_of(const Call& call) {
  return {call.operation, call.root, call.bytes, call.whole, call.element_bytes, call.reduction_name, call.apart};
}

// Waits until all members make the same call.
BlockingCalls::Opened BlockingCalls::open(const Call& call) {
  for (;;) {
    auto made = Collective::make(team_, call, Use::kept);
    Opened opened;
    opened.status = made.status();
    if (!made) return opened;
    Collective& collective = **made;
    collective.set_number(team_.calls());
    team_.setups().submit(collective);
    opened.status = collective.wait_ready();
    if (team_.networks().decided(opened.status, collective.by_interface())) continue;
    opened.out_of_memory = collective.shared_error() == HEDDLE_ERR_NO_MEMORY;
    opened.crowded = collective.crowded();
    if (opened.status == HEDDLE_DONE) opened.collective = std::move(*made);
    return opened;
  }
}

// The key's first operation.
base::Result<BlockingCalls::Place> BlockingCalls::add(const Call& call, std::size_t most) {
  std::list<Kept> made(1);  // what may fail at this member alone comes first
  Kept& one = made.front();
  one.key = key_of(call);
  one.most = most;
  one.turns.reserve(kTurns);
  one.room = call.bytes * (has_blocks(call.operation) ? team_.size() : 2);
  kept_by_key_.reserve(kMostKept + 1);
  Opened opened = open(call);
  if (opened.out_of_memory && !kept_.empty()) {
    drop_until(0);
    opened = open(call);
  }
  if (opened.collective == nullptr) {
    out_of_memory_ = opened.out_of_memory;
    return opened.status;
  }
  add_turn(one, std::move(opened.collective));
  kept_.splice(kept_.begin(), made);
  kept_by_key_.emplace(one.key, kept_.begin());
  if (kept_.size() > kMostKept) drop_last();
  drop_until(opened.crowded ? kFewKeptBytes : kMostKeptBytes);
  return kept_.begin();
}

void BlockingCalls::add_turn(Kept& kept, std::unique_ptr<Collective> collective) {
  kept.turns.push_back(std::move(collective));
  room_ += kept.room;
  team_.commons().keep(kept.room);
}

// All but the first, or all if most_bytes is 0.
void BlockingCalls::drop_until(std::uint64_t most_bytes) {
  while (kept_.size() > (most_bytes > 0 ? 1U : 0U) && (most_bytes == 0 || room_ > most_bytes)) drop_last();
}

void BlockingCalls::drop_last() {
  const Kept& last = kept_.back();
  const std::uint64_t room = last.room * last.turns.size();
  room_ -= room;
  team_.commons().keep_no_longer(room);
  kept_by_key_.erase(last.key);
  kept_.pop_back();
}

base::Status BlockingCalls::run_piece(const Call& call, std::size_t most) {
  const Key key = key_of(call);
  if (!kept_.empty() && kept_.front().key == key) return run_in(kept_.front(), call);
  Place place;
  if (const auto known = kept_by_key_.find(key); known != kept_by_key_.end()) {
    place = known->second;
  } else {
    const auto added = add(call, most);
    if (!added) return added.status();
    place = *added;
  }
  const base::Status status = run_in(*place, call);
  if (status == HEDDLE_DONE) kept_.splice(kept_.begin(), kept_, place);
  return status;
}

// In the operation whose turn it is.
base::Status BlockingCalls::run_in(Kept& kept, const Call& call) {
  if (kept.turns.size() < kept.most && kept.calls > 0) {
    Opened opened = open(call);
    if (opened.collective != nullptr) {
      kept.turn = kept.turns.size();
      add_turn(kept, std::move(opened.collective));
    } else if (opened.out_of_memory) {
      kept.most = kept.turns.size();
    } else {
      return opened.status;
    }
  }
  Collective& now = *kept.turns[kept.turn];
  now.set_number(team_.calls());
  if (const base::Status status = now.run_with(call); status != HEDDLE_DONE) return status;
  kept.turn = kept.turn + 1 < kept.turns.size() ? kept.turn + 1 : 0;
  count(kept);
  return HEDDLE_DONE;
}

// A run has ended well.
void BlockingCalls::count(Kept& kept) const {
  if (kept.calls == kOften) return;
  ++kept.calls;
  const bool is_piece = kept.key.whole > kept.key.bytes;
  if (kept.calls < kOften || is_piece || !lets_run_ahead(kept.key.operation)) return;
  const auto is_ahead = [](const Kept& one) { return one.calls == kOften && one.most > 1; };
  if (std::ranges::count_if(kept_, is_ahead) >= kMostAhead) return;
  const std::uint64_t room = kept.key.operation == Operation::broadcast ? 2 * kPieceBytes : kPieceBytes;
  kept.most = std::clamp(room / std::max<std::uint64_t>(kept.key.bytes, 1), std::uint64_t{kept.most}, kTurns);
}

// ---- in pieces ----------------------------------------------------------------------------------

base::Status BlockingCalls::run(const Call& call) {
  switch (call.operation) {
    case Operation::barrier:
      return run_piece(call);
    case Operation::broadcast:
    case Operation::reduce:
    case Operation::allreduce:
    case Operation::scan:
      return run_vector(call);
    case Operation::allgather:
    case Operation::alltoall:
    case Operation::reduce_scatter:
      if (may_cut(call)) return run_blocks(call);
      [[fallthrough]];
    case Operation::gather:
    case Operation::scatter:
      return call.bytes * team_.size() <= kPieceBytes ? run_piece(call) : run_whole(call);
    default:
      // the lists of other members may have changed, though this member's have not
      return run_whole(call);
  }
}

base::Status BlockingCalls::run_whole(const Call& call) {
  base::show_told();
  for (;;) {
    auto made = team_.open(call, Use::once);
    if (!made) return made.status();
    Collective& collective = **made;
    if (kept_.empty()) return collective.wait(HEDDLE_FOREVER);
    const base::Status status = collective.wait_ready();
    const bool again = status != HEDDLE_DONE && collective.shared_error() == HEDDLE_ERR_NO_MEMORY;
    if (!again) return collective.wait(HEDDLE_FOREVER);
    static_cast<void>(collective.wait(HEDDLE_FOREVER));  // it ends
    drop_until(0);
  }
}

base::Status BlockingCalls::run_vector(const Call& call) {
  const bool many = team_.mapped() && team_.size() > 2 && team_.size() <= kFewRanks;
  const std::uint64_t most = whole_elements(many ? long_piece(call) : kPieceBytes, call);
  for (std::uint64_t at = 0; at < call.bytes; at += most) {
    const std::uint64_t bytes = std::min(most, call.bytes - at);
    const base::Status status = run_piece(piece_of(call, at, bytes), operations_for(bytes, most, call));
    if (status != HEDDLE_DONE) return status;
  }
  return HEDDLE_DONE;
}

// ---- in pieces of all blocks --------------------------------------------------------------------

bool BlockingCalls::may_cut(const Call& call) const {
  if (!team_.mapped() || call.bytes * team_.size() <= kPieceBytes || team_.size() > kFewRanks) return false;
  AlgorithmRequest request;
  request.operation = call.operation;
  request.ranks = team_.size();
  request.bytes = call.bytes;
  request.element_bytes = call.element_bytes;
  return team_.commons().selection().may_cut(request);
}

// Pieces are copied twice, but in the cache, and no member waits for all others before it begins.
// They take memory and have to be set up, which pays only if the call is repeated.
base::Status BlockingCalls::run_blocks(const Call& call) {
  const bool repeated = std::ranges::find(lately_, Length{call.operation, call.bytes}) != lately_.end();
  if (!repeated) {
    const base::Status status = run_whole(call);
    if (status == HEDDLE_DONE) remember(call);
    return status;
  }
  Reached reached = reached_;
  const base::Status status = run_blocks_again(call, &reached);
  if (status != HEDDLE_DONE) return status;
  reached_ = reached;
  remember(call);
  return HEDDLE_DONE;
}

base::Status BlockingCalls::run_blocks_again(const Call& call, Reached* reached) {
  constexpr std::uint64_t kFewBytes = std::uint64_t{128} << 10;
  const bool puts = call.operation != Operation::reduce_scatter;
  if (!puts || call.bytes < kFewBytes) return run_apart(call);
  if (const base::Status status = ask(call, reached); status != HEDDLE_DONE) return status;
  return reached->answer ? run_whole(call) : run_apart(call);
}

base::Status BlockingCalls::run_apart(const Call& call) {
  out_of_memory_ = false;
  const base::Status status = run_pieces(call);
  return out_of_memory_ ? run_whole(call) : status;
}

base::Status BlockingCalls::run_pieces(const Call& call) {
  const std::uint64_t most = whole_elements(team_.size() == 2 ? kPieceBytes / 2 : kPieceBytes, call);
  for (std::uint64_t at = 0; at < call.bytes; at += most) {
    const std::uint64_t bytes = std::min(most, call.bytes - at);
    Call piece = piece_of(call, at, bytes);
    piece.apart = bytes < call.bytes;
    const base::Status status = run_piece(piece, operations_for(bytes, most, call));
    if (status != HEDDLE_DONE) return status;
  }
  return HEDDLE_DONE;
}

void BlockingCalls::remember(const Call& call) {
  const Length one{call.operation, call.bytes};
  const auto known = std::ranges::find(lately_, one);
  if (known != lately_.end()) {
    std::rotate(lately_.begin(), known, known + 1);
    return;
  }
  if (lately_.size() == kMostLately) lately_.pop_back();
  lately_.insert(lately_.begin(), one);
}

base::Status BlockingCalls::ask(const Call& call, Reached* reached) {
  if (--reached->left > 0) return HEDDLE_DONE;
  constexpr std::uint32_t kMostPeriod = 64;
  const engine::Region* const region = team_.context().objects().region_around(call.receive, call.bytes * team_.size());
  const bool mine = region != nullptr && region->allocated;
  std::array<bool, kFewRanks> ours{};
  std::array<bool, kFewRanks> theirs{};
  ours.fill(mine);
  // As a piece of the call, so that reports name it, and it is compared where it is new.
  Call question = call;
  question.send = ours.data();
  question.receive = theirs.data();
  question.bytes = sizeof mine;
  question.whole = call.bytes;
  if (const base::Status status = run_piece(question); status != HEDDLE_DONE) return status;
  const bool answer = std::ranges::all_of(std::span(theirs).first(team_.size()), std::identity());
  reached->period = answer == reached->answer ? std::min(2 * reached->period, kMostPeriod) : 1;
  reached->left = reached->period;
  reached->answer = answer;
  return HEDDLE_DONE;
}

}  // namespace heddle::collective
