// The regions of a context by number, and atomic operations on their memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/fence.hpp"
#include "heddle/heddle.h"
#include "queue/locks.hpp"

namespace heddle::memory {

struct Span {
  std::byte* address;
  std::uint64_t bytes;
};

// One writer at a time; any number of readers at any time.
template <template <class> class Atomic = std::atomic>
class RegionSlot {
 public:
  // The slot must be empty.
  void set(std::uint64_t number, std::byte* address, std::uint64_t bytes) {
    address_.store(address, std::memory_order_release);
    bytes_.store(bytes, std::memory_order_release);
    number_.store(number, std::memory_order_release);
  }
  void clear() { number_.store(0, std::memory_order_release); }
  [[nodiscard]] bool holds(std::uint64_t number) const { return number_.load(std::memory_order_acquire) == number; }
  // The whole region; empty: the slot holds another region, or none.
  [[nodiscard]] std::optional<Span> read(std::uint64_t number) const {
    if (!holds(number)) return std::nullopt;
    const Span span{address_.load(std::memory_order_acquire), bytes_.load(std::memory_order_acquire)};
    // A reader that has seen a word of a later region sees here that this one is gone.
    if (number_.load(std::memory_order_relaxed) != number) return std::nullopt;
    return span;
  }

 private:
  // release by set() and clear(); partner: the acquire load in holds()
  Atomic<std::uint64_t> number_{0};
  // release by set(), after clear(); partner: the acquire load in read()
  Atomic<std::byte*> address_{nullptr};
  Atomic<std::uint64_t> bytes_{0};  // the same
};

// The regions of one context by number, so that a request from the network can be checked against
// them.
//
// Numbers are index + generation and are not used twice. find() takes no lock: it runs where
// messages are served.
//
// Invariants
//   A chunk pointer goes from null to its final value once.
//   A slot's `number` is 0 while the slot is free, and never returns to an earlier value. Address
//   and bytes are written while it is 0. A reader reads the number again after them, so they are
//   those of one region, which still existed after they had been read.
//
// To release a region while a peer still works on it is an error of the program. find() cannot
// prevent it; it only notices a request that comes later.
class RegionTable {
 public:
  static constexpr std::size_t kChunk = 1024;
  static constexpr std::size_t kChunks = 1024;

  RegionTable() = default;
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;
  ~RegionTable() {
    for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
  }

  // The new region's number; 0: the table is full (a million regions).
  std::uint64_t add(void* address, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    // so that remove() never allocates
    if (free_.capacity() <= next_) free_.reserve(2 * next_ + 64);
    std::uint64_t index = next_;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else if (next_ == kChunk * kChunks) {
      return 0;
    } else {
      ++next_;
    }
    auto& chunk = chunks_[index / kChunk];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      chunk.store(new Slot[kChunk], std::memory_order_release);  // partner: locate()'s load
    }
    Slot& slot = chunk.load(std::memory_order_relaxed)[index % kChunk];
    const std::uint64_t number = ++generation_ << 20 | index;
    slot.set(number, static_cast<std::byte*>(address), bytes);
    return number;
  }

  void remove(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    Slot* slot = locate(number);
    if (number == 0 || slot == nullptr || !slot->holds(number)) return;
    slot->clear();
    free_.push_back(number & kIndexMask);
  }

  // The memory of [offset, offset + bytes) of the region; empty: no such region, or the range is
  // not wholly inside.
  [[nodiscard]] std::optional<Span> find(std::uint64_t number, std::uint64_t offset, std::uint64_t bytes) const {
    const Slot* slot = locate(number);
    if (number == 0 || slot == nullptr) return std::nullopt;
    const std::optional<Span> whole = slot->read(number);
    if (!whole || offset > whole->bytes || bytes > whole->bytes - offset) return std::nullopt;
    return Span{whole->address + offset, bytes};
  }

  // The index of a number that add() gave: the region's owner may keep more about the region under
  // it. It is used again after remove().
  [[nodiscard]] static std::size_t slot_of(std::uint64_t number) { return number & kIndexMask; }

  [[nodiscard]] bool known(std::uint64_t number) const { return find(number, 0, 0).has_value(); }

 private:
  using Slot = RegionSlot<>;
  static constexpr std::uint64_t kIndexMask = kChunk * kChunks - 1;

  [[nodiscard]] Slot* locate(std::uint64_t number) const {
    const std::uint64_t index = number & kIndexMask;
    Slot* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &chunk[index % kChunk];
  }

  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  // guards everything below, and all writing; helpers take it for each long message
  queue::FetchingMutex mutex_;
  std::vector<std::uint64_t> free_;
  std::uint64_t next_ = 0;
  std::uint64_t generation_ = 0;
};

// One atomic operation on memory of this process. The same instructions serve direct memory,
// owner-executed requests and the loopback transport, so that all of them are atomic with respect
// to each other.

// Each is sequentially consistent. The word is naturally aligned; the caller has checked it.
template <class Word>
inline Word execute(std::uint32_t op, void* target, Word operand, Word compare) {
  static_assert(std::atomic_ref<Word>::is_always_lock_free);
  const std::atomic_ref<Word> word(*static_cast<Word*>(target));
  base::show_release(target);
  switch (op & 7U) {
    case HEDDLE_ADD32:
      return word.fetch_add(operand);
    case HEDDLE_AND32:
      return word.fetch_and(operand);
    case HEDDLE_OR32:
      return word.fetch_or(operand);
    case HEDDLE_XOR32:
      return word.fetch_xor(operand);
    case HEDDLE_SWAP32:
      return word.exchange(operand);
    default:
      word.compare_exchange_strong(compare, operand);
      return compare;
  }
}

inline std::uint64_t execute_atomic(std::uint32_t op, void* target, std::uint64_t operand, std::uint64_t compare) {
  if (op >= HEDDLE_ADD64) return execute<std::uint64_t>(op, target, operand, compare);
  return execute<std::uint32_t>(op, target, static_cast<std::uint32_t>(operand), static_cast<std::uint32_t>(compare));
}

// Without a result: the compiler may then use an instruction that does not return the old value.
inline void apply_atomic(std::uint32_t op, void* target, std::uint64_t operand) {
  const auto word = [target] { return std::atomic_ref<std::uint64_t>(*static_cast<std::uint64_t*>(target)); };
  base::show_release(target);
  switch (op) {
    case HEDDLE_ADD64:
      word().fetch_add(operand);
      return;
    case HEDDLE_AND64:
      word().fetch_and(operand);
      return;
    case HEDDLE_OR64:
      word().fetch_or(operand);
      return;
    case HEDDLE_XOR64:
      word().fetch_xor(operand);
      return;
    default:
      execute_atomic(op, target, operand, 0);
      return;
  }
}

}  // namespace heddle::memory
