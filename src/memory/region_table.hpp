// The regions of one context by number, so that a request from the network can be checked against them.
//
// Numbers are index + generation and are not used twice. find() takes no lock: it runs where messages are served.
// Invariants: a chunk pointer goes from null to its final value once. A slot's `number` is 0 while the slot is free; address
// and bytes are written before the number is stored (release) and read after it was loaded (acquire). Releasing a region
// while a peer still works on it is an error of the program, which find() cannot prevent, only notice if it comes later.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace heddle::memory {

struct Span {
  std::byte* address;
  std::uint64_t bytes;
};

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
    if (free_.capacity() <= next_) free_.reserve(2 * next_ + 64);  // so that remove() never allocates
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
      chunk.store(new Slot[kChunk], std::memory_order_release);  // partner: find's acquire load
    }
    Slot& slot = chunk.load(std::memory_order_relaxed)[index % kChunk];
    slot.address = static_cast<std::byte*>(address);
    slot.bytes = bytes;
    const std::uint64_t number = ++generation_ << 20 | index;
    slot.number.store(number, std::memory_order_release);  // partner: find's acquire load
    return number;
  }

  void remove(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    Slot* slot = locate(number);
    if (slot == nullptr || slot->number.load(std::memory_order_relaxed) != number) return;
    slot->number.store(0, std::memory_order_release);
    free_.push_back(number & kIndexMask);
  }

  // Where [offset, offset + bytes) of the region lies; empty: no such region, or not all of it inside.
  [[nodiscard]] std::optional<Span> find(std::uint64_t number, std::uint64_t offset, std::uint64_t bytes) const {
    const Slot* slot = locate(number);
    if (number == 0 || slot == nullptr || slot->number.load(std::memory_order_acquire) != number) return std::nullopt;
    if (offset > slot->bytes || bytes > slot->bytes - offset) return std::nullopt;
    return Span{slot->address + offset, bytes};
  }

  [[nodiscard]] bool known(std::uint64_t number) const { return find(number, 0, 0).has_value(); }

 private:
  struct Slot {
    std::atomic<std::uint64_t> number{0};
    std::byte* address = nullptr;
    std::uint64_t bytes = 0;
  };
  static constexpr std::uint64_t kIndexMask = kChunk * kChunks - 1;

  [[nodiscard]] Slot* locate(std::uint64_t number) const {
    const std::uint64_t index = number & kIndexMask;
    Slot* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &chunk[index % kChunk];
  }

  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::mutex mutex_;  // guards everything below, and writing
  std::vector<std::uint64_t> free_;
  std::uint64_t next_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace heddle::memory
