#include "lcw/idle.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>

namespace heddle::for_lcw {
namespace {

std::atomic<bool> g_enabled{true};

}  // namespace

thread_local Idle::State Idle::t_idle = {0, kLeast};

void Idle::set_enabled(bool enabled) {
  g_enabled.store(enabled, std::memory_order_relaxed);
}

void Idle::leave_core() {
  t_idle.fruitless = 0;
  if (!g_enabled.load(std::memory_order_relaxed)) {
    t_idle.patience = kMost;
    return;
  }
  using Clock = std::chrono::steady_clock;
  // If no other thread takes the core, a yield is a system call of a few hundred nanoseconds.
  constexpr auto kTaken = std::chrono::nanoseconds(1500);
  const Clock::time_point before = Clock::now();
  ::sched_yield();
  const bool taken = Clock::now() - before > kTaken;
  t_idle.patience = taken ? kLeast : std::min(t_idle.patience * 2, kMost);
}

}  // namespace heddle::for_lcw
