#include "collective/collective.hpp"

#include <algorithm>
#include <cinttypes>
#include <mutex>

#include "collective/algorithms/tree.hpp"
#include "collective/exchange.hpp"
#include "collective/givers.hpp"
#include "collective/reduction.hpp"
#include "engine/worker.hpp"

namespace heddle::collective {
namespace {

using Where = Record::Where;

// What start() moves itself; more is left to those who wait or help, so that it returns at once.
constexpr std::uint64_t kStartBytes = 2048;

constexpr std::uint64_t lines(std::uint64_t bytes) {
  return (bytes + base::kCacheLine - 1) / base::kCacheLine * base::kCacheLine;
}

std::uint32_t row_of(const Algorithm* algorithm) {
  return static_cast<std::uint32_t>(algorithm - algorithms().data());
}

std::string text_of(const Record& record) {
  if (record.kind != Record::Kind::operation) return "makes a team";
  std::array<char, 256> text{};
  const auto operation = std::min(record.operation, static_cast<std::uint32_t>(Operation::kCount) - 1);
  const char* algorithm =
      record.algorithm < algorithms().size() ? algorithms()[record.algorithm].name : "an unknown algorithm";
  if (lists_blocks(static_cast<Operation>(operation))) {
    std::snprintf(text.data(), text.size(), "calls %s with lists of blocks, root %u, by %s",
                  name_of(static_cast<Operation>(operation)), record.root, algorithm);
    return text.data();
  }
  std::snprintf(text.data(), text.size(),
                "calls %s of %" PRIu64 " bytes, root %u, elements of %" PRIu64
                " bytes, reduction %s, by %s in segments of %" PRIu64,
                name_of(static_cast<Operation>(operation)), record.bytes, record.root, record.element_bytes,
                reduction_text(record.reduction).data(), algorithm, record.segment_bytes);
  return text.data();
}

// What the texts of two calls do not show.
const char* hint(const Record& a, const Record& b) {
  if (a.kind != b.kind || a.operation != b.operation || a.bytes != b.bytes) return "";
  if (a.whole != b.whole) return " (one of them in the blocking form)";
  if (a.algorithm == b.algorithm && a.segment_bytes == b.segment_bytes) return "";
  return " (HEDDLE_COLLECTIVE_ALGORITHMS, _TABLE and _SEGMENT_BYTES are to be the same for all ranks)";
}

bool agree(const Record& a, const Record& b) {
  return a.kind == b.kind && a.operation == b.operation && a.root == b.root && a.bytes == b.bytes &&
         a.whole == b.whole && a.element_bytes == b.element_bytes && a.segment_bytes == b.segment_bytes &&
         a.reduction == b.reduction && a.algorithm == b.algorithm;
}

}  // namespace

base::Result<Collective*> Collective::open(Team& team, const Call& call, Use use) {
  auto made = make(team, call, use);
  if (!made) return made.status();
  Collective* raw = made->get();
  auto added = team.commons().collectives().add(std::move(*made));
  if (!added) return added;  // nobody was told: the others wait for a call that can be made
  team.opened();
  raw->opened_ = true;
  team.commons().enlist(*raw);
  raw->listed_ = true;
  team.submit(*raw);
  engine::Helpers& helpers = team.context().helpers();
  if (raw->active() && helpers.asleep()) helpers.wake();
  return raw;
}

base::Result<std::unique_ptr<Collective>> Collective::make(Team& team, const Call& call, Use use) {
  std::unique_ptr<Collective> made(new Collective(team, call, use));
  if (const base::Status status = made->choose(); status != HEDDLE_DONE) return status;  // a mistake that all make
  try {
    made->record_.status = made->prepare_places();
  } catch (const std::bad_alloc&) {
    made->record_.status = HEDDLE_ERR_NO_MEMORY;
  }
  try {
    if (made->record_.status == HEDDLE_DONE) made->open_offload();
  } catch (const std::bad_alloc&) {
    made->drop_offload();  // it was a help, and nobody has been told
  }
  return made;
}

Collective::~Collective() {
  if (listed_) team_.commons().delist(*this);
  if (stage() == Stage::setting_up) team_.withdraw(*this);
  for (engine::RemoteRegion* remote : imported_) team_.context().close_remote(remote);
  retire();
  if (opened_) team_.closed();
}

void Collective::retire() {
  if (!has_piece_) return;
  Arena& arena = team_.commons().arena();
  engine::Context* context = &team_.context();
  const auto close_scratch = [context, region = scratch_region_] {
    if (region != nullptr) context->close_region(region);
  };
  // Where members' lists do not fit each other, all members are told, and nobody runs it.
  // Nor where calls differ, if all have been heard: else others may have heard more than this member, and run it.
  const bool refused_by_all = record_.status != HEDDLE_DONE || (heard_all_ && !agreed_);
  const bool never = !told_ || unlike_ || (stage() == Stage::refused && refused_by_all);
  const bool ran = stage() == Stage::ready && run_over() && run_status() == HEDDLE_DONE;
  if (offload_ != nullptr) {
    // What peers give to its queues has all come with the last run, unless one of them is a run further than this member.
    const bool nobody_began = never || (agreed_ && stage() == Stage::refused && refusal_ != HEDDLE_ERR_PEER_FAILED);
    const bool all_has_come = ran && !team_.failed_member();
    if (!nobody_began && !all_has_come) offload_->leave();
    offload_.reset();
    if (!nobody_began && !agreed_) return;  // the others may run it by software, which puts there
    arena.give_back(record_.counters);
    close_scratch();
  } else if (ran) {
    arena.give_back_after(record_.counters, final_counters(schedule_, queue_->runs()), close_scratch);
  } else if (never) {
    arena.give_back(record_.counters);
    close_scratch();
  }
  // Else what peers put may still come: it stays theirs until the context ends.
}

// ---- making ready -----------------------------------------------------------------------------------------------------------

base::Status Collective::choose() {
  request_.operation = call_.operation;
  request_.rank = team_.rank();
  request_.ranks = team_.size();
  request_.root = call_.root;
  request_.bytes = call_.bytes;
  request_.element_bytes = call_.element_bytes;
  request_.shape = even_shape(request_.ranks);
  if (call_.lists != nullptr) {
    lists_ = *call_.lists;
    request_.exchanges = std::span(&lists_, 1);
    call_.lists = nullptr;  // the caller's
  }
  auto choice = team_.commons().selection().choose(call_, request_, use_ != Use::kept, team_.mapped());
  if (!choice) return choice.status();
  choice_ = *choice;
  if (choice_.algorithm->session && use_ == Use::persistent) choice_.segment_bytes = segment_for_queues();
  request_.segment_bytes = choice_.segment_bytes;
  request_.spread = spreads();
  record_.operation = static_cast<std::uint32_t>(call_.operation);
  record_.root = call_.root;
  record_.bytes = call_.bytes;
  record_.element_bytes = call_.element_bytes;
  record_.segment_bytes = choice_.segment_bytes;
  record_.reduction = call_.reduction_name;
  record_.algorithm = row_of(choice_.algorithm);
  record_.whole = call_.whole;
  return HEDDLE_DONE;
}

// Counters stand in the arena. So do slots, if they are not too large.
base::Status Collective::prepare_places() {
  Commons& commons = team_.commons();
  const std::uint64_t received = receive_bytes(request_, request_.rank);
  using Reach = Algorithm::Reach;
  const Reach reach = received > 0 ? choice_.algorithm->reach : Reach::none;
  const bool is_root = call_.operation == Operation::broadcast && request_.rank == request_.root;
  const bool reached = (reach == Reach::put && !is_root) || (reach == Reach::get && is_root);
  engine::Region* around = nullptr;
  if (reached && use_ != Use::kept) {
    around = team_.context().region_around(call_.receive, received);
    // Where peers store directly, they can do so only to memory that they map.
    if (around != nullptr && team_.mapped() && !around->allocated && team_.size() > 1) around = nullptr;
  }
  const bool lists = lists_blocks(call_.operation);
  if (lists) prepare_lists(around != nullptr);
  const bool staged = reached && around == nullptr && team_.size() > 1 && !lists;
  request_.reachable = !staged;
  // Of lists it has the right counters, and as much scratch; the rest when the peers have told theirs.
  schedule_ = choice_.algorithm->schedule(request_);
  const std::uint64_t counters = lines(schedule_.counters.size() * sizeof(CounterWord));
  const std::uint64_t scratch = lines(schedule_.scratch_bytes);
  const std::uint64_t slots = scratch + (staged ? received : 0);
  const bool inside = slots <= commons.arena().bytes() / 16;
  auto piece = commons.arena().take(counters + (inside ? slots : 0));
  const bool apart = !inside || !piece;
  if (!piece) piece = commons.arena().take(counters);
  if (!piece) {
    return base::fail(HEDDLE_ERR_NO_MEMORY,
                      "there is no room for the counters of one more operation; free some, or raise "
                      "HEDDLE_COLLECTIVE_BYTES");
  }
  has_piece_ = true;
  record_.counters = *piece;
  record_.scratch = apart ? 0 : *piece + counters;
  record_.scratch_in = !apart ? Where::arena : slots > 0 ? Where::scratch_region : Where::nowhere;
  scratch_ = commons.arena().base() + record_.scratch;
  SessionQueue::prepare(schedule_, reinterpret_cast<CounterWord*>(commons.arena().base() + *piece));
  if (apart && slots > 0) {
    auto region = team_.context().open_region(nullptr, slots);
    if (!region) return region.status();
    scratch_region_ = *region;
    record_.scratch_region = team_.context().pack(**region);
    scratch_ = static_cast<std::byte*>((*region)->memory.address);
  }
  if (staged) {
    staged_ = scratch_ + scratch;
    record_.receive_in = record_.scratch_in;
    record_.receive = record_.scratch + scratch;
  } else if (around != nullptr) {
    record_.receive_in = Where::receive_region;
    record_.receive_region = team_.context().pack(*around);
    record_.receive = static_cast<std::uint64_t>(static_cast<std::byte*>(call_.receive) -
                                                 static_cast<std::byte*>(around->memory.address));
  }
  return HEDDLE_DONE;
}

base::Status Collective::judge(std::span<const Record> records) const {
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (agree(records[i], records[0])) continue;
    return base::fail(
        HEDDLE_ERR_ARGUMENT,
        "the members of a team make the same calls in the same order; rank %zu of the team %s, rank 0 %s%s", i,
        text_of(records[i]).c_str(), text_of(records[0]).c_str(), hint(records[i], records[0]));
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].status == HEDDLE_DONE) continue;
    return base::fail(static_cast<base::Status>(records[i].status),
                      "rank %zu of the team has no memory for this operation; free operations, or raise "
                      "HEDDLE_COLLECTIVE_BYTES",
                      i);
  }
  return HEDDLE_DONE;
}

