// A bounded first-in-first-out queue of small numbers: many producers, many consumers, in one
// process's memory. Vyukov's scheme: each cell carries the turn for which it is ready.
//
// Invariants
//   cell.turn == t:     free, for the producer whose ticket is t (t % cells == its place)
//   cell.turn == t + 1: filled by that producer, for the consumer whose ticket is t
//   The consumer then sets it to t + cells. Turns and tickets only grow.
// No ticket passes a cell whose turn is not set: while a producer stops between taking its ticket
// and setting the turn, the queue looks empty behind that cell; while a consumer stops there, the
// queue looks full a lap later.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/cache_line.hpp"

namespace heddle::queue {

template <template <class> class Atomic = std::atomic>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::uint32_t capacity) : cells_(std::bit_ceil(capacity < 2 ? 2U : capacity)) {
    for (std::size_t i = 0; i < cells_.size(); ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }

  // False: full.
  [[nodiscard]] bool push(std::uint32_t value) {
    std::uint64_t ticket = push_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = at(ticket);
      const auto ahead = static_cast<std::int64_t>(cell.turn.load(std::memory_order_acquire) - ticket);
      if (ahead < 0) return false;
      if (ahead > 0) {
        ticket = push_.load(std::memory_order_relaxed);
      } else if (push_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_relaxed)) {
        cell.value = value;
        cell.turn.store(ticket + 1, std::memory_order_release);
        return true;
      }
    }
  }

  // False: empty.
  [[nodiscard]] bool pop(std::uint32_t* value) {
    std::uint64_t ticket = pop_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = at(ticket);
      const auto ahead = static_cast<std::int64_t>(cell.turn.load(std::memory_order_acquire) - (ticket + 1));
      if (ahead < 0) return false;
      if (ahead > 0) {
        ticket = pop_.load(std::memory_order_relaxed);
      } else if (pop_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_relaxed)) {
        *value = cell.value;
        cell.turn.store(ticket + cells_.size(), std::memory_order_release);
        return true;
      }
    }
  }

 private:
  struct Cell {
    // release by push (for pop) and by pop (for push a lap later); acquire by both
    Atomic<std::uint64_t> turn{0};
    std::uint32_t value = 0;
  };
  Cell& at(std::uint64_t ticket) { return cells_[ticket & (cells_.size() - 1)]; }

  std::vector<Cell> cells_;
  // relaxed: a ticket; the cells order the data
  alignas(base::kCacheLine) Atomic<std::uint64_t> push_{0};
  alignas(base::kCacheLine) Atomic<std::uint64_t> pop_{0};  // likewise
};

}  // namespace heddle::queue
