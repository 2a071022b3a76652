#include "transport/shm/transfer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/copy.hpp"
#include "base/fence.hpp"

namespace heddle::transport::shm {

Transfers::Transfers(Device& device, std::uint32_t worker, Backlog& backlog)
    : device_(device),
      backlog_(backlog),
      pool_(device.bounce()),
      small_(device, worker, backlog),
      patience_ns_(device.environment().config.number(base::Var::shm_bounce_patience_ns)),
      transfers_(kMost),
      absences_(device.size()),
      came_(device.size()) {
  for (std::uint32_t i = 0; i < kMost; ++i) idle_.push_back(i);
  active_.reserve(kMost);
}

Transfers::~Transfers() {
  for (const std::uint32_t index : active_) reclaim(transfers_[index]);
}

// ---- targets that were not there ----------------------------------------------------------------

bool Absences::skips(std::uint32_t rank, std::uint64_t bytes) {
  Target& target = peers_[rank];
  if (target.skip == 0) return false;
  if (target.avoids && bytes <= kShortTransfer && ++target.parts < kShortAsOne) return true;
  target.parts = 0;
  --target.skip;
  return true;
}

void Absences::note_answered(std::uint32_t rank) {
  Target& target = peers_[rank];
  target.skipped = 0;
  if (target.avoided == 0 || ++target.calm < kCalm) return;
  target.calm = 0;
  target.avoided /= 2;
}

void Absences::note_unanswered(std::uint32_t rank) {
  Target& target = peers_[rank];
  target.skipped = static_cast<std::uint16_t>(std::clamp(2U * target.skipped, kLeastSkips, kMostSkips));
  if (target.skip >= target.skipped) return;
  target.skip = target.skipped;
  target.avoids = false;
}

void Absences::note_stalled(std::uint32_t rank) {
  Target& target = peers_[rank];
  target.calm = 0;
  target.avoided = static_cast<std::uint16_t>(std::clamp(2U * target.avoided, kLeastAvoided, kMostAvoided));
  target.skip = std::max(target.skip, target.avoided);
  target.avoids = true;
}

// ---- the initiator: beginning and ending --------------------------------------------------------

bool Transfers::goes_by_kernel(const Command& command, const OutgoingRing& to) {
  if (!cma_works(device_, *to.peer, command.remote->handle[0])) return false;
  return !pool_.enabled() || command.bytes < kLeastBounce || !to.entry->attention.polls() ||
         absences_.skips(to.peer->rank, command.bytes);
}

// How long to wait for a target that is only late because something has interrupted it: a tenth of
// the time that the kernel takes for the whole transfer on common machines.
std::uint64_t Transfers::patience(std::uint64_t bytes) const {
  if (bytes <= kShortTransfer) return std::min(patience_ns_, kShortPatienceNs);
  const std::uint64_t kernel_ns = 2300 + bytes * 9 / 100;
  return std::max(patience_ns_, kernel_ns / 10);
}

bool Transfers::start(Command& command, OutgoingRing& to) {
  if (command.alone) return copy_alone(command, *to.peer);
  if (backlog_.full()) return false;
  if (command.bytes <= kSmallBytes && small_.start(command, to)) {
    note_under_way();
    return true;
  }
  PeerProcess& peer = *to.peer;
  const Direction direction = command.opcode == Opcode::put ? Direction::put : Direction::get;
  const std::uint64_t address = command.remote->handle[0];
  const bool by_cma = goes_by_kernel(command, to);
  if (idle_.empty() && (!by_cma || command.bytes > kCmaStep)) return false;
  base::Status status = HEDDLE_DONE;
  if (by_cma && command.bytes <= kCmaStep) {
    status = cma_copy(peer, direction, command.local, address + command.offset, command.bytes);
    command.done = status == HEDDLE_DONE;
  } else if (!by_cma && !pool_.enabled()) {
    status = base::fail(HEDDLE_ERR_UNSUPPORTED,
                        "the kernel or HEDDLE_SHM_CMA forbids access to the memory of rank %u and "
                        "HEDDLE_SHM_BOUNCE has no pool; allow one of them",
                        peer.rank);
  } else if (!by_cma) {
    status = pool_.prepare(device_.segment(), device_.control().header());
  }
  if (command.done || status != HEDDLE_DONE) {
    command.source_free = true;
    if (!command.done) backlog_.put(command.token, status);
    return true;
  }
  const std::uint64_t began = look_at_clock();
  note_gap(began);
  const std::uint32_t index = idle_.back();
  idle_.pop_back();
  active_.push_back(index);
  Transfer& transfer = transfers_[index];
  transfer.token = command.token;
  transfer.to = &to;
  transfer.local = static_cast<std::byte*>(command.local);
  transfer.region = command.remote->handle[1];
  transfer.address = address;
  transfer.offset = command.offset;
  transfer.bytes = command.bytes;
  transfer.next = 0;
  transfer.last_progress = began;
  transfer.patience_ns = patience(command.bytes);
  transfer.direction = direction;
  transfer.status = HEDDLE_DONE;
  transfer.owes_source_free = false;
  transfer.source_given = false;
  transfer.by_cma = by_cma;
  transfer.starved = false;
  transfer.stalled = false;
  transfer.cold = false;
  transfer.first = 0;
  transfer.out = 0;
  note_under_way();
  feed(transfer, kLeastLook);
  transfer.looks = last_advance_ = time_;  // the copy just now took time, too
  command.source_free = direction == Direction::get || transfer.next == transfer.bytes;
  transfer.source_given = command.source_free && direction == Direction::put;
  transfer.owes_source_free = command.wants_source_free && !command.source_free;
  return true;
}

bool Transfers::copy_alone(Command& command, PeerProcess& peer) {
  const std::uint64_t address = command.remote->handle[0];
  const Direction direction = command.opcode == Opcode::put ? Direction::put : Direction::get;
  if (!cma_works(device_, peer, address)) return false;
  command.done = cma_copy(peer, direction, command.local, address + command.offset, command.bytes) == HEDDLE_DONE;
  command.source_free = command.done;
  return command.done;
}

bool Transfers::advance() {
  if (!small_.idle()) small_.advance();
  moved_ = false;
  if (active_.empty()) {
    note_under_way();
    return false;
  }
  const std::uint64_t before = look_at_clock();
  note_gap(before);
  const std::uint64_t most = std::max(kLook / active_.size(), kLeastLook);
  for (std::size_t position = 0; position < active_.size();) {
    Transfer& transfer = transfers_[active_[position]];
    collect(transfer, before, most);
    if (transfer.status == HEDDLE_DONE) feed(transfer, most);
    // No piece is with the target; its ring may stay full as long as the target computes.
    const bool stands = transfer.status == HEDDLE_DONE && transfer.out == 0 && transfer.next != transfer.bytes;
    if (stands && !transfer.by_cma && time_ - transfer.last_progress > transfer.patience_ns) stand_no_longer(transfer);
    if (transfer.out == 0 && (transfer.next == transfer.bytes || transfer.status != HEDDLE_DONE)) {
      retire(position);
    } else {
      ++position;
    }
  }
  last_advance_ = time_;
  note_under_way();
  return moved_;
}

// If there was only no chunk to lend, the target is not to blame: as long as it gives chunks back,
// there will be one.
void Transfers::stand_no_longer(Transfer& transfer) {
  if (!transfer.starved) return abandon(transfer);
  const std::uint64_t came = came_[transfer.to->peer->rank];
  if (time_ - came > transfer.patience_ns) return fall_back_to_cma(transfer);
  transfer.last_progress = came;
}

// While this thread was somewhere else its targets may have done their part.
void Transfers::note_gap(std::uint64_t now_ns) {
  if (active_.empty() || now_ns - last_advance_ <= kAwayNs) return;
  for (const std::uint32_t index : active_) transfers_[index].looks = now_ns;
}

void Transfers::retire(std::size_t position) {
  const std::uint32_t index = active_[position];
  Transfer& transfer = transfers_[index];
  finish_source(transfer);
  backlog_.put(transfer.token, transfer.status);
  const std::uint32_t rank = transfer.to->peer->rank;
  if (transfer.stalled) {
    absences_.note_stalled(rank);
  } else if (!transfer.by_cma && transfer.status == HEDDLE_DONE) {
    absences_.note_answered(rank);
  }
  active_[position] = active_.back();
  active_.pop_back();
  idle_.push_back(index);
}

void Transfers::finish_source(Transfer& transfer) {
  if (!transfer.owes_source_free || transfer.next != transfer.bytes) return;
  transfer.owes_source_free = false;
  transfer.source_given = true;
  backlog_.put(transfer.token, HEDDLE_DONE, Event::source_free);
}

// ---- the initiator ------------------------------------------------------------------------------

void Transfers::feed(Transfer& transfer, std::uint64_t most) {
  if (transfer.by_cma) {
    if (transfer.next < transfer.bytes) copy_by_cma(transfer);
  } else {
    for (std::uint64_t fed = 0; fed < most && transfer.next < transfer.bytes && transfer.out < kDepth;) {
      const std::uint64_t bytes = feed_one(transfer);
      if (bytes == 0) break;
      fed += bytes;
      moved_ = true;
    }
  }
  finish_source(transfer);
}

// How many bytes; 0: there is no chunk, or no room in the ring.
std::uint64_t Transfers::feed_one(Transfer& transfer) {
  std::uint32_t chunk = 0;
  transfer.starved = !pool_.lend(&chunk);
  if (transfer.starved) return 0;
  const std::uint8_t type = transfer.direction == Direction::put ? kPutType : kGetType;
  std::byte* room = transfer.to->ring.begin(type, 0, sizeof(TransferRequest));
  if (room == nullptr) {
    pool_.give_back(chunk);
    return 0;
  }
  TransferRequest request;
  request.region = transfer.region;
  request.offset = transfer.offset + transfer.next;
  request.chunk = chunk;
  request.bytes = static_cast<std::uint32_t>(std::min(pool_.chunk_bytes(), transfer.bytes - transfer.next));
  if (transfer.direction == Direction::put) {
    base::copy_data(pool_.view().data(chunk), transfer.local + transfer.next, request.bytes);
    note_copied(request.bytes);
  }
  request.generation = pool_.request(chunk);
  if (request.generation == 1) {
    transfer.cold = true;
    look_at_clock();
  }
  std::memcpy(room, &request, sizeof request);
  transfer.to->publish();
  if (transfer.out == 0) transfer.last_progress = time_;
  transfer.pieces[(transfer.first + transfer.out) % kDepth] = {transfer.next, request.generation, chunk, request.bytes};
  ++transfer.out;
  transfer.next += request.bytes;
  return request.bytes;
}

void Transfers::collect(Transfer& transfer, std::uint64_t now_ns, std::uint64_t most) {
  std::uint64_t copied = 0;
  while (transfer.out != 0) {
    const Piece piece = transfer.pieces[transfer.first];
    const ChunkState state = state_of(pool_.view().word(piece.chunk).load(std::memory_order_acquire));
    if (state == ChunkState::taken || state == ChunkState::requested) {
      look_at_waiting(transfer, state == ChunkState::taken, now_ns);
      return;
    }
    if (state == ChunkState::done && transfer.direction == Direction::get && transfer.status == HEDDLE_DONE) {
      if (copied >= most) return;
      base::copy_data(transfer.local + piece.at, pool_.view().data(piece.chunk), piece.bytes);
      note_copied(piece.bytes);
      copied += piece.bytes;
    } else if (state != ChunkState::done && transfer.status == HEDDLE_DONE) {
      transfer.status = base::fail(HEDDLE_ERR_RANGE, "rank %u has no living region for this transfer; was it released?",
                                   transfer.to->peer->rank);
    }
    pool_.give_back(piece.chunk);
    transfer.first = (transfer.first + 1) % kDepth;
    --transfer.out;
    moved_ = true;
    came_[transfer.to->peer->rank] = transfer.last_progress = time_;
  }
}

// The oldest piece that is out is not finished. The kernel takes over what it can if the target
// does not poll, or has lost its core.
void Transfers::look_at_waiting(Transfer& transfer, bool taken, std::uint64_t now_ns) {
  const auto past = [now_ns](std::uint64_t since) { return now_ns > since ? now_ns - since : 0; };
  if (!taken) {
    if (transfer.status != HEDDLE_DONE) return fall_back_to_cma(transfer);
    // If the target works for a transfer before this one, it is there.
    const std::uint64_t came = came_[transfer.to->peer->rank];
    const std::uint64_t patience = transfer.patience_ns + (transfer.cold ? kColdNs : 0);
    if (past(std::max(transfer.last_progress, came)) > patience) abandon(transfer);
    return;
  }
  // The target finishes it or dies.
  if (past(std::max(transfer.last_progress, transfer.looks)) > kStallNs) transfer.stalled = true;
  if (!transfer.by_cma && transfer.stalled) fall_back_to_cma(transfer);
}

// The target does not poll.
void Transfers::abandon(Transfer& transfer) {
  transfer.to->entry->attention.ignore();
  absences_.note_unanswered(transfer.to->peer->rank);
  fall_back_to_cma(transfer);
}

// The kernel copies the pieces that the target has not taken; if the kernel cannot, we wait.
void Transfers::fall_back_to_cma(Transfer& transfer) {
  PeerProcess& peer = *transfer.to->peer;
  if (transfer.status == HEDDLE_DONE && !cma_works(device_, peer, transfer.address)) {
    const auto state =
        static_cast<WorkerState>(peer.control.worker(transfer.to->worker).state.load(std::memory_order_acquire));
    transfer.last_progress = time_;
    if (state != WorkerState::closed && !transfer.to->ring.rejected()) return;
    transfer.status = base::fail(HEDDLE_ERR_PEER_FAILED, "worker %u of rank %u was closed, or takes nothing more",
                                 transfer.to->worker, peer.rank);
  }
  // Newest first: the target takes pieces in order, so the pieces that stay out are a prefix.
  while (transfer.out != 0) {
    const Piece& piece = transfer.pieces[(transfer.first + transfer.out - 1) % kDepth];
    if (!pool_.cancel(piece.chunk, piece.generation)) break;
    if (transfer.status == HEDDLE_DONE && transfer.source_given) {
      transfer.status = cma_copy(peer, Direction::put, pool_.view().data(piece.chunk),
                                 transfer.address + transfer.offset + piece.at, piece.bytes);
    } else {
      transfer.next = piece.at;
    }
    pool_.give_back(piece.chunk);
    --transfer.out;
    moved_ = true;
  }
  transfer.by_cma = true;
}

void Transfers::copy_by_cma(Transfer& transfer) {
  const std::uint64_t step = std::min(transfer.bytes - transfer.next, kCmaStep);
  const base::Status status = cma_copy(*transfer.to->peer, transfer.direction, transfer.local + transfer.next,
                                       transfer.address + transfer.offset + transfer.next, step);
  note_copied(step);
  if (status == HEDDLE_DONE) {
    transfer.next += step;
    moved_ = true;
  } else if (status == HEDDLE_ERR_UNSUPPORTED && pool_.enabled()) {
    transfer.status = pool_.prepare(device_.segment(), device_.control().header());
    transfer.by_cma = transfer.status != HEDDLE_DONE;
  } else {
    transfer.status = status;
  }
}

// Takes all chunks of a transfer back: the peer has failed, or the worker closes.
void Transfers::reclaim(Transfer& transfer) {
  const bool same_process = transfer.to->peer->pid == static_cast<std::int32_t>(getpid());
  for (; transfer.out != 0; --transfer.out, transfer.first = (transfer.first + 1) % kDepth) {
    const Piece& piece = transfer.pieces[transfer.first];
    const ChunkState state = pool_.cancel(piece.chunk, piece.generation)
                                 ? ChunkState::free
                                 : state_of(pool_.view().word(piece.chunk).load(std::memory_order_acquire));
    // A chunk that a dead process had is ours again. But a thread of a rank that was only declared
    // dead, or of a peer that lives while we close, may still be copying: that chunk is not used
    // again.
    if (state == ChunkState::taken && (same_process || !device_.failed(transfer.to->peer->rank))) continue;
    pool_.give_back(piece.chunk);
  }
}

void Transfers::peer_failed(std::uint32_t rank) {
  small_.peer_failed(rank);
  for (std::size_t position = 0; position < active_.size();) {
    Transfer& transfer = transfers_[active_[position]];
    if (transfer.to->peer->rank != rank) {
      ++position;
      continue;
    }
    reclaim(transfer);
    transfer.status = HEDDLE_ERR_PEER_FAILED;
    retire(position);
  }
  note_under_way();
}

// ---- the target ---------------------------------------------------------------------------------

// Mapping the pool needs memory for bookkeeping, but nothing may throw: the records taken in this
// poll would be lost.
Served Transfers::pool_of(PeerProcess& peer, BounceView* pool) noexcept {
  const std::uint64_t chunks = peer.agreement.bounce_chunks;
  const std::uint64_t chunk_bytes = peer.agreement.bounce_chunk_bytes;
  std::byte* base = peer.pool.load(std::memory_order_acquire);
  if (base == nullptr) {
    const std::uint64_t offset = peer.control.header().pool_offset.load(std::memory_order_acquire);
    if (offset < device_.layout().control_bytes || chunks == 0) return Served::malformed;
    try {
      const auto mapped = peer.mapping->map(offset, BounceView::bytes(chunks, chunk_bytes));
      if (!mapped) return mapped.status() == HEDDLE_ERR_NO_MEMORY ? Served::no_memory : Served::malformed;
      base = *mapped;
    } catch (const std::bad_alloc&) {
      return Served::no_memory;
    }
    peer.pool.store(base, std::memory_order_release);
  }
  *pool = {base, chunks, chunk_bytes};
  return Served::done;
}

Served Transfers::serve(PeerProcess& peer, const queue::Record& record) noexcept {
  TransferRequest request;
  if (record.bytes != sizeof request) return Served::malformed;
  std::memcpy(&request, record.data, sizeof request);
  if (request.chunk >= peer.agreement.bounce_chunks || request.bytes == 0 ||
      request.bytes > peer.agreement.bounce_chunk_bytes) {
    return Served::malformed;
  }
  BounceView pool;
  if (const Served mapped = pool_of(peer, &pool); mapped != Served::done) return mapped;
  std::atomic<std::uint64_t>& word = pool.word(request.chunk);
  std::uint64_t expected = chunk_word(request.generation, ChunkState::requested);
  if (!word.compare_exchange_strong(expected, chunk_word(request.generation, ChunkState::taken),
                                    std::memory_order_acquire, std::memory_order_relaxed)) {
    return Served::done;  // the owner has taken it back
  }
  const auto place = device_.regions().locate(request.region, request.offset, request.bytes);
  ChunkState outcome = ChunkState::failed;
  if (place) {
    std::byte* there = place->address;
    base::show_serving();
    if (record.type == kPutType) {
      base::copy_data(there, pool.data(request.chunk), request.bytes);
    } else {
      base::copy_data(pool.data(request.chunk), there, request.bytes);
    }
    base::show_served();
    outcome = ChunkState::done;
  }
  word.store(chunk_word(request.generation, outcome), std::memory_order_release);
  return Served::done;
}

}  // namespace heddle::transport::shm