base::Status Collective::assembled(std::span<const Record> records, bool* doubtful) {
  heard_all_ = true;
  const bool lists = lists_blocks(call_.operation);
  if (const base::Status status = judge(records); status != HEDDLE_DONE) {
    refusal_ = HEDDLE_DONE;  // that lists do not fit matters less than calls that differ, which all find
    return keep(status);
  }
  agreed_ = true;
  if (offload_ != nullptr && !offload_->agreed(records)) drop_offload();
  // What is in the arenas is reached already; regions of their own have to be mapped first. Lists concern two members each.
  *doubtful = lists || offload_ != nullptr || std::ranges::any_of(records, [](const Record& record) {
                return record.scratch_in == Where::scratch_region || record.receive_in == Where::receive_region ||
                       record.receive_in == Where::scratch_region;
              });
  if (refusal_ != HEDDLE_DONE) return refused();
  try {
    // Members' memory has no links: what is released one after the other there would only wait.
    const bool together = offload_ == nullptr && request_.spread;
    if (together) request_.spread = false;
    if (lists || together) schedule_ = choice_.algorithm->schedule(request_);
    const base::Status status = bind(records);
    return status == HEDDLE_DONE ? status : keep(status);
  } catch (const std::bad_alloc&) {
    return keep(base::fail(HEDDLE_ERR_NO_MEMORY, "there is no memory to bind %s", name_of(call_.operation)));
  }
}

