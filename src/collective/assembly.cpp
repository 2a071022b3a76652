#include "collective/assembly.hpp"

#include "collective/algorithms/algorithms.hpp"

namespace heddle::collective {
namespace {

Schedule schedule_of(std::uint32_t members, std::uint32_t member) {
  Request request;
  request.operation = Operation::alltoall;
  request.rank = member;
  request.ranks = members;
  request.bytes = sizeof(Record);
  return alltoall_kept(request);
}

}  // namespace

std::vector<std::uint64_t> final_counters(const Schedule& schedule, std::uint64_t runs) {
  std::vector<std::uint64_t> values;
  for (const Counter& counter : schedule.counters) values.push_back(counter.initial + runs * counter.per_run);
  return values;
}

std::uint64_t Assembly::bytes(std::uint32_t members) {
  return (members + 1) * sizeof(CounterWord) + schedule_of(members, 0).scratch_bytes;
}

void Assembly::prepare(Arena& arena, std::uint64_t piece, std::uint32_t members) {
  // The same for every member except its own counter, for which nobody waits.
  auto* words = reinterpret_cast<CounterWord*>(arena.base() + piece);
  for (std::uint32_t i = 0; i <= members; ++i) words[i].credits.store(i == 0 ? 0 : 1, std::memory_order_relaxed);
}

base::Result<std::unique_ptr<Assembly>> Assembly::make(Commons& commons, std::span<const std::uint32_t> ranks,
                                                       std::uint32_t member, std::span<const std::uint64_t> pieces) {
  std::unique_ptr<Assembly> assembly(new Assembly);
  const auto members = static_cast<std::uint32_t>(ranks.size());
  assembly->schedule_ = schedule_of(members, member);
  assembly->told_.resize(members);
  assembly->records_.resize(members);
  const std::uint64_t scratch_at = (members + 1) * sizeof(CounterWord);
  std::vector<RankMemory> memory(members);
  for (std::uint32_t other = 0; other < members; ++other) {
    RankMemory& at = memory[other];
    std::byte* arena = commons.arena().base();
    engine::Worker* port = commons.port();
    if (other != member || port != nullptr) {
      auto remote = commons.arena_of(ranks[other]);
      if (!remote) return remote.status();
      if (other != member) arena = (*remote)->direct;
      if ((*remote)->direct == nullptr && port != nullptr) {
        const RegionCarrier::Base scratch{*remote, pieces[other] + scratch_at};
        assembly->carriers_.push_back(std::make_unique<RegionCarrier>(
            *port, RegionCarrier::Base{*remote, pieces[other]}, std::array<RegionCarrier::Base, 3>{{{}, {}, scratch}}));
        at.carrier = assembly->carriers_.back().get();
      }
    }
    if (arena == nullptr) continue;
    at.counters = reinterpret_cast<CounterWord*>(arena + pieces[other]);
    at.places[static_cast<std::size_t>(Place::scratch)] = arena + pieces[other] + scratch_at;
  }
  memory[member].places[static_cast<std::size_t>(Place::send)] = reinterpret_cast<std::byte*>(assembly->told_.data());
  memory[member].places[static_cast<std::size_t>(Place::receive)] =
      reinterpret_cast<std::byte*>(assembly->records_.data());
  assembly->queue_ = std::make_unique<SessionQueue>(assembly->schedule_, memory, Reduction{});
  return assembly;
}

std::vector<std::uint64_t> Assembly::final_counters() const {
  return collective::final_counters(schedule_, queue_->runs());
}

}  // namespace heddle::collective
