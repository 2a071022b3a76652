#include "lcw/bias.hpp"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lcw/errors.hpp"

namespace heddle::for_lcw {
namespace {

bool membarrier(int command) {
  return ::syscall(SYS_membarrier, command, 0, 0) == 0;
}

}  // namespace

thread_local Bias::Identity Bias::t_identity{};

Bias::Bias() : owner_(kNone) {
  static const bool registered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  if (!registered) owner_.store(kShared, std::memory_order_relaxed);
}

void Bias::evict(std::uint64_t owner) {
  owner_.store(kNone, std::memory_order_relaxed);
  // The process is registered, so the call fails only under a filter of system calls that was
  // installed later. Then nobody can find out whether the owner is inside.
  if (!membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) fail("membarrier is refused since the process has started");
  const std::atomic<std::uint32_t>& mark = marks_[owner & kNumber];
  // it may have lost its core inside
  while (mark.load(std::memory_order_acquire) != 0) ::sched_yield();
}

}  // namespace heddle::for_lcw
