#include "collective/collective.hpp"

#include <algorithm>
#include <cinttypes>
#include <mutex>
#include <utility>

#include "base/fence.hpp"
#include "collective/algorithms/algorithms.hpp"
#include "collective/reduction.hpp"
#include "collective/schedule.hpp"
#include "collective/team.hpp"
#include "tap/probes.hpp"
#include "worker/worker.hpp"

namespace heddle::collective {

namespace {

using Where = SetupRecord::Where;

constexpr std::uint64_t lines(std::uint64_t bytes) {
  return (bytes + base::kCacheLine - 1) / base::kCacheLine * base::kCacheLine;
}

}  // namespace

void Places::look(const Plan& plan) {
  using Reach = Algorithm::Reach;
  const AlgorithmRequest& request = plan.request;
  const std::uint64_t received = receive_bytes(request, request.rank);
  const Reach reach = received > 0 ? plan.algorithm.reach : Reach::none;
  const bool is_root = request.operation == Operation::broadcast && request.rank == request.root;
  const bool reached = (reach == Reach::put && !is_root) || (reach == Reach::get && is_root);
  if (reached && plan.use != Use::kept) {
    around_ = team_.context().objects().region_around(plan.call.receive, received);
    // Peers that store directly can do so only to memory that they map.
    if (around_ != nullptr && team_.mapped() && !around_->allocated && team_.size() > 1) around_ = nullptr;
  }
  stages_ = reached && around_ == nullptr && team_.size() > 1 && !lists_blocks(request.operation);
}

// Counters are always in the arena. Slots are there, too, unless they are too large.
base::Status Places::take(const Plan& plan, SetupRecord* record) {
  const std::uint64_t counters = lines(plan.schedule.counters.size() * sizeof(CounterWord));
  const std::uint64_t scratch = lines(plan.schedule.scratch_bytes);
  const std::uint64_t received = receive_bytes(plan.request, plan.request.rank);
  const base::Status status = take_pieces(plan.use, counters, scratch + (stages_ ? received : 0), record);
  if (status != HEDDLE_DONE) return status;
  SessionQueue::prepare(plan.schedule, this->counters());
  if (stages_) {
    stage_ = scratch_ + scratch;
    record->receive_in = record->scratch_in;
    record->receive = record->scratch + scratch;
  } else if (around_ != nullptr) {
    record->receive_in = Where::receive_region;
    record->receive_region = team_.context().objects().pack(*around_);
    record->receive = static_cast<std::uint64_t>(static_cast<std::byte*>(plan.call.receive) -
                                                 static_cast<std::byte*>(around_->memory.address));
  }
  return HEDDLE_DONE;
}

base::Status Places::take_pieces(Use use, std::uint64_t counters, std::uint64_t slots, SetupRecord* record) {
  Arena& arena = team_.commons().arena();
  // What is kept stays, and many teams may keep.
  const bool inside = slots <= arena.bytes() / (use == Use::kept ? 256 : 16);
  auto piece = arena.take(counters + (inside ? slots : 0));
  const bool apart = !inside || !piece;
  if (!piece) piece = arena.take(counters);
  if (!piece) {
    return base::fail(HEDDLE_ERR_NO_MEMORY,
                      "there is no room for the counters of one more operation; free some, or raise "
                      "HEDDLE_COLLECTIVE_BYTES");
  }
  taken_ = true;
  piece_ = *piece;
  record->counters = piece_;
  record->scratch = apart ? 0 : piece_ + counters;
  record->scratch_in = !apart ? Where::arena : slots > 0 ? Where::scratch_region : Where::nowhere;
  scratch_ = arena.base() + record->scratch;
  if (!apart || slots == 0) return HEDDLE_DONE;
  auto region = team_.commons().scratch().take(slots);
  if (!region) return region.status();
  region_ = *region;
  record->scratch_region = team_.context().objects().pack(*region_);
  scratch_ = static_cast<std::byte*>(region_->memory.address);
  return HEDDLE_DONE;
}

CounterWord* Places::counters() const {
  return reinterpret_cast<CounterWord*>(team_.commons().arena().base() + piece_);
}

void Places::give_back(Runner::Memory memory, std::vector<std::uint64_t> counters) {
  Arena& arena = team_.commons().arena();
  const auto give_region = [scratch = &team_.commons().scratch(), region = region_] {
    if (region != nullptr) scratch->give_back(region);
  };
  switch (memory) {
    case Runner::Memory::now:
      arena.give_back(piece_);
      return give_region();
    case Runner::Memory::late:
      return arena.give_back_after(piece_, std::move(counters), give_region);
    case Runner::Memory::never:
      break;  // peers may still put to it: the memory stays in use until the context ends
  }
}

namespace {

// Bytes that start() moves itself. Waiting threads and helpers move the rest, so start() returns
// soon.
constexpr std::uint64_t kStartBytes = 2048;

std::uint32_t row_of(const Algorithm* algorithm) {
  return static_cast<std::uint32_t>(algorithm - algorithms().data());
}

std::string text_of(const SetupRecord& record) {
  if (record.kind != SetupRecord::Kind::operation) return "makes a team";
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
                name_of(static_cast<Operation>(operation)), record.whole != 0 ? record.whole : record.bytes,
                record.root, record.element_bytes, reduction_text(record.reduction).data(), algorithm,
                record.segment_bytes);
  return text.data();
}

// A hint at a difference that the texts of two calls do not show.
const char* hint(const SetupRecord& a, const SetupRecord& b) {
  if (a.kind != b.kind || a.operation != b.operation || a.bytes != b.bytes) return "";
  if ((a.whole == 0) != (b.whole == 0)) return " (one of them in the blocking form)";
  if (a.algorithm == b.algorithm && a.segment_bytes == b.segment_bytes) return "";
  return " (HEDDLE_COLLECTIVE_ALGORITHMS, HEDDLE_COLLECTIVE_TABLE and HEDDLE_COLLECTIVE_BYTES=segment=… are to be the "
         "same "
         "for all ranks)";
}

bool agree(const SetupRecord& a, const SetupRecord& b) {
  return a.kind == b.kind && a.operation == b.operation && a.root == b.root && a.bytes == b.bytes &&
         a.whole == b.whole && a.element_bytes == b.element_bytes && a.segment_bytes == b.segment_bytes &&
         a.reduction == b.reduction && a.algorithm == b.algorithm;
}

// Checks that all members make the same call and have the memory for it.
base::Status judge(std::span<const SetupRecord> records) {
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

// For example "it waits for member 2"; empty: no member is known.
std::string text_of(std::span<const Rank> awaited) {
  std::string list;
  for (const Rank member : awaited) list += (list.empty() ? " " : ", ") + std::to_string(member);
  if (list.empty()) return {};
  return "it waits for member" + std::string(awaited.size() > 1 ? "s" : "") + list;
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
  team.setups().submit(*raw);
  worker::Helpers& helpers = team.context().helpers();
  if (raw->active() && helpers.wakes_somebody()) helpers.wake();
  return raw;
}

base::Result<std::unique_ptr<Collective>> Collective::make(Team& team, const Call& call, Use use) {
  std::unique_ptr<Collective> made(new Collective(team, call, use));
  // an error that all members make alike
  if (const base::Status status = made->choose(); status != HEDDLE_DONE) return status;
  try {
    made->record_.status = made->prepare_places();
  } catch (const std::bad_alloc&) {
    made->record_.status = HEDDLE_ERR_NO_MEMORY;
  }
  made->open_runner();
  return made;
}

Collective::~Collective() {
  if (listed_) team_.commons().delist(*this);
  if (stage() == Stage::setting_up) team_.setups().cancel(*this);
  retire();
  if (opened_) team_.closed();
}

void Collective::retire() {
  if (!places_.taken()) return;
  if (runner_ == nullptr) return places_.give_back(Runner::Memory::now, {});  // nobody was told
  // If members' lists do not fit each other, all members are told so, and nobody runs the
  // operation. The same holds if calls differ and this member has heard all members. Otherwise
  // others may have heard more than this member, and may run it.
  const bool rejected = stage() == Stage::rejected;
  const bool rejected_by_all = record_.status != HEDDLE_DONE || (heard_all_ && !agreed_);
  const bool ready = stage() == Stage::ready;
  Runner::Past past{};
  past.never = !told_ || unlike_ || (rejected && rejected_by_all);
  past.agreed = agreed_;
  past.rejected = agreed_ && rejected && rejection_.status() != HEDDLE_ERR_PEER_FAILED;
  past.ran = ready && runner_->done() && runner_->status() == HEDDLE_DONE;
  past.whole = !team_.failed_member();
  const Runner::Memory memory = runner_->retire(past);
  auto counters = final_counters(schedule_, runner_->runs());
  runner_.reset();
  places_.give_back(memory, std::move(counters));
}

// ---- making ready -------------------------------------------------------------------------------

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
    call_.lists = nullptr;  // it belongs to the caller
  }
  auto choice = team_.commons().selection().choose(call_, request_, use_ != Use::kept, team_.mapped());
  if (!choice) return choice.status();
  algorithm_ = choice->algorithm;
  named_ = choice->named;
  request_.segment_bytes = choice->segment_bytes;
  for (const RunnerWay& way : ways())
    if (way.suit != nullptr) way.suit(plan());
  record_.operation = static_cast<std::uint32_t>(call_.operation);
  record_.root = call_.root;
  record_.bytes = call_.bytes;
  record_.element_bytes = call_.element_bytes;
  record_.segment_bytes = request_.segment_bytes;
  record_.reduction = call_.reduction_name;
  record_.algorithm = row_of(algorithm_);
  record_.whole = call_.whole;
  record_.crowded = use_ == Use::kept && team_.commons().crowded() ? 1 : 0;
  return HEDDLE_DONE;
}

