#include "collective/scratch.hpp"

#include <algorithm>
#include <mutex>

namespace heddle::collective {

engine::Region* Scratch::take_kept(std::uint64_t bytes) {
  // A much larger one is left to the operations that need it.
  constexpr std::uint64_t kMostTimes = 4;
  const std::lock_guard lock(mutex_);
  auto best = kept_.end();
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    const std::uint64_t have = (*at)->memory.bytes;
    if (have < bytes || have / kMostTimes > bytes) continue;
    if (best == kept_.end() || have < (*best)->memory.bytes) best = at;
  }
  if (best == kept_.end()) return nullptr;
  engine::Region* const region = *best;
  kept_.erase(best);
  kept_bytes_ -= region->memory.bytes;
  return region;
}

base::Result<engine::Region*> Scratch::take(std::uint64_t bytes) {
  if (engine::Region* const region = take_kept(bytes); region != nullptr) return region;
  return context_.objects().open_region(nullptr, bytes);
}

void Scratch::give_back(engine::Region* region) {
  if (engine::Region* const one = keep(region); one != nullptr) context_.objects().close_region(one);
  while (engine::Region* const one = take_surplus()) context_.objects().close_region(one);
}

// Null: it is kept; else the region itself.
engine::Region* Scratch::keep(engine::Region* region) {
  const std::lock_guard lock(mutex_);
  if (kept_.size() == kept_.capacity()) return region;
  kept_.push_back(region);
  kept_bytes_ += region->memory.bytes;
  return nullptr;
}

engine::Region* Scratch::take_surplus() {
  const std::lock_guard lock(mutex_);
  if (kept_bytes_ <= most_kept_) return nullptr;
  engine::Region* const oldest = kept_.front();
  kept_.erase(kept_.begin());
  kept_bytes_ -= oldest->memory.bytes;
  return oldest;
}

}  // namespace heddle::collective
