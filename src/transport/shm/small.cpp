#include "transport/shm/small.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/cache_line.hpp"
#include "base/copy.hpp"
#include "base/fence.hpp"

namespace heddle::transport::shm {

SmallTransfers::SmallTransfers(Device& device, std::uint32_t worker, Backlog& backlog)
    : device_(device),
      backlog_(backlog),
      slots_(&device.control().slot(worker, 0)),
      patience_ns_(std::min(device.environment().config.number(base::Var::shm_bounce_patience_ns), kPatienceNs)),
      operations_(kSmallSlots),
      patience_(device.size()) {
  if (!device.bounce().enabled()) return;  // the kernel's copy only
  while (unused_ < kSmallSlots) {
    free_[unused_] = static_cast<std::uint8_t>(kSmallSlots - 1 - unused_);
    ++unused_;
  }
}

SmallTransfers::~SmallTransfers() {
  for (const std::uint8_t slot : std::span(order_).first(count_)) {
    static_cast<void>(slots_[slot].word.take_back(operations_[slot].word));
  }
}

// ---- the initiator ------------------------------------------------------------------------------

inline bool SmallTransfers::may_ask(const OutgoingRing& to, std::uint64_t region) {
  Patience& patience = patience_[to.peer->rank];
  const bool polls = to.entry->attention.polls();
  if (polls && patience.skip == 0) [[likely]]
    return true;
  if (!cma_works(device_, *to.peer, region)) return true;
  if (polls) --patience.skip;
  return false;
}

bool SmallTransfers::start(Command& command, OutgoingRing& to) {
  const std::uint64_t region = command.remote->handle[0];
  if (unused_ == 0 || !may_ask(to, region)) return false;
  const auto bytes = static_cast<std::uint32_t>(command.bytes);
  const bool put = command.opcode == Opcode::put;
  std::byte* const room =
      to.ring.begin(put ? kSmallPutType : kSmallGetType, 0, sizeof(SmallRequest) + (put ? bytes : std::uint32_t{0}));
  if (room == nullptr) return false;
  const std::uint32_t slot = free_[--unused_];
  Operation& operation = operations_[slot];
  const std::uint64_t word = slots_[slot].word.idle();
  const SmallRequest request{command.remote->handle[1], command.offset, word, slot, bytes};
  std::memcpy(room, &request, sizeof request);
  if (put) {
    base::copy_bytes(room + sizeof request, command.local, bytes);
    base::copy_bytes(operation.data.data(), command.local, bytes);
  }
  to.publish();
  operation.token = command.token;
  operation.to = &to;
  operation.local = static_cast<std::byte*>(command.local);
  operation.region = region;
  operation.address = region + command.offset;
  operation.word = word;
  operation.looks = 0;
  operation.taken = false;
  operation.abandoned = false;
  operation.bytes = bytes;
  operation.direction = put ? Direction::put : Direction::get;
  order_[count_++] = static_cast<std::uint8_t>(slot);
  command.source_free = true;
  return true;
}

// Requests to one worker are served in their order. So only the oldest request that is not over is
// looked at: reading the word of another one would take its line from a target that is just about
// to write it. If the target does not take the oldest request, or takes it and does not end it, the
// requests behind it are taken back.
void SmallTransfers::advance() {
  // The workers of these operations; an operation always has one.
  const OutgoingRing* waits = nullptr;
  const OutgoingRing* abandoned = nullptr;
  base::Status failure = HEDDLE_DONE;
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count_; ++i) {
    const std::uint8_t slot = order_[i];
    Operation& operation = operations_[slot];
    if (operation.to == nullptr || operation.to == waits) {
      order_[kept++] = slot;
      continue;
    }
    const ChunkState state = slots_[slot].word.look(operation.word);
    if (state != ChunkState::requested && state != ChunkState::taken) {
      finish(slot, state == ChunkState::done);
      continue;
    }
    if (state == ChunkState::taken && !std::exchange(operation.taken, true)) operation.looks = 0;
    if (operation.to != abandoned && disappointed(operation) && abandons(operation, &failure)) {
      abandoned = operation.to;
    }
    if (operation.to == abandoned && slots_[slot].word.take_back(operation.word)) {
      end(slot, failure != HEDDLE_DONE ? failure : copied_by_kernel(operation));
      continue;
    }
    // A request that the target has already taken stays; the requests behind it are taken back.
    if (operation.to != abandoned) waits = operation.to;
    order_[kept++] = slot;
  }
  count_ = kept;
}

