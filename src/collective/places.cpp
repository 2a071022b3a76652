#include "collective/places.hpp"

#include "collective/team.hpp"
#include "worker/worker.hpp"

namespace heddle::collective {
namespace {

using Where = Record::Where;

constexpr std::uint64_t lines(std::uint64_t bytes) {
  return (bytes + base::kCacheLine - 1) / base::kCacheLine * base::kCacheLine;
}

}  // namespace

void Places::look(const Plan& plan) {
  using Reach = Algorithm::Reach;
  const Request& request = plan.request;
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
base::Status Places::take(const Plan& plan, Record* record) {
  const std::uint64_t counters = lines(plan.schedule.counters.size() * sizeof(CounterWord));
  const std::uint64_t scratch = lines(plan.schedule.scratch_bytes);
  const std::uint64_t received = receive_bytes(plan.request, plan.request.rank);
  const base::Status status = take_pieces(counters, scratch + (stages_ ? received : 0), record);
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

base::Status Places::take_pieces(std::uint64_t counters, std::uint64_t slots, Record* record) {
  Arena& arena = team_.commons().arena();
  const bool inside = slots <= arena.bytes() / 16;
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

}  // namespace heddle::collective