base::Status Collective::prepare_places() {
  places_.look(plan());
  if (lists_blocks(call_.operation)) prepare_lists(places_.reached());
  request_.reachable = !places_.staged();
  // If blocks are listed, this schedule has the right counters and enough scratch; the rest follows
  // when the peers have told their lists.
  schedule_ = algorithm_->schedule(request_);
  return places_.take(plan(), &record_);
}

Plan Collective::plan() {
  return {team_, call_, use_, *algorithm_, named_, request_, schedule_};
}

// Opens the first way that can be used, and the last one in case members do not agree.
void Collective::open_runner() {
  std::span<const RunnerWay> tried = ways();
  by_software_ = tried.back().open(plan(), places_);
  tried = tried.first(record_.status == HEDDLE_DONE ? tried.size() - 1 : 0);
  try {
    for (auto way = tried.begin(); runner_ == nullptr && way != tried.end(); ++way) {
      runner_ = way->open(plan(), places_);
      record_.keys.way = static_cast<std::uint32_t>(way - tried.begin());
    }
  } catch (const std::bad_alloc&) {
    runner_ = nullptr;  // the way is optional, and nobody has been told
  }
  if (runner_ == nullptr) go_by_software();
}

void Collective::go_by_software() {
  record_.keys.way = static_cast<std::uint32_t>(ways().size()) - 1;
  runner_ = std::move(by_software_);
}

