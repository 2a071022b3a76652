#include "collective/arena.hpp"

#include <algorithm>
#include <mutex>

namespace heddle::collective {
namespace {

constexpr std::uint64_t lines(std::uint64_t bytes) {
  return (bytes + base::kCacheLine - 1) / base::kCacheLine * base::kCacheLine;
}

}  // namespace

Arena::Arena(std::byte* base, std::uint64_t bytes) : base_(base), bytes_(bytes) {
  free_.emplace(0, bytes);
}

std::optional<std::uint64_t> Arena::take(std::uint64_t bytes) {
  sweep();
  const std::uint64_t wanted = std::max<std::uint64_t>(lines(bytes), base::kCacheLine);
  std::uint64_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto room = std::ranges::find_if(free_, [&](const auto& piece) { return piece.second >= wanted; });
    if (room == free_.end()) return std::nullopt;
    offset = room->first;
    const std::uint64_t left = room->second - wanted;
    taken_.emplace(offset, wanted);
    free_.erase(room);
    if (left > 0) free_.emplace(offset + wanted, left);
  }
  return offset;
}

void Arena::release(std::uint64_t offset) {
  const auto piece = taken_.find(offset);
  if (piece == taken_.end()) return;
  auto at = free_.emplace(offset, piece->second).first;
  taken_.erase(piece);
  if (const auto next = std::next(at); next != free_.end() && at->first + at->second == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  if (const auto before = std::prev(at); before->first + before->second == at->first) {
    before->second += at->second;
    free_.erase(at);
  }
}

void Arena::give_back(std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  release(offset);
}

void Arena::give_back_after(std::uint64_t offset, std::vector<std::uint64_t> counters, std::function<void()> last) {
  {
    const std::lock_guard lock(mutex_);
    late_.push_back({offset, std::move(counters), std::move(last)});
  }
  sweep();
}

bool Arena::arrived(const Late& late) const {
  const auto* words = reinterpret_cast<const CounterWord*>(base_ + late.offset);
  for (std::size_t i = 0; i < late.counters.size(); ++i)
    if (words[i].credits.load(std::memory_order_acquire) < late.counters[i]) return false;
  return true;
}

void Arena::sweep() {
  std::vector<Late> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto first = std::partition(late_.begin(), late_.end(), [this](const Late& late) { return !arrived(late); });
    gone.assign(std::make_move_iterator(first), std::make_move_iterator(late_.end()));
    late_.erase(first, late_.end());
    for (const Late& late : gone) release(late.offset);
  }
  for (const Late& late : gone)
    if (late.last) late.last();
}

}  // namespace heddle::collective
