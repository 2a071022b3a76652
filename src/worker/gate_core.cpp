#include "worker/gate_core.hpp"

namespace heddle::engine {

// A helper seems to be inside. For as long as a visit usually takes it is treated like any other
// thread. After that it has probably lost its core, and gets this one, again and again but not all
// the time, since it may also be running a long handler.
bool CoreGate::enter_after_helper() {
  return helper_stays() && helper_.fetch(kFetchSleepNs) && try_enter();
}

bool CoreGate::helper_stays() {
  const std::uint64_t now = worker().context().clock().now_ns();
  const std::uint32_t visit = visits_.load(std::memory_order_relaxed);
  if (visit != refused_visit_.load(std::memory_order_relaxed)) {
    refused_visit_.store(visit, std::memory_order_relaxed);
    fetch_at_.store(now + kPatienceNs, std::memory_order_relaxed);
    return false;
  }
  if (now < fetch_at_.load(std::memory_order_relaxed)) return false;
  fetch_at_.store(now + 2 * kFetchSleepNs, std::memory_order_relaxed);  // half of it is slept
  return true;
}

bool CoreGate::let_in_helper(std::uint32_t number, bool /*urgent*/) {
  // a thread of the application
  if ((number & queue::SystemHandover::kStays) != 0) return door_.try_enter();
  if (!helper_.try_claim(number)) return false;
  count_visit();
  if (door_.try_enter()) return true;
  helper_.release();
  return false;
}

void CoreGate::let_out_helper(bool helper) {
  leave();
  if (helper) helper_.release();
}

}  // namespace heddle::engine
