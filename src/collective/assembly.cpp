#include "collective/assembly.hpp"

#include <algorithm>
#include <mutex>

#include "collective/algorithms/algorithms.hpp"
#include "collective/team.hpp"
#include "worker/gate.hpp"
#include "worker/worker.hpp"

namespace heddle::collective {

namespace {

// Meeting a member takes long, and costs memory at both members. Up to this many members, each
// member meets all others, and a round of records is one step. In a larger team a round is two
// steps, and each member meets few others.
constexpr std::uint32_t kMeetAll = 32;

Schedule schedule_of(std::uint32_t members, std::uint32_t member) {
  AlgorithmRequest request;
  request.operation = Operation::alltoall;
  request.rank = member;
  request.ranks = members;
  request.bytes = sizeof(SetupRecord);
  return members <= kMeetAll ? alltoall_kept(request) : alltoall_grid(request);
}

// The piece is prepared before it is known which team it will be for, of how many members, and
// which of them this one is. So the words are the same for every team: two without credits, as
// the schedules count what has come, and the others with one, as they count what is free. A
// schedule that has one counter of the first kind begins with the second word.
constexpr std::uint32_t first_word(std::uint32_t members) {
  return members <= kMeetAll ? 1 : 0;
}
constexpr std::uint64_t words_of(std::uint32_t members) {
  return members + std::uint64_t{2};
}
constexpr std::uint64_t scratch_at(std::uint32_t members) {
  return words_of(members) * sizeof(CounterWord);
}

}  // namespace

std::vector<std::uint64_t> final_counters(const Schedule& schedule, std::uint64_t runs) {
  std::vector<std::uint64_t> values;
  for (const ScheduleCounter& counter : schedule.counters) values.push_back(counter.initial + runs * counter.per_run);
  return values;
}

// The piece also suffices for a smaller team.
std::uint64_t Assembly::bytes(std::uint32_t members) {
  const std::uint64_t times = members <= kMeetAll ? 1 : 2;  // blocks to pass on, blocks that come
  return scratch_at(members) + times * members * sizeof(SetupRecord);
}

bool Assembly::fits(std::uint32_t members, std::uint32_t member) {
  const Schedule schedule = schedule_of(members, member);
  const auto counters = std::span(schedule.counters);
  if (first_word(members) + counters.size() > words_of(members)) return false;
  for (std::size_t i = 0; i < counters.size(); ++i)
    if (counters[i].per_run != 0 && counters[i].initial != (first_word(members) + i < 2 ? 0 : 1)) return false;
  return scratch_at(members) + schedule.scratch_bytes <= bytes(members);
}

void Assembly::prepare(Arena& arena, std::uint64_t piece, std::uint32_t members) {
  auto* words = reinterpret_cast<CounterWord*>(arena.base() + piece);
  for (std::uint64_t i = 0; i < words_of(members); ++i)
    words[i].credits.store(i < 2 ? 0 : 1, std::memory_order_relaxed);
}

base::Result<std::unique_ptr<Assembly>> Assembly::make(Commons& commons, std::span<const std::uint32_t> ranks,
                                                       std::uint32_t member, std::span<const std::uint64_t> pieces) {
  std::unique_ptr<Assembly> assembly(new Assembly);
  const auto members = static_cast<std::uint32_t>(ranks.size());
  assembly->schedule_ = schedule_of(members, member);
  assembly->told_.resize(members);
  assembly->records_.resize(members);
  std::vector<RankMemory> memory(members);
  if (const base::Status status = assembly->reach(commons, {ranks, member, pieces}, member, &memory[member]);
      status != HEDDLE_DONE) {
    return status;
  }
  std::vector<bool> reached(members);
  for (const ScheduleCommand& command : assembly->schedule_.commands) {
    if (command.action != Action::put || command.target == member || reached[command.target]) continue;
    reached[command.target] = true;
    const base::Status status =
        assembly->reach(commons, {ranks, member, pieces}, command.target, &memory[command.target]);
    if (status != HEDDLE_DONE) return status;
  }
  memory[member].places[static_cast<std::size_t>(Place::send)] = reinterpret_cast<std::byte*>(assembly->told_.data());
  memory[member].places[static_cast<std::size_t>(Place::receive)] =
      reinterpret_cast<std::byte*>(assembly->records_.data());
  assembly->queue_ = std::make_unique<SessionQueue>(assembly->schedule_, memory, Reduction{});
  return assembly;
}

base::Status Assembly::reach(Commons& commons, const Members& members, std::uint32_t other, RankMemory* at) {
  const auto size = static_cast<std::uint32_t>(members.ranks.size());
  const std::uint64_t piece = members.pieces[other];
  const std::uint64_t counters = piece + first_word(size) * sizeof(CounterWord);
  const std::uint64_t scratch = piece + scratch_at(size);
  std::byte* arena = commons.arena().base();
  worker::Worker* port = commons.port();
  if (other != members.member || port != nullptr) {
    auto remote = commons.arena_of(members.ranks[other]);
    if (!remote) return remote.status();
    if (other != members.member) arena = (*remote)->direct;
    if ((*remote)->direct == nullptr && port != nullptr) {
      carriers_.push_back(
          std::make_unique<RegionCarrier>(*port, RegionCarrier::Base{*remote, counters},
                                          std::array<RegionCarrier::Base, 3>{{{}, {}, {*remote, scratch}}}));
      at->carrier = carriers_.back().get();
    }
  }
  if (arena == nullptr) return HEDDLE_DONE;
  at->counters = reinterpret_cast<CounterWord*>(arena + counters);
  at->places[static_cast<std::size_t>(Place::scratch)] = arena + scratch;
  return HEDDLE_DONE;
}

// The values of all words of the piece, from the first one on.
std::vector<std::uint64_t> Assembly::final_counters() const {
  std::vector<std::uint64_t> values(first_word(schedule_.ranks));
  const std::vector<std::uint64_t> counters = collective::final_counters(schedule_, queue_->runs());
  values.insert(values.end(), counters.begin(), counters.end());
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

// Starts the next round: the first setup's records, or the results of the parts.
void Setups::start_round(Setup& first) {
  if (confirming_) {
    SetupRecord verdict;
    verdict.kind = SetupRecord::Kind::verdict;
    verdict.status = verdict_;
    std::ranges::fill(assembly_->told(), verdict);
  } else {
    if (round_ == 0) first.told();
    first.tell(round_, assembly_->told());
  }
  assembly_->start();
  assembling_ = true;
}

// True: another round follows. All members decide alike, from the same records.
bool Setups::heard_round(Setup& first) {
  const std::span<const SetupRecord> records = assembly_->records();
  first.heard(round_, records);
  std::uint32_t rounds = 0;
  for (const SetupRecord& record : records) rounds = std::max(rounds, record.rounds);
  return ++round_ < std::min(rounds, kMostRounds);
}

bool Setups::advance() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  bool moved = false;
  while (!setups_.empty()) {
    Setup& first = *setups_.front();
    const std::uint64_t before = assembly_->executed();
    if (assembly_->status() == HEDDLE_DONE && !assembling_) start_round(first);
    if (assembling_ && !assembly_->advance()) {
      moved = moved || assembly_->executed() != before;
      if (!team_.failed_member()) return moved;
      assembly_->fail(HEDDLE_ERR_PEER_FAILED);
      if (!assembly_->advance()) return moved;  // puts to members that live are still under way
    }
    assembling_ = false;
    moved = true;
    base::Status status = assembly_->status();
    if (status != HEDDLE_DONE) {
      status = team_.report_dead();
    } else if (!confirming_) {
      if (heard_round(first)) continue;
      bool doubtful = false;
      status = verdict_ = first.assembled(assembly_->records(), &doubtful);
      confirming_ = doubtful;
      if (doubtful) continue;
    } else {
      status = judge_verdicts();
    }
    confirming_ = false;
    round_ = 0;
    setups_.pop_front();
    first.decided(status);
  }
  return moved;
}

}  // namespace heddle::collective
