#include "openshmem/memory/allocator.hpp"

#include <algorithm>
#include <iterator>

namespace heddle::shmem::memory {

SymmetricAllocator::SymmetricAllocator(std::size_t begin, std::size_t end) {
  if (end > begin) add_free(begin, end - begin);
}

void SymmetricAllocator::add_free(std::size_t offset, std::size_t bytes) {
  free_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
  free_bytes_ += bytes;
}

void SymmetricAllocator::remove_free(std::map<std::size_t, std::size_t>::iterator range) {
  by_size_.erase({range->second, range->first});
  free_bytes_ -= range->second;
  free_.erase(range);
}

std::optional<std::size_t> SymmetricAllocator::allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes > free_bytes_) return std::nullopt;
  alignment = std::max(alignment, kGranule);
  const std::size_t taken = (std::max<std::size_t>(bytes, 1) + kGranule - 1) / kGranule * kGranule;
  for (auto fit = by_size_.lower_bound({taken, 0}); fit != by_size_.end(); ++fit) {
    const auto [length, offset] = *fit;
    const std::size_t begin = (offset + alignment - 1) & ~(alignment - 1);
    if (begin < offset || begin - offset > length - taken) continue;  // too short after alignment
    remove_free(free_.find(offset));
    if (begin > offset) add_free(offset, begin - offset);
    if (begin + taken < offset + length) add_free(begin + taken, offset + length - begin - taken);
    used_.emplace(begin, Block{taken, bytes});
    return begin;
  }
  return std::nullopt;
}

bool SymmetricAllocator::release(std::size_t offset) {
  const auto block = used_.find(offset);
  if (block == used_.end()) return false;
  std::size_t begin = offset;
  std::size_t end = offset + block->second.taken;
  used_.erase(block);
  if (const auto after = free_.find(end); after != free_.end()) {
    end += after->second;
    remove_free(after);
  }
  if (const auto next = free_.lower_bound(begin); next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      remove_free(before);
    }
  }
  add_free(begin, end - begin);
  return true;
}

SymmetricAllocator::Extent SymmetricAllocator::block_around(std::size_t offset) const {
  const auto after = used_.upper_bound(offset);
  if (after == used_.begin()) return {};
  const auto& [begin, block] = *std::prev(after);
  if (offset - begin >= block.wanted) return {};
  return {begin, begin + block.wanted};
}

std::optional<std::size_t> SymmetricAllocator::bytes_at(std::size_t offset) const {
  const auto block = used_.find(offset);
  if (block == used_.end()) return std::nullopt;
  return block->second.wanted;
}

}  // namespace heddle::shmem::memory