base::Status Collective::assembled(std::span<const SetupRecord> records, bool* doubtful) {
  heard_all_ = true;
  const bool lists = lists_blocks(call_.operation);
  if (const base::Status status = judge(records); status != HEDDLE_DONE) {
    // calls that differ matter more than lists that do not fit, and all members find the former
    rejection_.forget();
    shared_error_ = status;
    return rejection_.keep(status);
  }
  agreed_ = true;
  crowded_ = std::ranges::any_of(records, [](const SetupRecord& record) { return record.crowded != 0; });
  const auto goes_alike = [this](const SetupRecord& record) { return record.keys.way == record_.keys.way; };
  const bool agreed = std::ranges::all_of(records, goes_alike) && runner_->agreed(records);
  if (!agreed && by_interface()) go_by_software();
  // Arenas are already mapped; regions of their own must be mapped first, which may fail at some
  // members. Lists concern two members each.
  *doubtful = lists || by_interface() || std::ranges::any_of(records, &SetupRecord::names_regions);
  has_verdict_ = *doubtful;
  if (rejection_.status() != HEDDLE_DONE) return rejection_.report();
  try {
    // Members' memory has no links: to release commands one after the other would only delay them.
    const bool together = !by_interface() && request_.spread;
    if (together) request_.spread = false;
    if (lists || together) schedule_ = algorithm_->schedule(request_);
    const base::Status status = runner_->bind(schedule_, records);
    return status == HEDDLE_DONE ? status : rejection_.keep(status);
  } catch (const std::bad_alloc&) {
    return rejection_.keep(base::fail(HEDDLE_ERR_NO_MEMORY, "there is no memory to bind %s", name_of(call_.operation)));
  }
}

void Collective::decided(base::Status status) {
  if (status != HEDDLE_DONE) rejection_.keep(status);
  if (has_verdict_) shared_error_ = status;
  unlike_ = agreed_ && lists_blocks(call_.operation) && rejection_.status() == HEDDLE_ERR_ARGUMENT;
  if (rejection_.status() == HEDDLE_DONE && use_ == Use::persistent) team_.commons().count_persistent(by_interface());
  stage_.store(rejection_.status() == HEDDLE_DONE ? Stage::ready : Stage::rejected, std::memory_order_release);
}

