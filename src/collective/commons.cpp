#include "collective/commons.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "collective/assembly.hpp"
#include "collective/collective.hpp"
#include "collective/team.hpp"
#include "worker/worker.hpp"

namespace heddle::collective {

namespace {

// Scratch regions that are kept have at most this many times the bytes of the arena.
constexpr std::uint64_t kKeptTimes = 2;

// Counts itself while it exists.
class Visitor {
 public:
  explicit Visitor(std::atomic<std::uint32_t>& count) : count_(count) {
    count_.fetch_add(1, std::memory_order_seq_cst);
  }
  ~Visitor() { count_.fetch_sub(1, std::memory_order_seq_cst); }
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;

 private:
  std::atomic<std::uint32_t>& count_;
};

}  // namespace

base::Result<Commons*> Commons::of(worker::Context& context) {
  if (auto* known = static_cast<Commons*>(context.attachment()); known != nullptr) return known;
  const base::Config& config = context.environment().config;
  auto table = SelectionTable::read(config.text(base::Var::collective_table));
  if (!table) return table.status();
  auto selection = Selection::read(config.text(base::Var::collective_algorithms),
                                   config.number(base::Var::collective_segment_bytes), std::move(*table));
  if (!selection) return selection.status();
  auto region = context.objects().open_region(nullptr, config.number(base::Var::collective_bytes));
  if (!region) return region.status();
  auto* attached = static_cast<Commons*>(context.attach(std::make_unique<Commons>(context, *selection, **region)));
  // another thread was faster
  if (&attached->region_ != *region) context.objects().close_region(*region);
  return attached;
}

Commons::Commons(worker::Context& context, Selection selection, engine::Region& region)
    : context_(context),
      selection_(std::move(selection)),
      region_(region),
      arena_(static_cast<std::byte*>(region.memory.address), region.memory.bytes),
      scratch_(context, kKeptTimes * region.memory.bytes),
      teams_(std::make_unique<engine::Owned<Team>>()),
      collectives_(std::make_unique<engine::Owned<Collective>>()) {}

// Regions, imported ones too, belong to the context and end with it.
Commons::~Commons() = default;

bool Commons::direct_to(std::span<const std::uint32_t> ranks) const {
  const transport::Transport& transport = context_.transport();
  return std::ranges::all_of(ranks,
                             [&](std::uint32_t rank) { return rank == context_.rank() || transport.direct_to(rank); });
}

bool Commons::direct() const {
  const transport::Transport& transport = context_.transport();
  for (std::uint32_t rank = 0; rank < context_.size(); ++rank) {
    if (rank != context_.rank() && !transport.direct_to(rank)) return false;
  }
  return true;
}

base::Status Commons::open_port() {
  if (direct() || port() != nullptr) return HEDDLE_DONE;
  worker::Context::WorkerOptions options;
  options.sharing = worker::Sharing::shared;
  options.internal = true;
  auto opened = context_.open_worker(options);
  if (!opened) return opened.status();
  port_.store(*opened, std::memory_order_release);
  return HEDDLE_DONE;
}

void Commons::know(std::span<const PackedRegion> arenas) {
  const std::lock_guard lock(peers_mutex_);
  if (!packed_.empty()) return;
  arenas_.resize(arenas.size());
  packed_.assign(arenas.begin(), arenas.end());
}

bool Commons::knows() const {
  const std::lock_guard lock(peers_mutex_);
  return !packed_.empty();
}

std::size_t Commons::met() const {
  const std::lock_guard lock(peers_mutex_);
  return arenas_.size() - static_cast<std::size_t>(std::ranges::count(arenas_, nullptr));
}

base::Result<engine::RemoteRegion*> Commons::arena_of(std::uint32_t rank) {
  const std::lock_guard lock(peers_mutex_);
  if (arenas_[rank] != nullptr) return arenas_[rank];
  auto imported = context_.objects().import(packed_[rank]);
  if (!imported) return imported;
  if ((*imported)->direct == nullptr && port() == nullptr && rank != context_.rank()) {
    context_.objects().close_remote(*imported);
    return base::fail(HEDDLE_ERR_UNSUPPORTED, "the memory of rank %u cannot be mapped here, though that of others can",
                      rank);
  }
  (*imported)->server = context_.internal_worker();
  arenas_[rank] = *imported;
  return imported;
}

void Commons::enlist(Collective& collective) {
  const std::lock_guard lock(list_mutex_);
  list_.push_back(&collective);
}

void Commons::delist(Collective& collective) {
  {
    const std::lock_guard lock(list_mutex_);
    std::erase(list_, &collective);
  }
  base::Waiter waiter(context_.clock(), HEDDLE_FOREVER, &context_.crowd());
  while (collective.visited()) {
    static_cast<void>(waiter.idle());
    if (const std::int64_t ns = waiter.nap_ns(); ns > 0 && !collective.fetch(ns))
      context_.nap(std::span<worker::Worker* const>(), ns);
  }
}

queue::BellPull* Commons::bell_of(std::uint32_t rank) {
  const std::lock_guard lock(peers_mutex_);
  if (const auto known = bells_.find(rank); known != bells_.end()) return &known->second;
  const std::optional<queue::BellPull> bell = context_.transport().stores_bell(rank);
  return bell ? &bells_.emplace(rank, *bell).first->second : nullptr;
}

worker::Attachment::Found Commons::advance() {
  const Visitor inside(inside_);
  Found found = Found::nothing;
  for (std::size_t i = 0; !ended_.load(std::memory_order_seq_cst); ++i) {
    Collective* collective = nullptr;
    {
      const std::lock_guard lock(list_mutex_);
      while (i < list_.size() && !list_[i]->wants_help()) ++i;
      if (i >= list_.size()) break;  // the list may have become shorter meanwhile
      collective = list_[i];
      collective->visit();
    }
    const Found here = collective->move_on_as_anybody();
    // Its own thread may sleep until then; what this thread has taken rings no more.
    const bool ended = here == Found::moved && !collective->wants_help();
    collective->leave();
    if (ended) context_.transport().ring();
    found = std::max(found, here);
  }
  // Puts of peers to this rank may need it, even if no operation of this rank is under way.
  if (worker::Worker* worker = port(); worker != nullptr && !ended_.load(std::memory_order_seq_cst))
    if (worker->progress() > 0) found = Found::moved;
  return found;
}

bool Commons::active() const {
  const std::lock_guard lock(list_mutex_);
  return std::ranges::any_of(list_, [](const Collective* collective) { return collective->wants_help(); });
}

std::uint64_t Commons::moves() const {
  std::uint64_t ended = 0;
  teams_->for_each([&](const Team& team) { ended += team.ended(); });
  return ended;
}

void Commons::tell(tap::Snapshot* snapshot) const {
  {
    const std::lock_guard lock(list_mutex_);
    for (const Collective* collective : list_) {
      if (!collective->active() || snapshot->steps.size() == tap::kMostListed) continue;
      snapshot->steps.push_back(collective->step());
    }
  }
  teams_->for_each([&](Team& team) {
    if (team.passed() == 0 || snapshot->passed.size() == tap::kMostListed) return;
    snapshot->passed.push_back({team.identity(), team.passed()});
  });
}

std::uint64_t digest_of(std::span<const std::uint32_t> ranks) {
  const std::uint64_t digest = wire::digest(std::as_bytes(ranks));
  return (digest & 0xFFFF'0000U) | 1;  // room for the number of teams alike
}

std::uint32_t Commons::count_team(std::span<const std::uint32_t> ranks) {
  const std::lock_guard lock(list_mutex_);
  return teams_made_[digest_of(ranks)]++;
}

void Commons::end() {
  ended_.store(true, std::memory_order_seq_cst);
  base::Waiter waiter(context_.clock(), HEDDLE_FOREVER, &context_.crowd());
  while (inside_.load(std::memory_order_seq_cst) > 0) {
    static_cast<void>(waiter.idle());
    if (const std::int64_t ns = waiter.nap_ns(); ns > 0 && !fetch_any(ns))
      context_.nap(std::span<worker::Worker* const>(), ns);
  }
  const std::uint64_t offloaded = offloaded_.load(std::memory_order_relaxed);
  const std::uint64_t others = not_offloaded_.load(std::memory_order_relaxed);
  if (offloaded + others == 0 || !context_.environment().config.flag(base::Var::stats)) return;
  context_.environment().log.say("collectives: persistent %llu offloaded %llu",
                                 static_cast<unsigned long long>(offloaded + others),
                                 static_cast<unsigned long long>(offloaded));
}

bool Commons::fetch_any(std::int64_t sleep_ns) {
  const std::lock_guard lock(list_mutex_);
  return std::ranges::any_of(list_, [&](Collective* collective) { return collective->fetch(sleep_ns); });
}

int Commons::progress() {
  worker::Worker* worker = port();
  return worker == nullptr ? 0 : std::max(worker->progress(), 0);
}

std::uint64_t Commons::moved_on(const Waits& waits) {
  return waits.worker == nullptr ? 0 : waits.worker->moved();
}

int Commons::progress_beside(const Waits& waits, bool* rings) {
  const int events = waits.worker == nullptr ? 0 : std::max(waits.worker->progress(), 0);
  const int found = waits.progress == nullptr ? 0 : waits.progress(waits.arg);
  *rings = found == 0;
  return events + std::max(found, 0);
}

int Commons::progress_all() {
  return context_.helpers().attend(true) + (advance() == Found::moved ? 1 : 0);
}

int Commons::attend() {
  return context_.helpers().attend(false);
}

namespace {

constexpr std::uint64_t lines(std::uint64_t bytes) {
  return (bytes + base::kCacheLine - 1) / base::kCacheLine * base::kCacheLine;
}

}  // namespace

Arena::Arena(std::byte* base, std::uint64_t bytes) : base_(base), bytes_(bytes) {
  free_.emplace(0, bytes);
}

std::optional<std::uint64_t> Arena::take(std::uint64_t bytes) {
  sweep();
  const std::uint64_t wanted = std::max<std::uint64_t>(lines(bytes), base::kCacheLine);
  std::uint64_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto room = std::ranges::find_if(free_, [&](const auto& piece) { return piece.second >= wanted; });
    if (room == free_.end()) return std::nullopt;
    offset = room->first;
    const std::uint64_t left = room->second - wanted;
    taken_.emplace(offset, wanted);
    free_.erase(room);
    if (left > 0) free_.emplace(offset + wanted, left);
  }
  return offset;
}

void Arena::release(std::uint64_t offset) {
  const auto piece = taken_.find(offset);
  if (piece == taken_.end()) return;
  auto at = free_.emplace(offset, piece->second).first;
  taken_.erase(piece);
  if (const auto next = std::next(at); next != free_.end() && at->first + at->second == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  if (const auto before = std::prev(at); before->first + before->second == at->first) {
    before->second += at->second;
    free_.erase(at);
  }
}

void Arena::give_back(std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  release(offset);
}

void Arena::give_back_after(std::uint64_t offset, std::vector<std::uint64_t> counters, std::function<void()> last) {
  {
    const std::lock_guard lock(mutex_);
    late_.push_back({offset, std::move(counters), std::move(last)});
  }
  sweep();
}

bool Arena::arrived(const Late& late) const {
  const auto* words = reinterpret_cast<const CounterWord*>(base_ + late.offset);
  for (std::size_t i = 0; i < late.counters.size(); ++i)
    if (words[i].credits.load(std::memory_order_acquire) < late.counters[i]) return false;
  return true;
}

void Arena::sweep() {
  std::vector<Late> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto first = std::partition(late_.begin(), late_.end(), [this](const Late& late) { return !arrived(late); });
    gone.assign(std::make_move_iterator(first), std::make_move_iterator(late_.end()));
    late_.erase(first, late_.end());
    for (const Late& late : gone) release(late.offset);
  }
  for (const Late& late : gone)
    if (late.last) late.last();
}

engine::Region* Scratch::take_kept(std::uint64_t bytes) {
  // A much larger one is left to the operations that need it.
  constexpr std::uint64_t kMostTimes = 4;
  const std::lock_guard lock(mutex_);
  auto best = kept_.end();
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    const std::uint64_t have = (*at)->memory.bytes;
    if (have < bytes || have / kMostTimes > bytes) continue;
    if (best == kept_.end() || have < (*best)->memory.bytes) best = at;
  }
  if (best == kept_.end()) return nullptr;
  engine::Region* const region = *best;
  kept_.erase(best);
  kept_bytes_ -= region->memory.bytes;
  return region;
}

