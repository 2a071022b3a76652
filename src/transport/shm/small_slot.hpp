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
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "queue/record_ring.hpp"
#include "transport/shm/chunk_word.hpp"

namespace heddle::transport::shm {

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

}  // namespace heddle::transport::shm
