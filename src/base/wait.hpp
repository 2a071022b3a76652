// How a thread waits for something that another thread or process will do: spin briefly, give the
// core away, then sleep.
#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.hpp"

namespace heddle::base {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // NOLINT: `yield` is a no-op on the cores that matter; isb really pauses
#endif
}

// What the waits of a process have learned about its cores: whether who gives one away finds
// somebody else on it. It only says how long to spin, so it may be wrong for a while. Any thread.
class Crowd {
 public:
  // How many may wait on how many cores, as far as is known before anybody has waited.
  void expect(std::uint64_t who_wait, std::uint64_t cores) {
    const bool crowded = who_wait > cores;
    level_.store(crowded ? kMost : 0, std::memory_order_relaxed);
    roomy_.store(!crowded, std::memory_order_relaxed);
    const auto nap = static_cast<std::int64_t>(kNapPerShareNs * who_wait / std::max<std::uint64_t>(cores, 1));
    longest_nap_.store(std::clamp(nap, kLongestNapNs, kLongestCrowdedNapNs), std::memory_order_relaxed);
  }
  // Each look of a sleeper takes a few microseconds of its core, and a membarrier, which the kernel
  // does one at a time. Hundreds on a core that look each millisecond leave it no time. So the
  // longest nap grows with the ranks that share a core.
  [[nodiscard]] std::int64_t longest_nap_ns() const { return longest_nap_.load(std::memory_order_relaxed); }
  static constexpr std::int64_t kLongestNapNs = 1'000'000;
  static constexpr std::int64_t kShortestNapNs = 50'000;
  // For who could not find out whether something has come: as short as a nap may be; longer where
  // the longest is, in the same proportion, so that hundreds on a core leave it time then, too.
  [[nodiscard]] std::int64_t brief_nap_ns() const { return longest_nap_ns() / (kLongestNapNs / kShortestNapNs); }
  [[nodiscard]] bool crowded() const { return level_.load(std::memory_order_relaxed) != 0; }
  // How long the core was away. Alone on it, one is back in half a microsecond; another thread
  // takes two switches at least.
  void yielded(std::uint64_t ns) {
    const std::uint32_t level = level_.load(std::memory_order_relaxed);
    const std::uint32_t next = ns >= kTwoSwitchesNs ? kMost : level == 0 ? 0 : level - 1;
    if (next != level) level_.store(next, std::memory_order_relaxed);
  }
  // After yielded(): the thread has shared its core for a while, though there should be one for
  // everybody. The system leaves two that yield to each other on one core for ever, since neither
  // of them waits in its queue for long.
  [[nodiscard]] bool should_step_aside(std::uint64_t ns, std::uint64_t now) {
    if (ns < kTwoSwitchesNs || !roomy_.load(std::memory_order_relaxed)) {
      if (shared_.load(std::memory_order_relaxed) != 0) shared_.store(0, std::memory_order_relaxed);
      return false;
    }
    const std::uint32_t shared = shared_.load(std::memory_order_relaxed) + 1;
    shared_.store(shared, std::memory_order_relaxed);
    if (shared < kMostShared || now < not_before_.load(std::memory_order_relaxed)) return false;
    // Where it does not help, because all cores are busy, it is tried less and less often.
    const std::uint64_t pause = pause_.load(std::memory_order_relaxed);
    pause_.store(pause < kLongestPauseNs ? 2 * pause : pause, std::memory_order_relaxed);
    not_before_.store(now + pause, std::memory_order_relaxed);
    shared_.store(0, std::memory_order_relaxed);
    return true;
  }

 private:
  static constexpr std::uint32_t kMostShared = 64;  // yields to somebody, one after the other
  static constexpr std::uint64_t kFirstPauseNs = 1'000'000;
  static constexpr std::uint64_t kLongestPauseNs = 1'000'000'000;
  static constexpr std::uint64_t kTwoSwitchesNs = 1'500;
  // so many yields to nobody, and the core counts as free again
  static constexpr std::uint32_t kMost = 8;
  // ten times what a nap takes of the core, and more
  static constexpr std::uint64_t kNapPerShareNs = 200'000;
  static constexpr std::int64_t kLongestCrowdedNapNs = 100'000'000;
  // Relaxed, all: hints; updates may be lost.
  std::atomic<std::uint32_t> level_{0};
  std::atomic<std::int64_t> longest_nap_{kLongestNapNs};
  std::atomic<bool> roomy_{false};  // a core for everybody who may wait, as far as is known
  std::atomic<std::uint32_t> shared_{0};
  std::atomic<std::uint64_t> pause_{kFirstPauseNs};
  std::atomic<std::uint64_t> not_before_{0};
};

// Moves the calling thread to another core that it may run on, if there is one, and lets it run on
// all as before.
void step_aside();

