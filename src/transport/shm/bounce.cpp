#include "transport/shm/bounce.hpp"

#include <new>

namespace heddle::transport::shm {

std::uint64_t BounceView::data_at(std::uint64_t chunks) {
  const std::uint64_t page = page_bytes();
  return (chunks * kLine + page - 1) / page * page;
}

BouncePool::BouncePool(std::uint64_t chunks, std::uint64_t chunk_bytes)
    : chunks_(chunks), chunk_bytes_(chunk_bytes), free_(static_cast<std::uint32_t>(chunks)) {}

// Called while transfers are under way, when nothing may throw.
base::Status BouncePool::prepare(Segment& segment, ControlHeader& header) noexcept {
  if (ready_.load(std::memory_order_acquire)) return HEDDLE_DONE;
  const std::lock_guard lock(making_);
  if (ready_.load(std::memory_order_relaxed)) return HEDDLE_DONE;
  try {
    return make(segment, header);
  } catch (const std::bad_alloc&) {
    return base::fail(HEDDLE_ERR_NO_MEMORY, "memory is exhausted; there is none to keep account of the bounce space");
  }
}

base::Status BouncePool::make(Segment& segment, ControlHeader& header) {
  const auto extent = segment.allocate(BounceView::bytes(chunks_, chunk_bytes_), Segment::Use::own);
  if (!extent) return extent.status();
  view_ = BounceView(extent->address, chunks_, chunk_bytes_);
  for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
    if (!free_.push(chunk)) return base::fail(HEDDLE_ERR_STATE, "the queue of %u bounce chunks is too short", chunk);
  }
  header.pool_offset.store(extent->offset, std::memory_order_release);
  ready_.store(true, std::memory_order_release);
  return HEDDLE_DONE;
}

void BouncePool::give_back(std::uint32_t chunk) {
  std::atomic<std::uint64_t>& word = view_.word(chunk);
  const std::uint64_t generation = generation_of(word.load(std::memory_order_relaxed));
  word.store(chunk_word(generation + 1, ChunkState::free), std::memory_order_release);
  // Cannot be full: it has room for all chunks.
  static_cast<void>(free_.push(chunk));
}

std::uint64_t BouncePool::request(std::uint32_t chunk) {
  std::atomic<std::uint64_t>& word = view_.word(chunk);
  const std::uint64_t generation = generation_of(word.load(std::memory_order_relaxed)) + 1;
  word.store(chunk_word(generation, ChunkState::requested), std::memory_order_release);
  return generation;
}

bool BouncePool::cancel(std::uint32_t chunk, std::uint64_t generation) {
  std::uint64_t expected = chunk_word(generation, ChunkState::requested);
  return view_.word(chunk).compare_exchange_strong(expected, chunk_word(generation + 1, ChunkState::free),
                                                   std::memory_order_acq_rel, std::memory_order_acquire);
}

}  // namespace heddle::transport::shm