// The reason that was found first stays.
base::Status Collective::keep(base::Status status) {
  if (refusal_ != HEDDLE_DONE) return refusal_;
  refusal_ = status;
  refusal_text_ = base::last_message();
  return status;
}

void Collective::settled(base::Status status) {
  if (status != HEDDLE_DONE) keep(status);
  unlike_ = agreed_ && lists_blocks(call_.operation) && refusal_ == HEDDLE_ERR_ARGUMENT;
  if (refusal_ == HEDDLE_DONE && use_ == Use::persistent) team_.commons().count_persistent(offload_ != nullptr);
  stage_.store(refusal_ == HEDDLE_DONE ? Stage::ready : Stage::refused, std::memory_order_release);
}

base::Status Collective::refused() const {
  return base::fail(refusal_, "%s", refusal_text_.c_str());
}

base::Status Collective::wait_ready() {
  team_.commons().wait(
      {"a call that makes a collective operation ready"},
      [&] {
        team_.advance_setups();
        return stage() != Stage::setting_up;
      },
      [this](std::span<char> text) { describe(text); },
      [this](std::int64_t ns) { return fetch(ns) || team_.fetch_setup(ns); });
  return stage() == Stage::ready ? HEDDLE_DONE : refused();
}

// ---- running ----------------------------------------------------------------------------------------------------------------

