#include "engine/operations.hpp"

#include <algorithm>
#include <array>

#include "base/fence.hpp"
#include "engine/job.hpp"
#include "engine/objects.hpp"

namespace heddle::engine {

Operations::Operations(Objects& objects, std::size_t slots)
    : objects_(objects),
      failure_epoch_(objects.job().bootstrap().failure_epoch()),
      towards_(objects.job().size()),
      pool_(slots),
      unreported_(objects.job().size(), HEDDLE_DONE) {}

Operation* Operations::begin(Kind kind, std::uint32_t rank, const CallersCompletion& completion) {
  Operation* operation = pool_.take();
  if (operation == nullptr) return nullptr;
  operation->kind = kind;
  operation->rank = rank;
  operation->completion = completion;
  // no source to free
  if (kind == Kind::get || kind == Kind::atomic) operation->completion.when = HEDDLE_WHEN_REMOTE;
  if (completion.counter != nullptr) pool_.mark_counter(*operation, completion.counter);
  count_begun();
  ++(rank == kManyRanks ? towards_many_ : towards_[rank]);
  return operation;
}

base::Status Operations::keep(Operation& operation) {
  const bool fires_now = operation.completion.when == HEDDLE_WHEN_LOCAL && operation.unfreed == 0;
  if ((!operation.posted || fires_now) && !operation.pending) {
    operation.pending = true;
    pending_.push_back(&operation);
  }
  return HEDDLE_POSTED;
}

void Operations::finish(Operation& operation) {
  const bool marked = operation.marked;
  if (operation.owner != nullptr) [[unlikely]]
    operation.owner->ended(operation);
  count_ended();
  --(operation.rank == kManyRanks ? towards_many_ : towards_[operation.rank]);
  pool_.give_back(&operation);
  reclaim(marked);
}

void Operations::complete(Operation& operation, base::Status status, std::uint32_t rank) {
  if (operation.unfinished > 0) --operation.unfinished;
  operation.fail(status, rank);
  notify_and_free(operation);
}

void Operations::fire(Operation& operation) {
  operation.fired = true;
  if (operation.status != HEDDLE_DONE) {
    ++failed_;
    // the source is the program's from here on
    if (operation.owner != nullptr) operation.owner->failed(operation);
  }
  if (operation.completion.notifies()) {
    operation.completion.fire(operation.status);
  } else if (operation.status != HEDDLE_DONE) {
    operation.rank == kManyRanks ? keep_error(operation.error_rank, operation.status, operation.pieces)
                                 : keep_error(operation.rank, operation.status);
  }
}

void Operations::notify_and_free(Operation& operation) {
  // A carrier may still be on its way when its request was answered with an error: the source is in
  // use till then.
  const bool ended = operation.posted && operation.unfinished == 0 && operation.unfreed == 0;
  const bool local = operation.completion.when == HEDDLE_WHEN_LOCAL && operation.posted && operation.unfreed == 0;
  if (!operation.fired && (ended || local)) fire(operation);
  if (ended && !operation.pending) finish(operation);
}

void Operations::end_served(Operation& operation, base::Status status) {
  operation.unfinished -= operation.served;
  operation.served = 0;
  operation.unfreed = 0;
  operation.fail(status, operation.served_rank);
  if (operation.kind == Kind::message) operation.posted = true;  // no more parts
  notify_and_free(operation);
}

void Operations::end_unnotified(Unnotified unnotified, base::Status status, std::uint32_t count) {
  count = std::min(count, towards_[unnotified.rank]);
  if (count == 0) return;  // cancelled before
  if (status != HEDDLE_DONE) [[unlikely]] {
    failed_ += count;
    keep_error(unnotified.rank, status);
  }
  towards_[unnotified.rank] -= count;
  count_ended(count);
  if (unnotified.memory) reclaim(pool_.marks().leave_unnotified(count));
}

void Operations::end_queued(base::Status status, const CallersCompletion& completion, std::uint32_t rank,
                            const Pieces& pieces) {
  if (status > HEDDLE_DONE) return;  // POSTED, AGAIN
  if (status != HEDDLE_DONE) ++failed_;
  if (completion.notifies()) {
    completion.fire(status);
  } else if (status != HEDDLE_DONE) {
    rank == kManyRanks ? keep_error(rank, status, pieces) : keep_error(rank, status);
  }
}

void Operations::cancel_all(base::Status status) {
  pending_.clear();
  for (Operation& operation : pool_.all()) {
    if (!operation.live) continue;
    operation.pending = false;
    operation.posted = true;
    operation.unfinished = 0;
    operation.unfreed = 0;
    operation.fail(status, kManyRanks);
    notify_and_free(operation);
  }
  forget_unnotified();
}

// Forgets all counts except those of slots that callbacks may have taken meanwhile.
void Operations::forget_unnotified() {
  std::fill(towards_.begin(), towards_.end(), 0U);
  std::uint32_t live = towards_many_;
  for (const Operation& operation : pool_.all()) {
    if (!operation.live || operation.rank == kManyRanks) continue;
    ++towards_[operation.rank];
    ++live;
  }
  failed_ += under_way() - live;
  set_busy((has_unreported() ? kUnreported : 0) | live);
  pool_.marks().forget_unnotified();
}

// ---- errors of which nobody was told ------------------------------------------------------------

void Operations::keep_error(std::uint32_t rank, base::Status status) {
  set_busy(busy_.load(std::memory_order_relaxed) | kUnreported);
  if (unreported_[rank] == HEDDLE_DONE) unreported_[rank] = status;
}

// For a list over several ranks. A flush must not miss a part that failed, nor a part that was not
// begun because another had failed. If it is unknown which part failed, the error is kept for each
// rank of the list; if the list names a region that no longer exists, for every rank.
void Operations::keep_error(std::uint32_t rank, base::Status status, const Pieces& pieces) {
  const auto keep = [&](std::uint32_t of) { keep_error(of, status); };
  if (rank != kManyRanks) keep(rank);
  if (pieces.each_rank(rank == kManyRanks ? Pieces::Which::all : Pieces::Which::left, keep)) return;
  for (std::uint32_t of = 0; of < unreported_.size(); ++of) keep(of);
}

base::Status Operations::take_error(std::uint32_t rank) {
  const base::Status status = unreported_[rank];
  unreported_[rank] = HEDDLE_DONE;
  if (status == HEDDLE_DONE) return status;
  // the range was checked when posted
  const bool gone = status == HEDDLE_ERR_RANGE || status == HEDDLE_ERR_HANDLE;
  const char* reason = gone ? ": the owner has released the region or unmapped its memory" : "";
  return base::fail(status, "an operation to rank %u that had no completion ended with %s%s", rank,
                    heddle_status_name(status), reason);
}

base::Status Operations::flush(std::uint32_t rank) {
  if (towards_[rank] + towards_many_ > 0) return HEDDLE_AGAIN;
  base::full_fence();  // direct stores are visible to everybody before anything that follows
  if (has_unreported()) [[unlikely]] {
    if (const base::Status status = take_error(rank); status != HEDDLE_DONE) return status;
  }
  if (failure_epoch_.load(std::memory_order_relaxed) != 0 && objects_.job().failed(rank)) [[unlikely]] {
    return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has failed; what was put to it may be lost", rank);
  }
  return HEDDLE_DONE;
}

base::Status Operations::quiet() {
  if (under_way() > 0) return HEDDLE_AGAIN;
  base::full_fence();
  if (!has_unreported()) [[likely]] {
    return HEDDLE_DONE;
  }
  set_busy(0);
  base::Status first = HEDDLE_DONE;
  for (std::uint32_t rank = static_cast<std::uint32_t>(unreported_.size()); rank-- > 0;) {
    if (const base::Status status = take_error(rank); status != HEDDLE_DONE)
      first = status;  // the lowest rank's, and its text
  }
  return first;
}

void Operations::show(tap::DebugWorker& shown) const {
  shown.value("under way", busy_);
  shown.value("pending", pending_.count());
  const std::vector<Operation>& all = pool_.all();
  if (all.empty()) return;
  const Operation& one = all.front();
  // All operations are alike.
  static const std::array fields{tap::debug_field("live", one, one.live),
                                 tap::debug_field("posted", one, one.posted),
                                 tap::debug_field("kind", one, one.kind),
                                 tap::debug_field("rank", one, one.rank),
                                 tap::debug_field("bytes", one, one.payload_bytes),
                                 tap::debug_field("target", one, one.target.worker),
                                 tap::debug_field("served", one, one.served),
                                 tap::debug_field("served rank", one, one.served_rank),
                                 tap::debug_field("served worker", one, one.served_worker)};
  shown.row({.name = "operations",
             .shape = tap::DebugShape::array,
             .stride = sizeof(Operation),
             .first = all.data(),
             .count = nullptr,
             .number = all.size(),
             .link = 0,
             .chain = 0,
             .fields = fields.data(),
             .field_count = fields.size()});
}

Piece Pieces::block(std::uint64_t index) const {
  if (segments_ != nullptr) {
    const heddle_segment& segment = segments_[index];
    return {static_cast<std::byte*>(segment.local), find_handle<RemoteRegion>(segment.remote.region.id),
            segment.remote.offset, segment.bytes};
  }
  return {local_ + index * shape_.local_stride, remote_, offset_ + index * shape_.remote_stride, shape_.block_bytes};
}

std::uint64_t Pieces::bytes() const {
  if (segments_ == nullptr) return shape_.blocks * shape_.block_bytes;
  std::uint64_t all = 0;
  for (std::uint64_t i = 0; i < shape_.blocks; ++i) all += segments_[i].bytes;
  return all;
}

bool Pieces::peek(Piece* piece) {
  for (; index_ < shape_.blocks; ++index_, within_ = 0) {
    *piece = block(index_);
    if (piece->bytes == 0) continue;
    piece->local += within_;
    piece->offset += within_;
    piece->bytes -= within_;
    return true;
  }
  return false;
}

void Pieces::advance(std::uint64_t bytes) {
  within_ += bytes;
  if (within_ < block(index_).bytes) return;
  ++index_;
  within_ = 0;
}

}  // namespace heddle::engine
