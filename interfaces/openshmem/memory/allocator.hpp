// Allocates from a range of bytes. It works on offsets and keeps its data outside the range. So the
// same calls give the same offsets on every PE, whatever the programs write into the range.
//
// Best fit, lowest address first: deterministic, at the cost of a tree lookup.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace heddle::shmem::memory {

class SymmetricAllocator {
 public:
  // all offsets and lengths are multiples of it: enough for any type
  static constexpr std::size_t kGranule = 16;

  // Allocates from [begin, end); both are multiples of kGranule.
  SymmetricAllocator(std::size_t begin, std::size_t end);

  // `alignment` is a power of two. nullopt: no free range holds it.
  std::optional<std::size_t> allocate(std::size_t bytes, std::size_t alignment);
  // False: no block begins there.
  bool release(std::size_t offset);
  // The requested size; nullopt: no block begins there.
  [[nodiscard]] std::optional<std::size_t> bytes_at(std::size_t offset) const;

  // The requested range [begin, end) of the block that contains `offset`; empty: there is none.
  struct Extent {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  [[nodiscard]] Extent block_around(std::size_t offset) const;

  [[nodiscard]] std::size_t free_bytes() const { return free_bytes_; }
  [[nodiscard]] std::size_t largest_free() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  [[nodiscard]] std::size_t blocks() const { return used_.size(); }

 private:
  struct Block {
    std::size_t taken;   // rounded up to granules
    std::size_t wanted;  // the requested size
  };

  void add_free(std::size_t offset, std::size_t bytes);
  void remove_free(std::map<std::size_t, std::size_t>::iterator range);

  std::map<std::size_t, std::size_t> free_;                // offset → bytes; no two are adjacent
  std::set<std::pair<std::size_t, std::size_t>> by_size_;  // (bytes, offset) of the same ranges
  std::map<std::size_t, Block> used_;                      // by offset
  std::size_t free_bytes_ = 0;
};

}  // namespace heddle::shmem::memory