bool Collective::active() const {
  switch (stage()) {
    case Stage::setting_up:
      return true;
    case Stage::refused:
      return false;
    case Stage::ready:
      break;
  }
  if (offload_ != nullptr) return !offload_->done();
  // In this order: a run that is seen here to have begun is seen so by done().
  if (use_ == Use::once && queue_->runs() == 0) return true;
  return !queue_->done();
}

void Collective::look_for_failures() {
  const std::uint64_t epoch = team_.failure_epoch();
  if (epoch == seen_epoch_.load(std::memory_order_relaxed)) return;
  if (team_.failed_member()) {
    if (offload_ != nullptr)
      offload_->fail(HEDDLE_ERR_PEER_FAILED);
    else
      queue_->fail(HEDDLE_ERR_PEER_FAILED);
  }
  seen_epoch_.store(epoch, std::memory_order_relaxed);
}

engine::Attachment::Found Collective::move_on() {
  using Found = engine::Attachment::Found;
  if (stage() == Stage::setting_up) {
    team_.advance_setups();
    if (stage() == Stage::setting_up) return Found::waits;
  }
  if (stage() == Stage::refused) return Found::nothing;
  if (use_ == Use::once && !begun_.exchange(true, std::memory_order_relaxed)) queue_->start(kStartBytes);
  if (!active()) return Found::nothing;
  if (offload_ != nullptr) {
    if (offload_->advance()) return Found::moved;
    look_for_failures();
    return Found::waits;
  }
  const std::uint64_t before = queue_->executed();
  if (queue_->advance()) return Found::moved;
  look_for_failures();
  return queue_->executed() != before ? Found::moved : Found::waits;
}

engine::Attachment::Found Collective::move_on_as_anybody() {
  const std::uint32_t helper = queue::this_helper();
  if (helper == 0) return move_on();
  if (!helper_.try_claim(helper)) return engine::Attachment::Found::waits;
  const auto found = move_on();
  helper_.release();
  return found;
}

base::Status Collective::start() {
  if (use_ != Use::persistent) {
    return base::fail(HEDDLE_ERR_STATE, "only a persistent operation, made by an _init function, can be started");
  }
  if (running_) {
    return base::fail(HEDDLE_ERR_STATE,
                      "a run of this operation is under way, or its end was not asked for: call heddle_collective_wait "
                      "or _test first");
  }
  if (run_status() != HEDDLE_DONE) return end_of(run_status());
  running_ = true;
  if (offload_ != nullptr) {
    offload_->start();
    return HEDDLE_POSTED;
  }
  queue_->start(kStartBytes);
  if (queue_->done()) return HEDDLE_POSTED;
  engine::Helpers& helpers = team_.context().helpers();
  if (helpers.asleep()) helpers.wake();
  return HEDDLE_POSTED;
}