base::Status Collective::wait_ready() {
  team_.commons().wait(
      {"a call that makes a collective operation ready"},
      [&] {
        const bool moved = team_.setups().advance();
        return Commons::looked(stage() != Stage::setting_up, moved);
      },
      [this](tap::Wait& wait) { describe(wait); },
      [this](std::int64_t ns) { return fetch(ns) || team_.setups().fetch(ns); }, team_.waits());
  return stage() == Stage::ready ? HEDDLE_DONE : rejection_.report();
}

const char* Collective::algorithm() const {
  return stage() == Stage::ready ? runner_->algorithm(algorithm_->name) : algorithm_->name;
}

// ---- running ------------------------------------------------------------------------------------

bool Collective::active() const {
  switch (stage()) {
    case Stage::setting_up:
      return true;
    case Stage::rejected:
      return false;
    case Stage::ready:
      break;
  }
  // In this order: if the run is seen as begun here, done() sees it, too.
  if (use_ == Use::once && runner_->runs() == 0) return true;
  return !runner_->done();
}

// For traces and probes.
void Collective::note(tap::TraceEvent event) {
  const bool begins = event == tap::TraceEvent::schedule_begin;
  const std::uint64_t number = number_.load(std::memory_order_relaxed);
  if (begins) {
    tap::probe_collective_begin(runner_.get(), name_of(call_.operation), team_.identity(), number);
  } else {
    tap::probe_collective_end(runner_.get(), team_.identity(), number);
  }
  tap::Tracer* const tracer = team_.context().tracer();
  if (tracer == nullptr) return;
  if (begins) runner_->set_tracer(tracer);
  tap::TraceRecord record{};
  record.id = begins ? tracer->name(name_of(call_.operation)) : 0;
  record.bytes = runner_->traced_as();
  record.rank = static_cast<std::uint32_t>(number);
  record.worker = tap::kNoTraceWorker;
  record.event = event;
  tracer->note(record);
}

bool Collective::look_for_failures() {
  const std::uint64_t epoch = team_.failure_epoch();
  if (epoch == seen_epoch_.load(std::memory_order_relaxed)) return false;
  const bool failed = team_.failed_member().has_value();
  if (failed) runner_->fail(HEDDLE_ERR_PEER_FAILED);
  seen_epoch_.store(epoch, std::memory_order_relaxed);
  return failed;
}

worker::Attachment::Found Collective::move_on() {
  using Found = worker::Attachment::Found;
  if (stage() == Stage::setting_up) {
    const bool moved = team_.setups().advance();
    if (stage() == Stage::setting_up) return moved ? Found::moved : Found::waits;
  }
  if (stage() == Stage::rejected) return Found::nothing;
  if (use_ == Use::once && !begun_.exchange(true, std::memory_order_relaxed)) {
    note(tap::TraceEvent::schedule_begin);
    runner_->start(kStartBytes);
  }
  if (!active()) return Found::nothing;
  const std::uint64_t before = runner_->executed();
  if (runner_->advance()) return Found::moved;
  const bool failed = look_for_failures();
  return failed || runner_->executed() != before ? Found::moved : Found::waits;
}

worker::Attachment::Found Collective::move_on_as_anybody() {
  const std::uint32_t helper = queue::this_helper();
  if (helper == 0) return move_on();
  if (!helper_.try_claim(helper)) return worker::Attachment::Found::waits;
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
  if (runner_->status() != HEDDLE_DONE) return end_of(runner_->status());
  running_ = true;
  base::show_told();
  if (team_.context().tracer() != nullptr) {
    const tap::Step come_to = step();  // its number is that of the run before
    team_.context().note_entered(come_to.team, come_to.number + 1, come_to.size);
  }
  note(tap::TraceEvent::schedule_begin);
  runner_->start(kStartBytes);
  if (runner_->done() || by_interface()) return HEDDLE_POSTED;
  worker::Helpers& helpers = team_.context().helpers();
  if (helpers.wakes_somebody()) helpers.wake();
  return HEDDLE_POSTED;
}

base::Status Collective::end_of(base::Status status) {
  team_.count_end();
  if (status == HEDDLE_DONE) {
    base::show_learnt();  // orders this after what the members had waited for before they came
    return HEDDLE_DONE;
  }
  if (const auto failed = team_.failed_member()) return team_.report_failed(*failed);
  if (status == HEDDLE_ERR_PEER_FAILED) return team_.report_dead();
  return base::fail(status, "%s has failed: %s", name_of(call_.operation), runner_->reason(status));
}

