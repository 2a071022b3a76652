#include "lcw/ring.hpp"

namespace heddle::for_lcw {

SharedRing::SharedRing() : slots_(new Slot[kSlots]) {
  for (std::uint64_t i = 0; i < kSlots; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
}

void SharedRing::spill(const ::lcw::request_t& request) {
  const std::lock_guard lock(mutex_);
  spill_.push_back(request);
  spilled_.store(spill_.size(), std::memory_order_relaxed);
}

// Takes the oldest, and fills the ring again, so that the lock is taken once for many.
bool SharedRing::pop_spilled(::lcw::request_t* request) {
  const std::lock_guard lock(mutex_);
  if (spill_.empty()) return false;
  *request = spill_.front();
  spill_.pop_front();
  while (!spill_.empty() && push_ring(spill_.front())) spill_.pop_front();
  spilled_.store(spill_.size(), std::memory_order_relaxed);
  return true;
}

}  // namespace heddle::for_lcw
