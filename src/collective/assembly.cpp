#include "collective/assembly.hpp"

#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

// Meeting a member takes long, and costs memory at both members. Up to this many members, each
// member meets all others, and a round of records is one step. In a larger team a round is two
// steps, and each member meets few others.
constexpr std::uint32_t kMeetAll = 32;

Schedule schedule_of(std::uint32_t members, std::uint32_t member) {
  Request request;
  request.operation = Operation::alltoall;
  request.rank = member;
  request.ranks = members;
  request.bytes = sizeof(Record);
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
  for (const Counter& counter : schedule.counters) values.push_back(counter.initial + runs * counter.per_run);
  return values;
}

// The piece also suffices for a smaller team.
std::uint64_t Assembly::bytes(std::uint32_t members) {
  const std::uint64_t times = members <= kMeetAll ? 1 : 2;  // blocks to pass on, blocks that come
  return scratch_at(members) + times * members * sizeof(Record);
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
  for (const Command& command : assembly->schedule_.commands) {
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
  engine::Worker* port = commons.port();
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

}  // namespace heddle::collective
