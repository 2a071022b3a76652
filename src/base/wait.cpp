#include "base/wait.hpp"

#include <pthread.h>

namespace heddle::base {

namespace detail {
thread_local constinit WaitHabit t_wait_habit;
}  // namespace detail

void step_aside() {
  cpu_set_t all;
  if (pthread_getaffinity_np(pthread_self(), sizeof all, &all) != 0) return;
  const int here = sched_getcpu();
  cpu_set_t others = all;
  if (here >= 0) CPU_CLR(here, &others);
  if (CPU_COUNT(&others) == 0) return;
  if (pthread_setaffinity_np(pthread_self(), sizeof others, &others) != 0) return;
  pthread_setaffinity_np(pthread_self(), sizeof all, &all);
}

void Waiter::begin_shared() {
  detail::WaitHabit& habit = detail::t_wait_habit;
  shares_ = true;
  noted_ = true;
  tries_ = habit.spins || ++habit.waits % kTrial == 0;
  next_clock_ = tries_ ? kLooks : kFewLooks;
}

// Something has come that does not end the wait.
void Waiter::go_on() {
  if (idle_since_ != 0) detail::t_wait_habit.gave_away_ns = clock_.now_ns();  // it may have slept
  if (!shares_) return;
  crowd_->ended();
  tries_ = tries_ || sleeps_;
}

void Waiter::end() {
  detail::WaitHabit& habit = detail::t_wait_habit;
  if (idle_since_ != 0) habit.gave_away_ns = clock_.now_ns();
  if (!shares_) return;
  crowd_->ended();
  if (idle_since_ == 0 && attempts_ > 0 && !over_) habit.gave_away_ns = detail::WaitHabit::kUnknown;
  if (!tries_ || over_ || attempts_ <= kFewLooks) return;
  habit.spins = true;
  habit.waits = 0;
}

// The time to spin is not over.
bool Waiter::spins_on() {
  next_clock_ = attempts_ + kLooks;
  if (shares_ && !tries_) return false;
  const std::uint64_t now = clock_.now_ns();
  if (spinning_since_ == 0) {
    spinning_since_ = now;
    spin_ns_ = shares_ && !crowd_->strangers(now) ? kSharedSpinNs : kSpinNs;
    if (timeout_ns_ > 0) spin_ns_ = std::min(spin_ns_, static_cast<std::uint64_t>(timeout_ns_));
  }
  return now - spinning_since_ < spin_ns_;
}

bool Waiter::yield() {
  attempts_ = kMostLooks;
  noted_ = true;
  std::uint64_t now = clock_.now_ns();
  if (idle_since_ == 0) {
    idle_since_ = now;
    if (crowd_ != nullptr) crowd_->has_computed(detail::t_wait_habit.gave_away_ns, now);
  }
  if (tries_) {
    tries_ = false;
    detail::t_wait_habit.spins = false;
  }
  idle_ns_ = now - idle_since_;
  sleeps_ = idle_ns_ >= (crowd_ != nullptr ? crowd_->before_naps_ns() : Crowd::kBeforeNapsNs);
  if (crowd_ != nullptr) {
    crowd_->seen(now);
    if (crowd_->strangers(now)) {
      sleeps_ = true;
      idle_ns_ = std::max(idle_ns_, Crowd::kBeforeNapsNs);
    }
  }
  if (!sleeps_) {
    const std::uint64_t before = now;
    sched_yield();
    now = clock_.now_ns();
    detail::t_wait_habit.gave_away_ns = now;
    if (crowd_ != nullptr) {
      crowd_->yielded(now - before);
      crowd_->was_away(before, now);
      if (crowd_->should_step_aside(now - before, now)) step_aside();
    }
  }
  return in_time(now);
}

}  // namespace heddle::base
