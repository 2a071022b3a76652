// How an operation reaches what it works with: the interface's queues or gates, or the members' memory.
#include <algorithm>

#include "collective/collective.hpp"
#include "engine/worker.hpp"

namespace heddle::collective {

using Where = Record::Where;

// ---- by the interface -----------------------------------------------------------------------------------------------------------

// So long that the commands of a run fit the interface's queues, with up to three children: the queue that segments come to has a command for
// each of them, whether that puts to the child or releases a queue that does.
std::uint64_t Collective::segment_for_queues() const {
  transport::SessionQueues* sessions = team_.context().transport().sessions();
  if (sessions == nullptr) return choice_.segment_bytes;
  constexpr std::uint64_t kChildren = 3;
  const std::uint64_t segments = std::max<std::uint64_t>(sessions->limits().commands / kChildren, 1);
  return std::max(choice_.segment_bytes, ((call_.bytes + segments - 1) / segments + 63) / 64 * 64);
}

void Collective::open_offload() {
  if (use_ == Use::persistent && choice_.algorithm->session) return open_queues();
  if (use_ != Use::once && !choice_.named) open_gates();
}

// Whether this rank asks for a queue for each link.
bool Collective::spreads() const {
  if (!choice_.algorithm->session || use_ != Use::persistent) return false;
  transport::SessionQueues* sessions = team_.context().transport().sessions();
  return sessions != nullptr && call_.bytes >= sessions->limits().spread_bytes;
}

// The interface puts into the caller's buffer, wherever that is. With too few queues for all links one for all children in a tree will do: the
// others take no notice.
void Collective::open_queues() {
  transport::SessionQueues* sessions = team_.context().transport().sessions();
  const std::span<std::byte> receive(static_cast<std::byte*>(call_.receive), receive_bytes(request_, request_.rank));
  offload_ = SessionOffload::open(sessions, schedule_, receive);
  if (offload_ != nullptr || schedule_.counters.size() <= SessionKeys::kMost) return;
  request_.spread = false;
  schedule_ = choice_.algorithm->schedule(request_);
  offload_ = SessionOffload::open(sessions, schedule_, receive);
}

void Collective::open_gates() {
  transport::BarrierGates* interface = team_.context().transport().gates();
  if (interface == nullptr || team_.size() < 2) return;
  const auto how = GateReduction::of(call_, std::min(interface->limits().words, GateOffload::kMostWords));
  if (!how) return;
  std::shared_ptr<TeamGates> gates = use_ == Use::kept ? team_.gates() : team_.open_gates();
  if (gates == nullptr) return;
  auto offload = std::make_unique<GateOffload>(std::move(gates), *how);
  offload->set_buffers(call_.send, call_.receive);
  by_gates_ = offload.get();
  offload_ = std::move(offload);
}

void Collective::drop_offload() {
  by_gates_ = nullptr;
  offload_.reset();
}

const char* Collective::algorithm() const {
  if (stage() != Stage::ready || by_gates_ == nullptr) return choice_.algorithm->name;
  switch (call_.operation) {
    case Operation::barrier:
      return "barrier.gates";
    case Operation::reduce:
      return "reduce.gates";
    default:
      return "allreduce.gates";
  }
}

// ---- by the members' memory -------------------------------------------------------------------------------------------------

base::Status Collective::bind(std::span<const Record> records) {
  if (offload_ != nullptr) return offload_->bind(schedule_, records);
  std::vector<RankMemory> memory(team_.size());
  std::vector<bool> bound(team_.size());
  RankMemory& mine = memory[team_.rank()];
  if (const base::Status status = bind_member(team_.rank(), record_, &mine); status != HEDDLE_DONE) return status;
  bound[team_.rank()] = true;
  for (const Command& command : schedule_.commands) {
    if ((command.action != Action::put && command.action != Action::get) || bound[command.target]) continue;
    bound[command.target] = true;
    const base::Status status = bind_member(command.target, records[command.target], &memory[command.target]);
    if (status != HEDDLE_DONE) return status;
  }
  mine.counters = reinterpret_cast<CounterWord*>(team_.commons().arena().base() + record_.counters);
  mine.places[static_cast<std::size_t>(Place::scratch)] = scratch_;
  queue_ = std::make_unique<SessionQueue>(schedule_, memory, call_.reduction);
  set_buffers(call_);
  return HEDDLE_DONE;
}

base::Result<engine::RemoteRegion*> Collective::region_of(std::uint32_t member, const Record& record, Where where) {
  if (where == Where::nowhere) return static_cast<engine::RemoteRegion*>(nullptr);
  if (where == Where::arena) return team_.commons().arena_of(team_.rank_in_job(member));
  auto imported =
      team_.context().import(where == Where::scratch_region ? record.scratch_region : record.receive_region);
  if (!imported) return imported;
  (*imported)->server = team_.context().internal_worker();
  imported_.push_back(*imported);
  return imported;
}

// Where the member is reached: directly, or by a carrier if its memory cannot be mapped.
base::Status Collective::bind_member(std::uint32_t member, const Record& record, RankMemory* memory) {
  engine::Worker* port = team_.commons().port();
  if (member == team_.rank() && port == nullptr) return HEDDLE_DONE;
  auto arena = region_of(member, record, Where::arena);
  if (!arena) return arena.status();
  // Where only some ranks are direct, a peer's own memory may not be though its arena is.
  bool direct = (*arena)->direct != nullptr;
  std::array<RegionCarrier::Base, 3> places;
  std::array<std::byte*, 3> mapped{};
  const std::array<std::pair<Place, std::pair<Where, std::uint64_t>>, 2> wanted = {
      {{Place::receive, {record.receive_in, record.receive}}, {Place::scratch, {record.scratch_in, record.scratch}}}};
  for (const auto& [place, at] : wanted) {
    if (member == team_.rank()) break;  // its own places are addresses
    auto region = region_of(member, record, at.first);
    if (!region) return region.status();
    if (*region == nullptr) continue;
    places[static_cast<std::size_t>(place)] = {*region, at.second};
    const bool maps = (*region)->direct != nullptr && at.second <= (*region)->bytes;
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
    return HEDDLE_DONE;
  }
  carriers_.push_back(std::make_unique<RegionCarrier>(*port, RegionCarrier::Base{*arena, record.counters}, places));
  memory->carrier = carriers_.back().get();
  return HEDDLE_DONE;
}

// The caller's buffers of the next run.
void Collective::set_buffers(const Call& call) {
  if (by_gates_ != nullptr) return by_gates_->set_buffers(call.send, call.receive);
  // What is sent is not written.
  queue_->set_place(Place::send, const_cast<std::byte*>(static_cast<const std::byte*>(call.send)));
  auto* received = static_cast<std::byte*>(call.receive);
  queue_->set_place(Place::receive, staged_ != nullptr ? staged_ : received);
  if (staged_ == nullptr) return;
  if (choice_.algorithm->reach == Algorithm::Reach::get)
    queue_->set_exposed(received);
  else
    queue_->set_delivery({received, staged_, receive_bytes(request_, request_.rank)});
}

}  // namespace heddle::collective
