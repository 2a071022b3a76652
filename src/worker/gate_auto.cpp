#include "worker/gate_auto.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace heddle::engine {
namespace {

// Looks of the owner at a claim: a short visit of a helper.
constexpr int kOwnLooks = 64;
// After that the thread inside may have lost its core, or it runs a handler; this thread does not
// wait for it.
constexpr std::int64_t kAwaitNs = 50'000;

std::uint32_t own_number() {
  return static_cast<std::uint32_t>(::syscall(SYS_gettid)) | queue::SystemHandover::kStays;
}

}  // namespace

bool AutoGate::enter_later() {
  if (!bias_.owned_by(base::thread_mark()) && take_over(true)) return true;
  for (int i = 0; i < kOwnLooks; ++i) {
    if (enter_as_owner()) return true;
    if (bias_.shared()) return DelegateGate::let_in();
    base::cpu_relax();
  }
  bias_.await_helper(kAwaitNs);
  return enter_as_owner();
}

// Lets in a thread that is not the owner.
bool AutoGate::take_over(bool urgent) {
  if (bias_.owned_by(base::thread_mark())) return false;
  // Failed attempts count, too: they have disturbed the owner as much.
  const std::uint64_t now = worker().context().clock().now_ns();
  const std::uint64_t last = tried_at_.load(std::memory_order_relaxed);
  const std::uint64_t forgiven = now > last ? (now - last) / kBearableNs : 0;
  const std::uint64_t before = hurried_.load(std::memory_order_relaxed);
  const std::uint64_t hurried = before - std::min(before, forgiven) + 1;
  tried_at_.store(now, std::memory_order_relaxed);
  hurried_.store(hurried, std::memory_order_relaxed);
  if (!bias_.take_over(base::thread_mark(), hurried > kMostHurried, own_number(), urgent)) return false;
  return enter_as_owner() || (bias_.shared() && DelegateGate::let_in_at_once());
}

bool AutoGate::enter_after_visit() {
  if (!helper_stays()) return false;
  bias_.await_helper(kFetchSleepNs);
  return enter_as_owner();
}

bool AutoGate::claim(bool urgent) {
  return !bias_.owned_by(base::thread_mark()) && claim_as(own_number(), urgent);
}

}  // namespace heddle::engine