// Nothing is under way: returns the status of the run. A `once` operation is destroyed.
base::Status Collective::ended() {
  running_ = false;
  if (stage() == Stage::ready) note(tap::TraceEvent::schedule_end);
  const base::Status status = stage() == Stage::rejected ? rejection_.report() : end_of(runner_->status());
  if (use_ == Use::once) {
    team_.pass(number_.load(std::memory_order_relaxed));
    team_.commons().collectives().remove(this);
  }
  return status;
}

base::Status Collective::test() {
  if (engine::inside_of() != nullptr) return engine::reject_progress();
  if (use_ == Use::persistent && !running_) return end_of(runner_->status());
  if (worker::Worker* port = team_.commons().port(); port != nullptr) static_cast<void>(port->progress());
  static_cast<void>(move_on());
  return active() ? HEDDLE_AGAIN : ended();
}

base::Status Collective::wait(std::int64_t timeout_ns) {
  if (engine::inside_of() != nullptr) return engine::reject_wait("heddle_collective_wait");
  if (use_ == Use::persistent && !running_) return end_of(runner_->status());
  const bool over = team_.commons().wait(
      {"heddle_collective_wait", timeout_ns},
      [this] {
        const auto found = move_on();
        return Commons::looked(!active(), found == worker::Attachment::Found::moved);
      },
      [this](tap::Wait& wait) { describe(wait); },
      [this](std::int64_t ns) { return fetch(ns) || team_.setups().fetch(ns); }, team_.waits(), &waited_);
  if (over) return ended();
  return base::fail(HEDDLE_ERR_TIMEOUT, "%s has not ended within %lld ns; it goes on, and can be waited for again",
                    name_of(call_.operation), static_cast<long long>(timeout_ns));
}

