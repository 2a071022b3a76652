// A fixed number of slots, named by tags: index and generation, so that a tag of a slot's earlier use is told from the
// present one. For what is in flight: a thread takes a tag, whichever thread completes gives it back.
//
// Free slots are in two places: in the Local of a thread, an array that only its thread touches, without any atomic
// read-modify-write; and on one shared stack, from which an empty Local takes several with one compare-and-swap and to
// which a full one gives half. So slots that one thread takes and another gives back go round at two compare-and-swaps
// for many.
//
// Nothing is lost: what is not in a Local is on the stack, where every thread finds it, and a Local that ends gives all
// back. Bound: `threads` Locals hold at most local_limit() free slots each, together at most half of all; further
// Locals hold none and go to the stack each time. So take() fails only if all slots are in use, but for what live
// Locals hold (at most half), what other threads are just moving between a Local and the stack, and what is given back
// while it looks.
//
// Invariants
//   A slot is in one place: in use, in one Local, or on the stack once.
//   A slot's generation is odd while it is in use, even while it is free, and only grows (it wraps: 2^31 uses of its slot
//   later an old tag would pass for the present one). Only who has the slot in hand changes it.
//   A slot's next is meaningful only on the stack, where nobody changes it: a pop that reads it, and finds the top with
//   its stamp unchanged afterwards, has read the truth. Every push and pop adds one to the stamp (32 bits: ABA would
//   need 2^32 of them during one pop).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <vector>

#include "base/cache_line.hpp"

namespace heddle::queue {

struct Tag {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  // odd; 0: no tag
  explicit operator bool() const { return generation != 0; }
  bool operator==(const Tag&) const = default;

  [[nodiscard]] std::uint64_t word() const { return std::uint64_t{generation} << 32 | index; }
  static Tag from_word(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32)};
  }
};

template <template <class> class Atomic = std::atomic>
class TagPool {
 public:
  static constexpr std::uint32_t kMostLocal = 32;  // a compare-and-swap for 16 is cheap enough

