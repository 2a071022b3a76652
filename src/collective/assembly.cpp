#include "collective/assembly.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <new>

#include "collective/algorithms/algorithms.hpp"
#include "collective/team.hpp"
#include "worker/gate.hpp"
#include "worker/worker.hpp"

namespace heddle::collective {

namespace {

// Meeting a member takes long, and costs memory at both members. Up to this many members, each
// member meets all others, and a round is one step.
constexpr std::uint32_t kMeetAll = 16;

// The piece is prepared before it is known which team it will be for, of how many members, and
// which of them this one is. So the words are the same for every team. First those of common
// rounds: by turns without and with a credit, as many as the steps of the largest team need.
// Then those of rounds apart: two without credits, as the schedules count what has come, and the
// others with one, as they count what is free. A schedule that has one counter of the first kind
// begins with the second word.
constexpr std::uint32_t kCommonWords = 2 * 16;

constexpr std::uint32_t first_word(std::uint32_t members) {
  return kCommonWords + (members <= kMeetAll ? 1 : 0);
}
constexpr std::uint64_t words_of(std::uint32_t members) {
  return kCommonWords + members + std::uint64_t{2};
}
constexpr std::uint64_t credits_of_word(std::uint64_t word) {
  return word < kCommonWords ? word % 2 : word < kCommonWords + 2 ? 0 : 1;
}
// What a common round tells of a record.
constexpr std::size_t kCommonBytes = offsetof(SetupRecord, keys) + offsetof(WayKeys, bytes);

// The memory of common rounds, which a small team lacks, follows that of rounds apart: a member may
// be in the next round, of the other kind.
constexpr std::uint64_t apart_at(std::uint32_t members) {
  return words_of(members) * sizeof(CounterWord);
}
constexpr std::uint64_t common_at(std::uint32_t members) {
  constexpr std::uint64_t kTimes = 2;  // blocks to pass on, blocks that come
  return apart_at(members) + kTimes * members * sizeof(SetupRecord);
}

AlgorithmRequest request_of(Operation operation, std::uint64_t bytes, std::uint32_t members, std::uint32_t member) {
  AlgorithmRequest request;
  request.operation = operation;
  request.rank = member;
  request.ranks = members;
  request.bytes = bytes;
  return request;
}
Schedule common_schedule(std::uint32_t members, std::uint32_t member) {
  return allgather_bruck(request_of(Operation::allgather, kCommonBytes, members, member));
}
Schedule apart_schedule(std::uint32_t members, std::uint32_t member) {
  const AlgorithmRequest request = request_of(Operation::alltoall, sizeof(SetupRecord), members, member);
  return members <= kMeetAll ? alltoall_kept(request) : alltoall_grid(request);
}

bool begin_as_prepared(const Schedule& schedule, std::uint32_t first) {
  const auto counters = std::span(schedule.counters);
  for (std::size_t i = 0; i < counters.size(); ++i)
    if (counters[i].per_run != 0 && counters[i].initial != credits_of_word(first + i)) return false;
  return true;
}

}  // namespace

std::vector<std::uint64_t> final_counters(const Schedule& schedule, std::uint64_t runs) {
  std::vector<std::uint64_t> values;
  for (const ScheduleCounter& counter : schedule.counters) values.push_back(counter.initial + runs * counter.per_run);
  return values;
}

// The piece also suffices for a smaller team.
std::uint64_t Assembly::bytes(std::uint32_t members) {
  if (members <= kMeetAll) return apart_at(members) + members * sizeof(SetupRecord);
  return common_at(members) + members * kCommonBytes;
}

bool Assembly::fits(std::uint32_t members, std::uint32_t member) {
  const Schedule apart = apart_schedule(members, member);
  if (first_word(members) + apart.counters.size() > words_of(members)) return false;
  if (!begin_as_prepared(apart, first_word(members))) return false;
  if (members <= kMeetAll) return apart_at(members) + apart.scratch_bytes <= bytes(members);
  const Schedule common = common_schedule(members, member);
  return common.counters.size() <= kCommonWords && begin_as_prepared(common, 0) &&
         apart_at(members) + apart.scratch_bytes <= common_at(members) &&
         common_at(members) + common.scratch_bytes <= bytes(members);
}

void Assembly::prepare(Arena& arena, std::uint64_t piece, std::uint32_t members) {
  auto* words = reinterpret_cast<CounterWord*>(arena.base() + piece);
  for (std::uint64_t i = 0; i < words_of(members); ++i)
    words[i].credits.store(credits_of_word(i), std::memory_order_relaxed);
}

Assembly::Assembly(Commons& commons, std::span<const std::uint32_t> ranks, std::uint32_t member,
                   std::span<const std::uint64_t> pieces)
    : commons_(commons), ranks_(ranks.begin(), ranks.end()), member_(member), pieces_(pieces.begin(), pieces.end()) {}

base::Result<std::unique_ptr<Assembly>> Assembly::make(Commons& commons, std::span<const std::uint32_t> ranks,
                                                       std::uint32_t member, std::span<const std::uint64_t> pieces) {
  std::unique_ptr<Assembly> assembly(new Assembly(commons, ranks, member, pieces));
  const std::uint32_t members = assembly->size();
  base::Status status{};
  if (members <= kMeetAll) {
    status = assembly->open_apart();
  } else {
    assembly->common_.schedule = common_schedule(members, member);
    status = assembly->open({0, common_at(members)}, reinterpret_cast<std::byte*>(&assembly->said_), assembly->common_);
  }
  if (status != HEDDLE_DONE) return status;
  return assembly;
}

base::Status Assembly::open_apart() {
  base::Status status = HEDDLE_ERR_NO_MEMORY;
  try {  // it runs on any thread that advances the team's setups
    told_.resize(size());
    apart_.schedule = apart_schedule(size(), member_);
    const Layout layout{first_word(size()) * sizeof(CounterWord), apart_at(size())};
    status = open(layout, reinterpret_cast<std::byte*>(told_.data()), apart_);
  } catch (const std::bad_alloc&) {
    status = base::fail(HEDDLE_ERR_NO_MEMORY, "no memory to make an operation of a team of %u ready", size());
  }
  if (status != HEDDLE_DONE) close_apart();
  return status;
}

// Meets the members that the schedule puts to.
base::Status Assembly::open(const Layout& layout, std::byte* send, Way& way) {
  std::vector<std::uint32_t> targets;
  std::vector<bool> known(size());
  known[member_] = true;
  for (const ScheduleCommand& command : way.schedule.commands) {
    if (command.action != Action::put || known[command.target]) continue;
    known[command.target] = true;
    targets.push_back(command.target);
    // All on their way before the first is waited for; no more, since each takes a descriptor.
    constexpr std::size_t kMostAhead = 16;
    if (targets.size() <= kMostAhead) commons_.context().transport().prepare_import(ranks_[command.target]);
  }
  std::vector<RankMemory> memory(size());
  RankMemory& mine = memory[member_];
  if (const base::Status status = reach(layout, member_, way, &mine); status != HEDDLE_DONE) return status;
  for (const std::uint32_t target : targets) {
    const base::Status status = reach(layout, target, way, &memory[target]);
    if (status != HEDDLE_DONE) return status;
  }
  mine.places[static_cast<std::size_t>(Place::send)] = send;
  way.queue = std::make_unique<SessionQueue>(way.schedule, memory, Reduction{});
  return HEDDLE_DONE;
}

base::Status Assembly::reach(const Layout& layout, std::uint32_t other, Way& way, RankMemory* at) {
  const std::uint64_t counters = pieces_[other] + layout.counters;
  const std::uint64_t scratch = pieces_[other] + layout.scratch;
  std::byte* arena = commons_.arena().base();
  worker::Worker* port = commons_.port();
  if (other != member_ || port != nullptr) {
    auto remote = commons_.arena_of(ranks_[other]);
    if (!remote) return remote.status();
    if (other != member_) arena = (*remote)->direct;
    if ((*remote)->direct == nullptr && port != nullptr) {
      way.carriers.push_back(
          std::make_unique<RegionCarrier>(*port, RegionCarrier::Base{*remote, counters},
                                          std::array<RegionCarrier::Base, 3>{{{}, {}, {*remote, scratch}}}));
      at->carrier = way.carriers.back().get();
    }
  }
  if (arena == nullptr) return HEDDLE_DONE;
  at->counters = reinterpret_cast<CounterWord*>(arena + counters);
  if (other != member_) at->bell = commons_.bell_of(ranks_[other]);
  at->places[static_cast<std::size_t>(Place::scratch)] = arena + scratch;
  return HEDDLE_DONE;
}

// The records take memory from the first round on: much in a large team.
void Assembly::start(Way& way) {
  const bool common = &way == &common_;
  if (records_.empty()) records_.resize(size());
  if (common && heard_.empty()) heard_.resize(size() * kCommonBytes);
  if (common && round_ == &apart_) std::ranges::fill(records_, SetupRecord{});
  std::byte* const receive = common ? heard_.data() : reinterpret_cast<std::byte*>(records_.data());
  way.queue->set_place(Place::receive, receive);
  round_ = &way;
  way.queue->start();
}

bool Assembly::advance() {
  if (!round_->queue->advance()) return false;
  if (round_ != &common_ || status() != HEDDLE_DONE) return true;
  for (std::size_t i = 0; i < records_.size(); ++i)
    std::memcpy(static_cast<void*>(&records_[i]), heard_.data() + i * kCommonBytes, kCommonBytes);
  return true;
}

void Assembly::start_common(const SetupRecord& record) {
  if (!prefers_common()) {
    std::ranges::fill(told_, record);
    return start_apart();
  }
  said_ = record;
  start(common_);
}

std::uint64_t Assembly::executed() const {
  std::uint64_t steps = 0;
  for (const Way* way : {&common_, &apart_})
    if (way->queue != nullptr) steps += way->queue->executed();
  return steps;
}

void Assembly::fail(base::Status status) {
  for (Way* way : {&common_, &apart_})
    if (way->queue != nullptr) way->queue->fail(status);
}

base::Status Assembly::status() const {
  base::Status status = HEDDLE_DONE;
  for (const Way* way : {&common_, &apart_})
    if (way->queue != nullptr && status == HEDDLE_DONE) status = way->queue->status();
  return status;
}

// The values of all words of the piece, from the first one on.
std::vector<std::uint64_t> Assembly::final_counters() const {
  std::vector<std::uint64_t> values;
  const auto add = [&values](const Way& way, std::uint32_t first) {
    if (way.queue == nullptr) return;
    const std::vector<std::uint64_t> counters = collective::final_counters(way.schedule, way.queue->runs());
    values.resize(first);
    values.insert(values.end(), counters.begin(), counters.end());
  };
  add(common_, 0);
  add(apart_, first_word(size()));
  return values;
}

namespace {

void end_put(void* arg, heddle_status status) {
  // Release, partner: the acquire load in SessionQueue::give_credits().
  static_cast<std::atomic<std::int32_t>*>(arg)->store(status == HEDDLE_DONE ? Carrier::kThere : status,
                                                      std::memory_order_release);
}

}  // namespace

bool RegionCarrier::put(const std::byte* source, std::uint64_t bytes, Place place, std::uint64_t offset,
                        std::atomic<std::int32_t>* ended) {
  if (place == Place::beside) offset = beside_at(offset);
  const Base& base = place == Place::beside ? counters_ : places_[static_cast<std::size_t>(place)];
  if (base.region == nullptr || !base.region->range(base.offset + offset, bytes)) {
    end_put(ended, HEDDLE_ERR_RANGE);
    return true;
  }
  engine::CallersCompletion completion;
  completion.fn = end_put;
  completion.arg = ended;
  // A put does not write its source.
  const engine::BlockTransfer block{engine::Kind::put, const_cast<std::byte*>(source), bytes, base.region,
                                    base.offset + offset};
  const base::Status status = worker::post(port_, block, completion);
  if (status == HEDDLE_AGAIN) return false;
  if (status == HEDDLE_DONE || status < 0) end_put(ended, status);
  return true;
}

// Without a completion: the only thing that can still go wrong is the peer's death, which is
// detected by other means.
base::Status RegionCarrier::give(std::uint32_t counter, std::uint64_t credits) {
  const std::uint64_t offset = counters_.offset + counter * sizeof(CounterWord);
  if (!counters_.region->range(offset, sizeof(CounterWord))) return HEDDLE_ERR_RANGE;
  engine::Requester::AtomicRequest request{};
  request.op = HEDDLE_ADD64;
  request.remote = counters_.region;
  request.offset = offset;
  request.operand = credits;
  return worker::start(port_, worker::AtomicStart{request, counters_.region->rank, {}});
}

namespace {

// More than any operation needs. This bounds the number of rounds that members may ask for.
constexpr std::uint32_t kMostRounds = std::uint32_t{1} << 20;

// Replaces a setup that was cancelled.
class Gone final : public Setup {
 public:
  [[nodiscard]] const SetupRecord& record() const override { return none_; }
  base::Status assembled(std::span<const SetupRecord>, bool*) override { return HEDDLE_DONE; }
  void decided(base::Status) override {}