base::Result<engine::Region*> Scratch::take(std::uint64_t bytes) {
  if (engine::Region* const region = take_kept(bytes); region != nullptr) return region;
  return context_.objects().open_region(nullptr, bytes);
}

void Scratch::give_back(engine::Region* region) {
  if (engine::Region* const one = keep(region); one != nullptr) context_.objects().close_region(one);
  while (engine::Region* const one = take_surplus()) context_.objects().close_region(one);
}

// Null: it is kept; else the region itself.
engine::Region* Scratch::keep(engine::Region* region) {
  const std::lock_guard lock(mutex_);
  if (kept_.size() == kept_.capacity()) return region;
  kept_.push_back(region);
  kept_bytes_ += region->memory.bytes;
  return nullptr;
}

engine::Region* Scratch::take_surplus() {
  const std::lock_guard lock(mutex_);
  if (kept_bytes_ <= most_kept_) return nullptr;
  engine::Region* const oldest = kept_.front();
  kept_.erase(kept_.begin());
  kept_bytes_ -= oldest->memory.bytes;
  return oldest;
}

std::optional<TeamPiece> TeamPiece::take(Arena& arena, std::uint32_t members) {
  const auto offset = arena.take(Assembly::bytes(members));
  if (!offset) return std::nullopt;
  Assembly::prepare(arena, *offset, members);
  return TeamPiece(arena, *offset);
}

void Offers::add(TeamPiece piece, TeamRecord* record) {
  const std::lock_guard lock(mutex_);
  record->number = ++last_;
  record->piece = piece.offset();
  open_.emplace(record->number, Offer{*record, std::move(piece)});
}

std::optional<TeamPiece> Offers::take(const TeamRecord& record) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(record.number);
  if (found == open_.end() || std::memcmp(&found->second.record, &record, sizeof record) != 0) return std::nullopt;
  std::optional<TeamPiece> piece(std::move(found->second.piece));
  open_.erase(found);
  return piece;
}

}  // namespace heddle::collective