base::Status Collective::run_with(const Call& call) {
  runner_->set_buffers(call);
  if (runner_->status() != HEDDLE_DONE) return end_of(runner_->status());
  base::show_told();
  note(tap::TraceEvent::schedule_begin);
  runner_->start();
  if (!runner_->done()) {
    team_.commons().wait(
        {"a collective call"},
        [this] {
          const std::uint64_t before = runner_->executed();
          if (runner_->advance()) return Commons::Look::over;
          const bool failed = look_for_failures();
          return Commons::looked(false, failed || runner_->executed() != before);
        },
        [this](tap::Wait& wait) { describe(wait); }, [this](std::int64_t ns) { return fetch(ns); }, team_.waits());
  }
  note(tap::TraceEvent::schedule_end);
  return end_of(runner_->status());
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

std::vector<Rank> Collective::awaited() {
  if (stage() != Stage::ready) return {};
  return givers(*algorithm_, request_, runner_->awaited());
}

void Collective::describe(tap::Wait& wait) {
  std::string what;
  try {
    what = text_of(awaited());
  } catch (const std::bad_alloc&) {
    what.clear();  // the report goes without it
  }
  if (what.empty()) {
    what = stage() == Stage::setting_up ? "not all members have made this call" : "members have not come so far";
  }
  worker::awaits(wait, "%s of %" PRIu64 " bytes on a team of %u, rank %u there%s: %s", name_of(call_.operation),
                 call_.bytes, team_.size(), team_.rank(), offloaded() ? ", by the network's interface" : "",
                 what.c_str());
  wait.step = step();
}

tap::Step Collective::step() const {
  std::uint64_t number = number_.load(std::memory_order_relaxed);
  std::uint64_t team = team_.identity();
  std::string operation = name_of(call_.operation);
  const std::uint64_t bytes = call_.whole != 0 ? call_.whole : call_.bytes;
  if (!lists_blocks(call_.operation) && bytes != 0) operation += " of " + std::to_string(bytes) + " bytes";
  if (has_root(call_.operation)) operation += " with root " + std::to_string(call_.root);
  // Its runs are counted for themselves.
  if (use_ == Use::persistent && stage() == Stage::ready) {
    operation = "persistent " + operation + " (call " + std::to_string(number) + ')';
    team |= number << 32;
    number = runner_->runs();
  }
  return {team, number, team_.size(), team_.words(), std::move(operation)};
}

// Operations whose members list their blocks: what members tell each other about their lists during
// the set-up.

namespace {

// Compares what the member says about the blocks between it and this member with this member's
// lists, and records where blocks go.
base::Status compare(std::uint32_t round, std::uint32_t member, const SetupRecord& record, const AlgorithmRequest& mine,
                     Exchange* lists) {
  const std::span<ListedBlock> given = of_peer(lists->given, member);
  const std::span<ListedBlock> taken = of_peer(lists->taken, member);
  const char* what = name_of(mine.operation);
  const std::uint32_t rank = mine.rank;
  if (record.takes != given.size() || record.gives != taken.size()) {
    return base::fail(
        HEDDLE_ERR_ARGUMENT,
        "%s: rank %u of the team lists %u blocks to rank %u and %u from it; rank %u lists %zu from rank %u "
        "and %zu to it; list as many on both sides",
        what, member, record.gives, rank, record.takes, rank, taken.size(), member, given.size());
  }
  for (std::size_t i = 0; i < record.listed.size(); ++i) {
    const std::size_t k = round * record.listed.size() + i;
    const SetupRecord::Listed& listed = record.listed[i];
    if (k < given.size()) {
      if (listed.taken != given[k].bytes) {
        return base::fail(HEDDLE_ERR_ARGUMENT,
                          "%s: rank %u of the team gives %" PRIu64 " bytes to rank %u, which takes %" PRIu64
                          " bytes from it; give and take blocks of one length",
                          what, rank, given[k].bytes, member, listed.taken);
      }
      given[k].kept = record.keeps != 0 && member != rank;
      given[k].there = listed.at;
    }
    if (k < taken.size()) {
      if (listed.given != taken[k].bytes) {
        return base::fail(HEDDLE_ERR_ARGUMENT,
                          "%s: rank %u of the team gives %" PRIu64 " bytes to rank %u, which takes %" PRIu64
                          " bytes from it; give and take blocks of one length",
                          what, member, listed.given, rank, taken[k].bytes);
      }
      taken[k].slot = record.slot;
    }
  }
  return HEDDLE_DONE;
}

}  // namespace

// Each member decides for itself whether it keeps what arrives; its peers are told.
void Collective::prepare_lists(bool reached) {
  std::uint64_t taken = 0;
  std::size_t most = 0;
  for (const ListedBlock& message : lists_.taken) taken += message.bytes;
  lists_.kept = team_.size() > 1 && (!reached || taken <= kKeptBytes);
  for (std::uint32_t member = 0; member < team_.size(); ++member)
    most = std::max({most, of_peer(lists_.given, member).size(), of_peer(lists_.taken, member).size()});
  const std::size_t each = record_.listed.size();
  record_.rounds = static_cast<std::uint32_t>(std::max<std::size_t>((most + each - 1) / each, 1));
  record_.keeps = lists_.kept ? 1 : 0;
}

void Collective::tell(std::uint32_t round, std::span<SetupRecord> members) {
  std::ranges::fill(members, record_);
  for (std::uint32_t member = 0; member < members.size(); ++member) runner_->tell(member, &members[member]);
  if (!lists_blocks(call_.operation)) return;
  for (std::uint32_t member = 0; member < members.size(); ++member) {
    SetupRecord& record = members[member];
    const std::span<const ListedBlock> given = of_peer(std::as_const(lists_.given), member);
    const std::span<const ListedBlock> taken = of_peer(std::as_const(lists_.taken), member);
    record.gives = static_cast<std::uint32_t>(given.size());
    record.takes = static_cast<std::uint32_t>(taken.size());
    for (const ListedBlock& message : given)
      if (message.bytes > 0) record.slot = message.slot;
    for (std::size_t i = 0; i < record.listed.size(); ++i) {
      const std::size_t k = round * record.listed.size() + i;
      if (k < given.size()) record.listed[i].given = given[k].bytes;
      if (k >= taken.size()) continue;
      record.listed[i].taken = taken[k].bytes;
      record.listed[i].at = lists_.kept && member != team_.rank() ? taken[k].there : taken[k].here;
    }
  }
}

void Collective::heard(std::uint32_t round, std::span<const SetupRecord> records) {
  if (!lists_blocks(call_.operation)) return;
  for (std::uint32_t member = 0; member < records.size() && rejection_.status() == HEDDLE_DONE; ++member) {
    const SetupRecord& record = records[member];
    // Calls of another kind are judged when all members have told theirs.
    if (record.kind != SetupRecord::Kind::operation || record.operation != record_.operation) return;
    if (const base::Status status = compare(round, member, record, request_, &lists_); status != HEDDLE_DONE)
      rejection_.keep(status);
  }
}

}  // namespace heddle::collective
