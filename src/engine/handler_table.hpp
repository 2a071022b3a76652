// The handler function for each message number, with its argument. It may change while messages
// arrive.
//
// A slot holds two pairs of function and argument: the one in force and the one before it. So
// registering allocates nothing, keeps nothing, and takes the same time however often it is done. A
// reader never waits for a writer that has lost its core.
//
// Invariants: version counts what was registered in the slot; pairs[version % 2] is in force. The
// writer of version n + 1 writes the other pair, that of n - 1, and makes it the one in force by
// storing n + 1. A reader may have read a word of the pair of n + 1 while it took the pair for that
// of n - 1. When it looks again it sees at least n (each word is stored with release after n was,
// and loaded with acquire), and begins anew. That happens only when another handler was registered
// meanwhile.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "heddle/heddle.h"

namespace heddle::engine {

// What heddle_am_register was given; fn null: nothing.
struct Handler {
  heddle_am_handler fn;
  void* arg;
};

template <std::size_t kNumbers, template <class> class Atomic = std::atomic>
class HandlerTable {
 public:
  // Any thread. Returns what was registered with this number. The caller sees the argument's target
  // as it was at that time.
  [[nodiscard]] Handler find(std::uint32_t number) const {
    const Slot& slot = slots_[number];
    for (;;) {
      const std::uint64_t version = slot.version.load(std::memory_order_acquire);
      const Pair& pair = slot.pairs[version % 2];
      const Handler found{pair.fn.load(std::memory_order_acquire), pair.arg.load(std::memory_order_acquire)};
      if (slot.version.load(std::memory_order_relaxed) == version) [[likely]]
        return found;
    }
  }

  // One thread at a time.
  void set(std::uint32_t number, Handler handler) {
    Slot& slot = slots_[number];
    const std::uint64_t version = slot.version.load(std::memory_order_relaxed) + 1;
    Pair& pair = slot.pairs[version % 2];
    pair.fn.store(handler.fn, std::memory_order_release);
    pair.arg.store(handler.arg, std::memory_order_release);
    slot.version.store(version, std::memory_order_release);
  }

 private:
  struct Pair {
    // release by set(), after version n; partner: the acquire load in find()
    Atomic<heddle_am_handler> fn{nullptr};
    Atomic<void*> arg{nullptr};  // the same
  };
  // On one line, so that a reader has it for both of its looks, however often others register. Not
  // base::kCacheLine: the longest lines would make the table four times as large.
  struct alignas(64) Slot {
    Atomic<std::uint64_t> version{0};  // release by set(); partner: the first load of find()
    std::array<Pair, 2> pairs;
  };

  std::array<Slot, kNumbers> slots_;
};

}  // namespace heddle::engine