 private:
  const SetupRecord none_{};
};

}  // namespace

void Setup::tell(std::uint32_t, std::span<SetupRecord> members) {
  std::ranges::fill(members, record());
}

void Setup::heard(std::uint32_t, std::span<const SetupRecord>) {}

void Setups::submit(Setup& setup) {
  {
    const std::lock_guard lock(mutex_);
    setups_.push_back(&setup);
  }
  static_cast<void>(advance());
}

void Setups::cancel(Setup& setup) {
  static Gone gone;
  const std::lock_guard lock(mutex_);
  // It keeps its turn in the order of setups.
  std::ranges::replace(setups_, &setup, static_cast<Setup*>(&gone));
}

// The error of the first member, by rank, whose part failed; DONE: none.
base::Status Setups::judge_verdicts() const {
  const std::span<const SetupRecord> records = assembly_->records();
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].status == HEDDLE_DONE) continue;
    const auto status = static_cast<base::Status>(records[i].status);
    return base::fail(status, "rank %zu of the team could not do its part (%s), so nobody does", i,
                      heddle_status_name(status));
  }
  return HEDDLE_DONE;
}

// Starts the next round.
void Setups::start_round(Setup& first) {
  SetupRecord verdict;
  verdict.kind = SetupRecord::Kind::verdict;
  if (phase_ == Phase::common) first.told();
  if (phase_ == Phase::common && assembly_->prefers_common()) {
    SetupRecord record = first.record();
    record.apart = first.tells_apart() ? 1 : 0;
    return assembly_->start_common(record);
  }
  if (phase_ == Phase::common || phase_ == Phase::apart) {
    phase_ = Phase::apart;
    first.tell(round_, assembly_->told());
    return assembly_->start_apart();
  }
  if (phase_ == Phase::opening) verdict_ = assembly_->open_apart();
  verdict.status = verdict_;
  assembly_->start_common(verdict);
}

