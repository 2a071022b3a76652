// Layout of a process's segment: the control part, which peers read and write, and the card that
// announces it.
//
//   [ header | common words | worker entries | small slots | ring list | … extents: rings, regions,
//   bounce pool ]
//
// Other processes write here, too, so every reader must treat what it reads as hostile.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/cache_line.hpp"
#include "base/error.hpp"
#include "queue/bell.hpp"
#include "queue/record_ring.hpp"
#include "transport/agreed.hpp"
#include "transport/shm/attention.hpp"
#include "transport/shm/small_slot.hpp"

namespace heddle::transport::shm {

inline constexpr std::uint32_t kLayoutVersion = 6;
inline constexpr std::uint64_t kMaxBounceChunks = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMaxBounceChunkBytes = std::uint64_t{1} << 20;
inline constexpr std::size_t kLine = base::kCacheLine;

// Settings that all processes of a job must agree on. They travel in the card.
struct Agreement {
  std::uint32_t magic = 0x4D485348;  // "HSHM"
  std::uint32_t version = kLayoutVersion;
  std::uint32_t size = 0;         // ranks of the job
  std::uint32_t max_workers = 0;  // HEDDLE_MAX_WORKERS
  std::uint64_t ring_bytes = 0;   // HEDDLE_SHM_RING_BYTES
  std::uint64_t line = kLine;     // bytes; two builds may differ
  // Sizes of this process's bounce pool, which need not agree: peers check chunk numbers and
  // lengths against them.
  std::uint64_t bounce_chunks = 0;
  std::uint64_t bounce_chunk_bytes = 0;
  // 1: this process can call membarrier and is reached by it. If either side says 0, the sender
  // executes a fence (see BellPull).
  std::uint64_t membarrier = 0;
  Agreed agreed;
};
static_assert(sizeof(Agreement) == 72);

std::vector<std::byte> encode_card(const Agreement& agreement);
// VERSION, naming both values, if `bytes` disagrees with `mine`; PROTOCOL if they are no card.
base::Result<Agreement> decode_card(std::span<const std::byte> bytes, const Agreement& mine, std::uint32_t rank);

enum class WorkerState : std::uint32_t { unopened = 0, open = 1, closed = 2 };

// One per worker that may exist. `attention` has its own line: its owner polls it, and it changes
// only for a new ring, and when the owner begins to poll or is found not to.
struct WorkerEntry {
  alignas(kLine) Attention<> attention;
  // WorkerState. release by the owner; acquire by senders whose ring is full
  alignas(kLine) std::atomic<std::uint32_t> state{0};
  // Set by the owner before it sleeps, cleared by the sender that then rings (queue/bell.hpp states
  // the memory order). Every sender reads it after every message, so its line holds nothing else
  // that changes often.
  std::atomic<std::uint32_t> armed{0};
};

// A ring that this process sends through. Written once, before `ring_count` counts it.
struct RingEntry {
  std::uint32_t target_rank = 0;
  std::uint16_t target_worker = 0;
  std::uint16_t source_worker = 0;
  std::uint64_t offset = 0;
};

struct ControlHeader {
  // release after the entry; acquire by receivers
  alignas(kLine) std::atomic<std::uint64_t> ring_count{0};
  // release when the bounce pool exists; acquire by targets
  alignas(kLine) std::atomic<std::uint64_t> pool_offset{0};
  alignas(kLine) queue::BellWords<> bell;  // what the process sleeps on
};

// The length of a ring in a job of so many ranks, where HEDDLE_SHM_RING_BYTES is 0. Messages are
// copied at once, not fetched, up to a quarter of the ring: 8 KiB take a third of the time then.
// Short ones lose a few percent with a long ring, since a lap does not stay in the first cache.
std::uint64_t ring_bytes_for(std::uint32_t ranks);

// Sizes and offsets in the control part, the same in all processes of a job.
struct Layout {
  explicit Layout(const Agreement& agreement);

  std::uint32_t size;
  std::uint32_t max_workers;
  std::uint32_t sender_words;   // 64-bit words of the bitmap of sender ranks
  std::uint64_t worker_stride;  // WorkerEntry and its bitmap
  // one per rank; those of rank 0 are the job's (Transport::common_words)
  std::uint64_t words_at;
  std::uint64_t workers_at;
  std::uint64_t slots_at;
  std::uint64_t rings_at;
  std::uint64_t max_rings;
  std::uint64_t control_bytes;  // whole pages
  std::uint32_t ring_bytes;
  std::uint32_t ring_capacity;
};

// The control part of one process as mapped here.
class ControlView {
 public:
  ControlView() = default;
  ControlView(std::byte* base, const Layout* layout) : base_(base), layout_(layout) {}

  [[nodiscard]] ControlHeader& header() const { return *reinterpret_cast<ControlHeader*>(base_); }
  [[nodiscard]] std::span<std::atomic<std::uint64_t>> common_words() const {
    return {reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + layout_->words_at), layout_->size};
  }
  [[nodiscard]] WorkerEntry& worker(std::uint32_t index) const {
    return *reinterpret_cast<WorkerEntry*>(base_ + layout_->workers_at + index * layout_->worker_stride);
  }
  // Word of the bitmap of ranks that have new rings for this worker. fetch_or (release) by
  // Device::open_ring, before `attention`; exchange (acquire) by the owner's poll, after
  // `attention`.
  [[nodiscard]] std::atomic<std::uint64_t>& senders(std::uint32_t worker, std::uint32_t word) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + layout_->workers_at +
                                                          worker * layout_->worker_stride + sizeof(WorkerEntry) +
                                                          word * sizeof(std::uint64_t));
  }
  [[nodiscard]] SmallSlot& slot(std::uint32_t worker, std::uint32_t index) const {
    return reinterpret_cast<SmallSlot*>(base_ + layout_->slots_at)[worker * kSmallSlots + index];
  }
  [[nodiscard]] RingEntry& ring(std::uint64_t index) const {
    return reinterpret_cast<RingEntry*>(base_ + layout_->rings_at)[index];
  }

 private:
  std::byte* base_ = nullptr;
  const Layout* layout_ = nullptr;
};

std::uint64_t page_bytes();

}  // namespace heddle::transport::shm