  // slots < 2^32 - 1. `threads`: so many Locals at a time may hold slots back.
  TagPool(std::uint32_t slots, std::uint32_t threads)
      : slots_(slots),
        threads_(threads),
        local_limit_(threads == 0 ? 0 : std::min(kMostLocal, slots / threads / 2)),
        all_(slots) {
    assert(slots < kNone);
    for (std::uint32_t i = 0; i < slots; ++i) {
      all_[i].next.store(i + 1 < slots ? i + 1 : kNone, std::memory_order_relaxed);
    }
    shared_.store(slots == 0 ? kNone : 0, std::memory_order_relaxed);
  }
  TagPool(const TagPool&) = delete;
  TagPool& operator=(const TagPool&) = delete;

  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] std::uint32_t local_limit() const { return local_limit_; }

  // The tag's use of its slot has not ended. Any thread, any tag; what a stranger learns is out of date when it
  // arrives.
  [[nodiscard]] bool live(Tag tag) const {
    return tag.index < slots_ && (tag.generation & 1) != 0 &&
           all_[tag.index].generation.load(std::memory_order_relaxed) == tag.generation;
  }

  // For a thread without a Local; lock-free. False: the tag was not live, nothing happened. Of two threads that give
  // the same tag at the same time neither may notice: a tag has one holder.
  [[nodiscard]] bool give_back(Tag tag) {
    if (!end_use(tag)) return false;
    push(&tag.index, 1);
    return true;
  }

  // One thread's share. Made, used and destroyed by one thread at a time; the pool outlives it.
  class alignas(base::kCacheLine) Local {
   public:
    explicit Local(TagPool& pool)
        : pool_(pool),
          limit_(pool.locals_.fetch_add(1, std::memory_order_relaxed) < pool.threads_ ? pool.local_limit_ : 0) {}
    Local(const Local&) = delete;
    Local& operator=(const Local&) = delete;
    ~Local() {
      drain();
      pool_.locals_.fetch_add(kMinusOne, std::memory_order_relaxed);
    }

    // No tag: see above for when. Everything that was done before the slot was given back is visible to the caller.
    [[nodiscard]] Tag take() {
      if (count_ == 0) {
        count_ = pool_.pop(free_.data(), std::max(1U, limit_ - limit_ / 2));
        if (count_ == 0) return {};
      }
      return pool_.begin_use(free_[--count_]);
    }

    // A tag of any thread. False: it was not live, nothing happened.
    [[nodiscard]] bool give_back(Tag tag) {
      if (!pool_.end_use(tag)) return false;
      if (count_ == limit_) spill();
      free_[count_++] = tag.index;
      if (limit_ == 0) spill();
      return true;
    }

    // Gives back all that it holds back: for a thread that will take none for long.
    void drain() {
      if (count_ != 0) pool_.push(free_.data(), count_);
      count_ = 0;
    }

   private:
    // Those go that have lain longest; the others are still in this core's cache.
    void spill() {
      const std::uint32_t half = count_ - count_ / 2;
      if (half == 0) return;
      pool_.push(free_.data(), half);
      std::copy(free_.data() + half, free_.data() + count_, free_.data());
      count_ -= half;
    }

    TagPool& pool_;
    std::uint32_t limit_;
    std::uint32_t count_ = 0;
    std::array<std::uint32_t, kMostLocal> free_{};
  };

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr std::uint32_t kMinusOne = UINT32_MAX;  // added to an unsigned number
  static constexpr std::uint64_t kStamp = std::uint64_t{1} << 32;

  // A line each: slots of different threads have nothing to do with each other.
  struct alignas(base::kCacheLine) Slot {
    Atomic<std::uint32_t> next{0};        // relaxed: ordered by shared_
    Atomic<std::uint32_t> generation{0};  // relaxed: ordered by shared_ from hand to hand; strangers only compare
  };

  static std::uint64_t top(std::uint64_t old, std::uint32_t slot) { return ((old & ~(kStamp - 1)) + kStamp) | slot; }

  // Plain loads and stores: who has the slot in hand is alone with it.
  Tag begin_use(std::uint32_t slot) {
    const std::uint32_t generation = all_[slot].generation.load(std::memory_order_relaxed) + 1;
    all_[slot].generation.store(generation, std::memory_order_relaxed);
    return {slot, generation};
  }
  bool end_use(Tag tag) {
    if (!live(tag)) return false;
    all_[tag.index].generation.store(tag.generation + 1, std::memory_order_relaxed);
    return true;
  }

  void push(const std::uint32_t* slots, std::uint32_t count) {
    for (std::uint32_t i = 0; i + 1 < count; ++i) all_[slots[i]].next.store(slots[i + 1], std::memory_order_relaxed);
    std::uint64_t old = shared_.load(std::memory_order_relaxed);
    do {
      all_[slots[count - 1]].next.store(static_cast<std::uint32_t>(old), std::memory_order_relaxed);
    } while (!shared_.compare_exchange_weak(old, top(old, slots[0]), std::memory_order_release));
  }

  // Up to `most` slots; how many.
  std::uint32_t pop(std::uint32_t* slots, std::uint32_t most) {
    std::uint64_t old = shared_.load(std::memory_order_acquire);
    for (;;) {
      std::uint32_t count = 0;
      auto slot = static_cast<std::uint32_t>(old);
      // If others change the stack meanwhile this strays over links old and new, all of them slots, and is thrown away.
      while (slot != kNone && count < most) {
        slots[count++] = slot;
        slot = all_[slot].next.load(std::memory_order_relaxed);
      }
      if (count == 0) return 0;
      if (shared_.compare_exchange_weak(old, top(old, slot), std::memory_order_acquire)) return count;
    }
  }

  // Read only after construction.
  const std::uint32_t slots_;
  const std::uint32_t threads_;
  const std::uint32_t local_limit_;
  std::vector<Slot> all_;

  // stamp << 32 | first slot. Release by push(), acquire by pop(): the links, the generations, and what the last user
  // did.
  alignas(base::kCacheLine) Atomic<std::uint64_t> shared_{0};
  alignas(base::kCacheLine) Atomic<std::uint32_t> locals_{0};  // relaxed: a number; those with a limit are never more
};

}  // namespace heddle::queue
