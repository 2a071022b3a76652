#include "transport/shm/extents.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <tuple>

namespace heddle::transport::shm {

Extents::Extents(std::uint64_t begin, std::uint64_t end, std::uint64_t page) : page_(page) {
  if (end > begin) free_.emplace(begin, end - begin);
}

std::uint64_t Extents::rounded(std::uint64_t bytes) const {
  const std::uint64_t up = bytes + (page_ - 1);
  return up < bytes ? 0 : up / page_ * page_;
}

std::optional<std::uint64_t> Extents::take(std::uint64_t bytes, std::uint64_t alignment) {
  return take_from(0, bytes, alignment);
}

std::optional<std::uint64_t> Extents::take_fresh(std::uint64_t bytes, std::uint64_t alignment) {
  return take_from(fresh_, bytes, alignment);
}

std::optional<std::uint64_t> Extents::take_from(std::uint64_t least, std::uint64_t bytes, std::uint64_t alignment) {
  const std::uint64_t need = rounded(bytes);
  if (need == 0) return std::nullopt;
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    const auto [begin, room] = *hole;
    const std::uint64_t at = (std::max(begin, least) + alignment - 1) & ~(alignment - 1);
    if (at < begin || at - begin > room || room - (at - begin) < need) continue;
    const std::uint64_t behind = room - (at - begin) - need;
    // may throw, so it comes before the hole changes
    if (behind != 0) free_.emplace(at + need, behind);
    if (at == begin) {
      free_.erase(hole);
    } else {
      hole->second = at - begin;
    }
    fresh_ = std::max(fresh_, at + need);
    return at;
  }
  return std::nullopt;
}

void Extents::give(std::uint64_t offset, std::uint64_t bytes) noexcept {
  std::map<std::uint64_t, std::uint64_t>::iterator hole;
  try {
    bool added = false;
    std::tie(hole, added) = free_.emplace(offset, rounded(bytes));
    if (!added) return;
  } catch (const std::bad_alloc&) {
    return;
  }
  const auto next = std::next(hole);
  if (next != free_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    free_.erase(next);
  }
  if (hole == free_.begin()) return;
  const auto previous = std::prev(hole);
  if (previous->first + previous->second == hole->first) {
    previous->second += hole->second;
    free_.erase(hole);
  }
}

}  // namespace heddle::transport::shm