// One per wait. Call idle() after each fruitless attempt, busy() after a fruitful one; then, if
// nap_ns() says so, sleep.
//
// Spins, yields, sleeps. With more threads than cores the partner may need this very core: what is
// spun here is added to every turn of everybody, so who knows that there is a crowd hardly spins. A
// thread that is alone on its core is back from sched_yield() in half a microsecond, so yielding
// costs it little. Who has waited in vain for long sleeps, a sixteenth of the time it has waited:
// what does not wake it is noticed late by as little, and it leaves its core to others.
class Waiter {
 public:
  // `crowd` outlives it; null: nothing is known, nothing is learned. timeout_ns: negative: for
  // ever; 0: who asks has looked once, and the time is over.
  Waiter(Clock& clock, std::int64_t timeout_ns, Crowd* crowd = nullptr)
      : clock_(clock), crowd_(crowd), timeout_ns_(timeout_ns) {
    if (timeout_ns_ >= 0) start_ns_ = clock_.now_ns();
    if (timeout_ns_ == 0) since_clock_ = kClockPeriod;  // the first question looks at the clock
    if (crowd_ != nullptr && crowd_->crowded()) spins_ = kFewSpins;
  }

  // It goes on where another one has ended in vain, which had waited since then.
  void resume(std::uint64_t idle_since) {
    idle_since_ = idle_since;
    attempts_ = spins_;
  }
  // Since when (Clock) it has waited in vain; 0: it has not yielded since something happened.
  [[nodiscard]] std::uint64_t idle_since() const { return idle_since_; }

  // False: the time is over.
  [[nodiscard]] bool busy() {
    attempts_ = 0;
    idle_since_ = 0;
    idle_ns_ = 0;
    return ++since_clock_ < kClockPeriod || in_time(clock_.now_ns());
  }

  // False: the time is over.
  [[nodiscard]] bool idle() {
    if (++attempts_ < spins_) {
      if (attempts_ > kFree) cpu_relax();
      return ++since_clock_ < kClockPeriod || in_time(clock_.now_ns());
    }
    return yield();
  }

  // After idle(), which has then not yielded: how long to sleep now; 0: not at all.
  [[nodiscard]] std::int64_t nap_ns() const {
    if (idle_ns_ < kBeforeNapsNs) return 0;
    const std::int64_t longest = crowd_ != nullptr ? crowd_->longest_nap_ns() : Crowd::kLongestNapNs;
    const std::int64_t nap =
        std::clamp(static_cast<std::int64_t>(idle_ns_ / kNapShare), Crowd::kShortestNapNs, longest);
    return timeout_ns_ < 0 ? nap : std::min(nap, std::max<std::int64_t>(left_ns_, 1));
  }

 private:
  // without a pause: the answer is one cache transfer away
  static constexpr std::uint32_t kFree = 64;
  static constexpr std::uint32_t kSpins = 100;  // five microseconds: about two context switches
  static constexpr std::uint32_t kFewSpins = 16;
  static constexpr std::uint32_t kClockPeriod = 256;
  static constexpr std::uint64_t kBeforeNapsNs = 1'000'000;
  static constexpr std::uint64_t kNapShare = 16;

  bool in_time(std::uint64_t now) {
    since_clock_ = 0;
    if (timeout_ns_ < 0) return true;
    left_ns_ = timeout_ns_ - static_cast<std::int64_t>(now - start_ns_);
    return left_ns_ > 0;
  }

  [[gnu::noinline]] bool yield() {
    attempts_ = spins_;
    std::uint64_t now = clock_.now_ns();
    if (idle_since_ == 0) idle_since_ = now;
    idle_ns_ = now - idle_since_;
    if (idle_ns_ < kBeforeNapsNs) {
      const std::uint64_t before = now;
      sched_yield();
      now = clock_.now_ns();
      if (crowd_ != nullptr) {
        crowd_->yielded(now - before);
        if (crowd_->should_step_aside(now - before, now)) step_aside();
      }
    }
    return in_time(now);
  }

  Clock& clock_;
  Crowd* crowd_;
  std::int64_t timeout_ns_;
  std::int64_t left_ns_ = 0;  // when the clock was read last
  std::uint64_t start_ns_ = 0;
  std::uint64_t idle_since_ = 0;  // when it first yielded; 0: not since something happened
  std::uint64_t idle_ns_ = 0;     // since then
  std::uint32_t spins_ = kSpins;
  std::uint32_t attempts_ = 0;
  std::uint32_t since_clock_ = 0;
};

// For waits of set-up, where the answer makes a way through other processes: sleeps, longer from
// time to time.
class Nap {
 public:
  void take() {
    const timespec length{0, ns_};
    ::nanosleep(&length, nullptr);
    ns_ = std::min(2 * ns_, kLongest);
  }

 private:
  static constexpr long kLongest = 1'000'000;
  long ns_ = 15'000;
};

}  // namespace heddle::base
