#include "lcw/completion.hpp"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lcw/process.hpp"

namespace heddle::for_lcw {

bool RequestQueue::pop_as_another(::lcw::request_t* request) {
  const bool owner = bias_.claim([this] {
    ::lcw::request_t left{};
    while (own_.pop(&left)) shared_.push(left);
  });
  return owner ? pop(request) : shared_.pop(request);
}

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

namespace {

bool membarrier(int command) {
  return ::syscall(SYS_membarrier, command, 0, 0) == 0;
}

}  // namespace

thread_local PollerBias::Identity PollerBias::t_identity{};

PollerBias::PollerBias() : owner_(kNone) {
  static const bool registered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  if (!registered) owner_.store(kShared, std::memory_order_relaxed);
}

void PollerBias::evict(std::uint64_t owner) {
  owner_.store(kNone, std::memory_order_relaxed);
  // The process is registered, so the call fails only under a filter of system calls that was
  // installed later. Then nobody can find out whether the owner is inside.
  if (!membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) fail("membarrier is refused since the process has started");
  const std::atomic<std::uint32_t>& mark = marks_[owner & kNumber];
  // it may have lost its core inside
  while (mark.load(std::memory_order_acquire) != 0) ::sched_yield();
}

}  // namespace heddle::for_lcw
