// The words and records in the segments of processes, which their peers read and write, and where
// they are: chunk words, small slots, the attention word, the control part, the card.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/cache_line.hpp"
#include "base/error.hpp"
#include "queue/bell.hpp"
#include "queue/record_ring.hpp"
#include "transport/agreed.hpp"

namespace heddle::transport::shm {

// The word by which two processes hand a piece of shared memory to each other: {generation, state}.

enum class ChunkState : std::uint64_t { free = 0, requested = 1, taken = 2, done = 3, failed = 4 };

constexpr std::uint64_t chunk_word(std::uint64_t generation, ChunkState state) {
  return generation << 3 | static_cast<std::uint64_t>(state);
}
constexpr ChunkState state_of(std::uint64_t word) {
  return static_cast<ChunkState>(word & 7U);
}
constexpr std::uint64_t generation_of(std::uint64_t word) {
  return word >> 3;
}

// The slot in which a small put or get ends: a word in the initiator's segment that decides which
// side ends the operation, and the data that a get brings.
//
// States. The word is {generation, state} (chunk_word); the generation only grows.
//   idle    free, done or failed: the initiator's. A request names this very word.
//   taken   the target copies                       idle, g -> taken, g + 1      by the target
//   done    the target has copied                   taken -> done                by the target
//   failed  the target has no such range            taken -> failed              by the target
// A request needs no store: the word that it names is the permission to take the slot, once. The
// initiator takes the request back by idle, g -> free, g + 1. So exactly one side ends an
// operation. A request that was taken back, or that another process invents, finds another word. If
// the target dies in `taken`, nobody touches the slot any more.
//
// Zeroed memory is a valid slot.

template <template <class> class Atomic = std::atomic>
class SlotWord {
 public:
  // ---- the initiator, one thread ----
  // For a request, while the slot is its own.
  [[nodiscard]] std::uint64_t idle() const { return word_.load(std::memory_order_relaxed); }
  // The state of the request that named `word`: requested, taken, done or failed. After done, a
  // get's data is there, and a put's is in the target's memory.
  [[nodiscard]] ChunkState look(std::uint64_t word) const {
    // Partner: end().
    const std::uint64_t now = word_.load(std::memory_order_acquire);
    return now == word ? ChunkState::requested : state_of(now);
  }
  // True: the target will not touch the slot, nor what the request names.
  [[nodiscard]] bool take_back(std::uint64_t word) {
    // Partners: take() of a later request, which finds this word; end(), if the target was first.
    return word_.compare_exchange_strong(word, next(word, ChunkState::free), std::memory_order_acq_rel,
                                         std::memory_order_acquire);
  }

  // ---- the target ----
  // False: the request was taken back. Partner: take_back(). The ring by which the request came
  // orders everything else that the initiator did with the slot before.
  [[nodiscard]] bool take(std::uint64_t word) {
    return word_.compare_exchange_strong(word, next(word, ChunkState::taken), std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  // After take(word).
  void end(std::uint64_t word, bool copied) {
    // Partner: look().
    word_.store(next(word, copied ? ChunkState::done : ChunkState::failed), std::memory_order_release);
  }

 private:
  static constexpr std::uint64_t next(std::uint64_t word, ChunkState state) {
    return chunk_word(generation_of(word) + 1, state);
  }

  Atomic<std::uint64_t> word_{0};
};

inline constexpr std::uint32_t kSmallBytes = 120;
inline constexpr std::uint32_t kSmallSlots = 64;  // of each worker

struct SmallSlot {
  alignas(queue::kRingLine) SlotWord<> word;
  std::array<std::byte, kSmallBytes> data;
};
static_assert(sizeof(SmallSlot) == queue::kRingLine);

// One word that a worker's poll looks at besides its rings. It says whether there are new rings
// and, for the worker's peers, whether the worker polls at all.
//
// Zeroed memory is a valid word.
template <template <class> class Atomic = std::atomic>
class Attention {
 public:
  // ---- the owner ----
  // Its poll needs to call take(). One load of a line that rarely changes.
  [[nodiscard]] bool wanted() const { return word_.load(std::memory_order_relaxed) != 0; }
  [[nodiscard]] bool has_rings() const { return (word_.load(std::memory_order_relaxed) & kRings) != 0; }
  // It polls, as the peers may know. True: there are new rings.
  [[nodiscard]] bool take() {
    // Acquire: partner of announce(). An ignore() between the two is no store of its own, so what
    // announce() has released is found through it.
    return (word_.exchange(0, std::memory_order_acquire) & kRings) != 0;
  }

  // ---- any process ----
  // After a ring has been made known.
  void announce() { word_.fetch_or(kRings, std::memory_order_release); }
  // It does not poll, as far as the caller knows: a request by a record would wait. A hint, which
  // orders nothing; the owner's next poll clears it. Only the first to say so writes the line.
  void ignore() {
    if (polls()) word_.fetch_or(kIgnored, std::memory_order_relaxed);
  }
  [[nodiscard]] bool polls() const { return (word_.load(std::memory_order_relaxed) & kIgnored) == 0; }

 private:
  static constexpr std::uint32_t kRings = 1;
  static constexpr std::uint32_t kIgnored = 2;

  Atomic<std::uint32_t> word_{0};
};

// Layout of a process's segment: the control part, which peers read and write, and the card that
// announces it.
//
//   [ header | common words | worker entries | small slots | ring list | … extents: rings, regions,
//   bounce pool ]
//
// Other processes write here, too, so every reader must treat what it reads as hostile.

inline constexpr std::uint32_t kLayoutVersion = 10;
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
  // executes a fence (see queue::BellPull).
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
  // Where the worker's cells lie in its segment (cells.hpp); 0: it has none yet. Release by the
  // owner; acquire by receivers.
  alignas(kLine) std::atomic<std::uint64_t> cells_at{0};
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
  // As WorkerEntry::armed, for peers that store into memory of this process.
  alignas(kLine) std::atomic<std::uint32_t> stores_armed{0};
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