base::Status Collective::end_of(base::Status status) {
  if (status == HEDDLE_DONE) return HEDDLE_DONE;
  if (const auto failed = team_.failed_member()) return team_.report_failed(*failed);
  if (by_gates_ != nullptr && status == HEDDLE_ERR_ARGUMENT) {
    return base::fail(status,
                      "%s has failed: members of the team have made other calls, or with other arguments; its blocking "
                      "calls of few words cannot go on",
                      name_of(call_.operation));
  }
  if (status == HEDDLE_ERR_PEER_FAILED) return team_.report_dead();
  return base::fail(status, "%s has failed: what was put to a member did not arrive", name_of(call_.operation));
}

// Nothing is under way: how it has ended. A once operation is gone afterwards.
base::Status Collective::ended() {
  running_ = false;
  const base::Status status = stage() == Stage::refused ? refused() : end_of(run_status());
  if (use_ == Use::once) team_.commons().collectives().remove(this);
  return status;
}

base::Status Collective::test() {
  if (engine::inside_of() != nullptr) return engine::refuse_progress();
  if (use_ == Use::persistent && !running_) return end_of(run_status());
  if (engine::Worker* port = team_.commons().port(); port != nullptr) static_cast<void>(port->progress());
  static_cast<void>(move_on());
  return active() ? HEDDLE_AGAIN : ended();
}

base::Status Collective::wait(std::int64_t timeout_ns) {
  if (engine::inside_of() != nullptr) return engine::refuse_wait("heddle_collective_wait");
  if (use_ == Use::persistent && !running_) return end_of(run_status());
  const bool over = team_.commons().wait(
      {"heddle_collective_wait", timeout_ns},
      [this] {
        static_cast<void>(move_on());
        return !active();
      },
      [this](std::span<char> text) { describe(text); },
      [this](std::int64_t ns) { return fetch(ns) || team_.fetch_setup(ns); });
  if (over) return ended();
  return base::fail(HEDDLE_ERR_TIMEOUT, "%s has not ended within %lld ns; it goes on, and can be waited for again",
                    name_of(call_.operation), static_cast<long long>(timeout_ns));
}

base::Status Collective::run_with(const Call& call) {
  set_buffers(call);
  if (offload_ == nullptr) queue_->set_reduction(call.reduction);
  if (run_status() != HEDDLE_DONE) return end_of(run_status());
  if (offload_ != nullptr)
    offload_->start();
  else
    queue_->start();
  if (!run_over()) {
    team_.commons().wait(
        {"a collective call"},
        [this] {
          if (offload_ != nullptr ? offload_->advance() : queue_->advance()) return true;
          look_for_failures();
          return false;
        },
        [this](std::span<char> text) { describe(text); }, [this](std::int64_t ns) { return fetch(ns); });
  }
  return end_of(run_status());
}

base::Status Collective::close() {
  if (running_) {
    return base::fail(
        HEDDLE_ERR_STATE,
        "a run of this operation is under way, or its end was not asked for: wait for it before it is freed");
  }
  if (use_ == Use::once) {
    if (active()) {
      return base::fail(HEDDLE_ERR_STATE,
                        "a nonblocking operation that is under way cannot be freed: wait for it, which frees it");
    }
  }
  team_.commons().collectives().remove(this);
  return HEDDLE_DONE;
}

void Collective::describe(std::span<char> text) {
  std::string what;
  try {
    what = awaited_members();
  } catch (const std::bad_alloc&) {
    what.clear();  // it is told without
  }
  if (what.empty()) {
    what = stage() == Stage::setting_up ? "not all members have made this call" : "members have not come so far";
  }
  std::snprintf(text.data(), text.size(), "%s of %" PRIu64 " bytes on a team of %u, rank %u there%s: %s",
                name_of(call_.operation), call_.bytes, team_.size(), team_.rank(),
                offloaded() ? ", by the network's interface" : "", what.c_str());
}

// "it waits for member 2", or nothing where that is not known.
std::string Collective::awaited_members() {
  if (stage() != Stage::ready || queue_ == nullptr) return {};
  const std::vector<Rank> members = givers(*choice_.algorithm, request_, queue_->awaited());
  std::string list;
  for (const Rank member : members) list += (list.empty() ? " " : ", ") + std::to_string(member);
  if (list.empty()) return {};
  return "it waits for member" + std::string(members.size() > 1 ? "s" : "") + list;
}

}  // namespace heddle::collective