inline void SmallTransfers::finish(std::uint32_t slot, bool copied) {
  const Operation& operation = operations_[slot];
  base::Status status = HEDDLE_DONE;
  if (!copied) [[unlikely]] {
    status = base::fail(HEDDLE_ERR_RANGE, "rank %u has no living region for this transfer; was it released?",
                        operation.to->peer->rank);
  } else if (operation.direction == Direction::get) {
    base::copy_bytes(operation.local, slots_[slot].data.data(), operation.bytes);
  }
  std::uint16_t& last = patience_[operation.to->peer->rank].last;
  if (last != 0) [[unlikely]]
    last = static_cast<std::uint16_t>(last - (last + 3) / 4);
  end(slot, status);
}

inline void SmallTransfers::end(std::uint32_t slot, base::Status status) {
  backlog_.put(operations_[slot].token, status);
  free_[unused_++] = static_cast<std::uint8_t>(slot);
}

// True: the operation has waited for longer than a polling target needs. Most operations are over
// before the clock is read.
inline bool SmallTransfers::disappointed(Operation& operation) const {
  if (++operation.looks % kLooks != 0) return false;
  const std::uint64_t now = device_.environment().clock->now_ns();
  if (operation.looks == kLooks) operation.since = now;
  return now - operation.since > patience_ns_;
}

// Whether the requests to that worker are to be taken back: the kernel copies then, or they end
// with `failure`.
[[gnu::cold]] bool SmallTransfers::abandons(Operation& operation, base::Status* failure) {
  const OutgoingRing& to = *operation.to;
  PeerProcess& peer = *to.peer;
  *failure = HEDDLE_DONE;
  if (cma_works(device_, peer, operation.region)) {
    // A request that the target keeps counts once as a disappointment, however long that lasts.
    if (std::exchange(operation.abandoned, true)) return true;
    to.entry->attention.ignore();
    Patience& patience = patience_[peer.rank];
    patience.last = static_cast<std::uint16_t>(std::clamp(patience.last * 2, 4, int{kMostSkips}));
    patience.skip = patience.last;
    return true;
  }
  operation.looks = 0;
  const auto state = static_cast<WorkerState>(to.entry->state.load(std::memory_order_acquire));
  if (state != WorkerState::closed && !to.ring.rejected()) return false;
  *failure = base::fail(HEDDLE_ERR_PEER_FAILED, "worker %u of rank %u was closed, or takes nothing more", to.worker,
                        peer.rank);
  return true;
}

[[gnu::cold]] base::Status SmallTransfers::copied_by_kernel(Operation& operation) {
  const bool put = operation.direction == Direction::put;
  return cma_copy(*operation.to->peer, operation.direction, put ? operation.data.data() : operation.local,
                  operation.address, operation.bytes);
}

void SmallTransfers::peer_failed(std::uint32_t rank) {
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count_; ++i) {
    const std::uint8_t slot = order_[i];
    const Operation& operation = operations_[slot];
    if (operation.to->peer->rank != rank) {
      order_[kept++] = slot;
      continue;
    }
    // If the target died while it had the slot, or if it lives and was only declared dead, the slot
    // is not used again. This loses at most one slot for each of the target's workers.
    SlotWord<>& word = slots_[slot].word;
    const bool ours = word.take_back(operation.word) || word.look(operation.word) != ChunkState::taken;
    backlog_.put(operation.token, HEDDLE_ERR_PEER_FAILED);
    if (ours) free_[unused_++] = slot;
  }
  count_ = kept;
}

// ---- the target ---------------------------------------------------------------------------------

Served SmallTransfers::serve(const PeerProcess& peer, std::uint32_t worker, const queue::Record& record) noexcept {
  SmallRequest request;
  if (record.bytes < sizeof request) return Served::malformed;
  std::memcpy(&request, record.data, sizeof request);
  const bool put = record.type == kSmallPutType;
  if (request.slot >= kSmallSlots || request.bytes == 0 || request.bytes > kSmallBytes ||
      record.bytes != sizeof request + (put ? request.bytes : 0)) {
    return Served::malformed;
  }
  SmallSlot& slot = peer.control.slot(worker, request.slot);
  base::prefetch_for_writing(&slot);
  const auto place = device_.regions().locate(request.region, request.offset, request.bytes);
  if (!slot.word.take(request.word)) return Served::done;
  if (place) {
    base::show_serving();
    if (put) {
      base::copy_bytes(place->address, record.data + sizeof request, request.bytes);
    } else {
      base::copy_bytes(slot.data.data(), place->address, request.bytes);
    }
    base::show_served();
  }
  slot.word.end(request.word, place.has_value());
  return Served::done;
}

}  // namespace heddle::transport::shm
