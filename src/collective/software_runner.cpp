#include "collective/software_runner.hpp"

#include <algorithm>

#include "collective/collective.hpp"
#include "collective/team.hpp"
#include "worker/worker.hpp"

namespace heddle::collective {

using Where = SetupRecord::Where;

namespace {

// Members whose cards are asked for at once. Each card on its way holds a descriptor, of which a
// user may have only so many in flight.
constexpr std::size_t kAskedAtOnce = 16;

}  // namespace

std::unique_ptr<Runner> SoftwareRunner::open(const Plan& plan, const Places& places) {
  return std::unique_ptr<Runner>(new SoftwareRunner(plan, places));
}

SoftwareRunner::SoftwareRunner(const Plan& plan, const Places& places)
    : team_(plan.team),
      call_(plan.call),
      places_(places),
      received_(receive_bytes(plan.request, plan.request.rank)),
      exposes_(plan.algorithm.reach == Algorithm::Reach::get) {}

namespace {

// The commands for a piece whose blocks lie apart in the caller's memory.
Schedule spread(const Schedule& schedule, const Call& call) {
  Schedule all = schedule;
  const auto move = [&](Block& block, Place place) {
    if (block.bytes != 0 && block.place == place) block.offset += block.offset / call.bytes * (call.whole - call.bytes);
  };
  for (ScheduleCommand& command : all.commands) {
    move(command.source, Place::send);
    move(command.destination, Place::receive);
  }
  return all;
}

}  // namespace

SoftwareRunner::~SoftwareRunner() {
  for (engine::RemoteRegion* remote : imported_) team_.context().objects().close_remote(remote);
}

base::Status SoftwareRunner::bind(const Schedule& schedule, std::span<const SetupRecord> records) {
  std::vector<RankMemory> memory(team_.size());
  const auto bind_one = [&](std::uint32_t member) { return bind_member(member, records[member], &memory[member]); };
  if (const base::Status status = bind_one(team_.rank()); status != HEDDLE_DONE) return status;
  std::vector<std::uint32_t> targets;
  std::vector<bool> known(team_.size());
  known[team_.rank()] = true;
  for (const ScheduleCommand& command : schedule.commands) {
    if ((command.action != Action::put && command.action != Action::get) || known[command.target]) continue;
    known[command.target] = true;
    targets.push_back(command.target);
  }
  std::size_t asked = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    // Several cards are on their way while this thread waits for one.
    for (; i % kAskedAtOnce == 0 && asked < std::min(targets.size(), i + 2 * kAskedAtOnce); ++asked)
      team_.context().transport().prepare_import(team_.rank_in_job(targets[asked]));
    if (const base::Status status = bind_one(targets[i]); status != HEDDLE_DONE) return status;
  }
  RankMemory& mine = memory[team_.rank()];
  mine.counters = places_.counters();
  mine.places[static_cast<std::size_t>(Place::scratch)] = places_.scratch();
  bind_to(call_.apart ? spread(schedule, call_) : schedule, memory, call_.reduction);
  set_buffers(call_);
  return HEDDLE_DONE;
}

base::Result<engine::RemoteRegion*> SoftwareRunner::region_of(std::uint32_t member, const SetupRecord& record,
                                                              Where where) {
  if (where == Where::nowhere) return static_cast<engine::RemoteRegion*>(nullptr);
  if (where == Where::arena) return team_.commons().arena_of(team_.rank_in_job(member));
  auto imported =
      team_.context().objects().import(where == Where::scratch_region ? record.scratch_region : record.receive_region);
  if (!imported) return imported;
  (*imported)->server = team_.context().internal_worker();
  imported_.push_back(*imported);
  return imported;
}

// Binds a member: directly, or by a carrier if its memory cannot be mapped.
base::Status SoftwareRunner::bind_member(std::uint32_t member, const SetupRecord& record, RankMemory* memory) {
  worker::Worker* port = team_.commons().port();
  if (member == team_.rank() && port == nullptr) return HEDDLE_DONE;
  auto arena = region_of(member, record, Where::arena);
  if (!arena) return arena.status();
  // If only some ranks are direct, a peer's own memory may not be mapped although its arena is.
  bool direct = (*arena)->direct != nullptr;
  std::array<RegionCarrier::Base, 3> places;
  std::array<std::byte*, 3> mapped{};
  const std::array<std::pair<Place, std::pair<Where, std::uint64_t>>, 2> wanted = {
      {{Place::receive, {record.receive_in, record.receive}}, {Place::scratch, {record.scratch_in, record.scratch}}}};
  for (const auto& [place, at] : wanted) {
    if (member == team_.rank()) break;  // places of this rank are addresses
    auto region = region_of(member, record, at.first);
    if (!region) return region.status();
    if (*region == nullptr) continue;
    places[static_cast<std::size_t>(place)] = {*region, at.second};
    const bool maps = (*region)->direct != nullptr && (*region)->memory.all_direct() && at.second <= (*region)->bytes;
    if (direct && !maps && team_.mapped()) {
      return base::fail(HEDDLE_ERR_UNSUPPORTED,
                        "a buffer of rank %u of the team cannot be mapped here, though others can", member);
    }
    direct = direct && maps;
    if (maps) mapped[static_cast<std::size_t>(place)] = (*region)->direct + at.second;
  }
  if (direct) {
    for (const auto& [place, at] : wanted) {
      std::byte* const to = mapped[static_cast<std::size_t>(place)];
      if (to != nullptr) memory->places[static_cast<std::size_t>(place)] = to;
    }
    memory->counters = reinterpret_cast<CounterWord*>((*arena)->direct + record.counters);
    memory->bell = team_.commons().bell_of(team_.rank_in_job(member));
    return HEDDLE_DONE;
  }
  carriers_.push_back(std::make_unique<RegionCarrier>(*port, RegionCarrier::Base{*arena, record.counters}, places));
  memory->carrier = carriers_.back().get();
  return HEDDLE_DONE;
}

void SoftwareRunner::set_buffers(const Call& call) {
  set_reduction(call.reduction);
  // The send buffer is not written.
  set_place(Place::send, const_cast<std::byte*>(static_cast<const std::byte*>(call.send)));
  auto* received = static_cast<std::byte*>(call.receive);
  std::byte* const stage = places_.stage();
  set_place(Place::receive, stage != nullptr ? stage : received);
  if (stage == nullptr) return;
  if (exposes_)
    set_exposed(received);
  else
    set_delivery({received, stage, received_});
}

Runner::Memory SoftwareRunner::retire(const Past& past) {
  if (past.ran) return Memory::late;
  // If calls agree and this member could not take part, others may have run the operation.
  return past.never ? Memory::now : Memory::never;
}

}  // namespace heddle::collective