// True: another round follows. All members decide alike, from the same records.
bool Setups::heard_round(Setup& first) {
  const std::span<const SetupRecord> records = assembly_->records();
  first.heard(round_, records);
  std::uint32_t rounds = 0;
  for (const SetupRecord& record : records) rounds = std::max(rounds, record.rounds);
  return ++round_ < std::min(rounds, kMostRounds);
}

base::Status Setups::end_round(Setup& first) {
  switch (phase_) {
    case Phase::common:
      if (std::ranges::any_of(assembly_->records(), [](const SetupRecord& record) { return record.apart != 0; })) {
        phase_ = assembly_->is_open_apart() ? Phase::apart : Phase::opening;
        return HEDDLE_AGAIN;
      }
      break;
    case Phase::opening: {
      const base::Status status = judge_verdicts();
      if (status != HEDDLE_DONE) {
        assembly_->close_apart();
        return status;
      }
      phase_ = Phase::apart;
      return HEDDLE_AGAIN;
    }
    case Phase::apart:
      break;
    case Phase::confirming:
      return judge_verdicts();
  }
  if (heard_round(first)) return HEDDLE_AGAIN;
  bool doubtful = false;
  verdict_ = first.assembled(assembly_->records(), &doubtful);
  if (!doubtful) return verdict_;
  phase_ = Phase::confirming;
  return HEDDLE_AGAIN;
}

bool Setups::advance() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  bool moved = false;
  while (!setups_.empty()) {
    Setup& first = *setups_.front();
    const std::uint64_t before = assembly_->executed();
    if (assembly_->status() == HEDDLE_DONE && !assembling_) {
      start_round(first);
      assembling_ = true;
    }
    if (assembling_ && !assembly_->advance()) {
      moved = moved || assembly_->executed() != before;
      const std::uint64_t epoch = team_.failure_epoch();
      if (epoch == whole_epoch_) return moved;
      if (!team_.failed_member()) {
        whole_epoch_ = epoch;
        return moved;
      }
      assembly_->fail(HEDDLE_ERR_PEER_FAILED);
      if (!assembly_->advance()) return moved;  // puts to members that live are still under way
    }
    assembling_ = false;
    moved = true;
    const base::Status status = assembly_->status() == HEDDLE_DONE ? end_round(first) : team_.report_dead();
    if (status == HEDDLE_AGAIN) continue;
    phase_ = Phase::common;
    round_ = 0;
    setups_.pop_front();
    first.decided(status);
    // Another thread may sleep until then; what this thread has taken rings no more.
    team_.context().transport().ring();
  }
  return moved;
}

}  // namespace heddle::collective
