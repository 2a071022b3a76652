// Waiting: the kernel's wait on a word of 32 bits; spinning, yielding the core and sleeping.
//
// The kernel's wait only gives the core away: its result is not used, since the caller reads the
// word again.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>

#include "base/cache_line.hpp"
#include "base/clock.hpp"

namespace heddle::base {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) &&
              std::atomic<std::uint32_t>::is_always_lock_free);

// The threads that may wait on the word and wake others: those of one process or of several.
// `process` is a little cheaper.
enum class FutexScope : std::uint8_t { process, shared };

// Returns when woken, when *word is not `expected`, after `timeout_ns` (negative: never), or for no
// reason. The kernel's comparison is a full barrier after everything that the caller did before.
inline void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::int64_t timeout_ns,
                       FutexScope scope) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const timespec timeout{static_cast<time_t>(timeout_ns / kSecond), static_cast<long>(timeout_ns % kSecond)};
  const int op = scope == FutexScope::process ? FUTEX_WAIT_PRIVATE : FUTEX_WAIT;
  ::syscall(SYS_futex, word, op, expected, timeout_ns < 0 ? nullptr : &timeout, nullptr, 0);
}

// Only some of the threads that wait on a word may be woken: those whose `bits` share a bit with
// the waker's. Threads that wait by futex_wait() have all bits. `bits` must not be 0: the kernel
// rejects that, and the wait returns at once.
inline void futex_wait_bits(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::int64_t timeout_ns,
                            std::uint32_t bits, FutexScope scope) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  timespec until{};  // this form of the wait takes a time, not a length
  if (timeout_ns >= 0) {
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    const std::int64_t ns = until.tv_nsec + timeout_ns % kSecond;
    until.tv_sec += static_cast<time_t>(timeout_ns / kSecond + ns / kSecond);
    until.tv_nsec = static_cast<long>(ns % kSecond);
  }
  const int op = scope == FutexScope::process ? FUTEX_WAIT_BITSET_PRIVATE : FUTEX_WAIT_BITSET;
  ::syscall(SYS_futex, word, op, expected, timeout_ns < 0 ? nullptr : &until, nullptr, bits);
}
// Returns how many it has woken.
inline int futex_wake_bits(std::atomic<std::uint32_t>* word, std::uint32_t bits, FutexScope scope) {
  const int op = scope == FutexScope::process ? FUTEX_WAKE_BITSET_PRIVATE : FUTEX_WAKE_BITSET;
  return static_cast<int>(::syscall(SYS_futex, word, op, INT_MAX, nullptr, nullptr, bits));
}

inline void futex_wake(std::atomic<std::uint32_t>* word, int most, FutexScope scope) {
  ::syscall(SYS_futex, word, scope == FutexScope::process ? FUTEX_WAKE_PRIVATE : FUTEX_WAKE, most, nullptr, nullptr, 0);
}
inline void futex_wake_all(std::atomic<std::uint32_t>* word, FutexScope scope) {
  futex_wake(word, INT_MAX, scope);
}

// How a thread waits for something that another thread or process will do: spin briefly, give the
// core away, then sleep.

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // NOLINT: `yield` is a no-op on the cores that matter; isb really pauses
#endif
}

// The experience of a process's waits with its cores: whether a thread that yields its core finds
// another thread on it. This only decides how long to spin, so it may be wrong for a while. Any
// thread.
class Crowd {
 public:
  // `processes` may wait on `cores` cores, one thread of each: what is known before any of them has
  // waited.
  void expect(std::uint64_t processes, std::uint64_t cores) {
    const bool crowded = processes > cores;
    processes_.store(processes, std::memory_order_relaxed);
    core_count_.store(cores, std::memory_order_relaxed);
    level_.store(crowded ? kMost : 0, std::memory_order_relaxed);
    roomy_.store(!crowded, std::memory_order_relaxed);
    const auto nap = static_cast<std::int64_t>(kNapPerShareNs * processes / std::max<std::uint64_t>(cores, 1));
    longest_nap_.store(std::clamp(nap, kLongestNapNs, kLongestCrowdedNapNs), std::memory_order_relaxed);
  }
  // Each look of a sleeper takes a few microseconds of its core, and a membarrier, which the kernel
  // serializes. Hundreds of sleepers on a core that look each millisecond leave it no time. So the
  // longest sleep grows with the number of ranks that share a core.
  [[nodiscard]] std::int64_t longest_nap_ns() const { return longest_nap_.load(std::memory_order_relaxed); }
  static constexpr std::int64_t kLongestNapNs = 1'000'000;
  static constexpr std::int64_t kShortestNapNs = 50'000;
  // For a thread that could not find out whether something has arrived: the shortest sleep. It
  // grows in proportion to the longest one, so that hundreds of threads on a core leave it time
  // then, too.
  [[nodiscard]] std::int64_t brief_nap_ns() const { return longest_nap_ns() / (kLongestNapNs / kShortestNapNs); }
  [[nodiscard]] bool crowded() const { return level_.load(std::memory_order_relaxed) != 0; }
  // `ns`: how long the core was away. A thread that is alone on its core is back in half a
  // microsecond; another thread takes at least two context switches.
  void yielded(std::uint64_t ns) {
    const std::uint32_t level = level_.load(std::memory_order_relaxed);
    const std::uint32_t next = ns >= kTwoSwitchesNs ? kMost : level == 0 ? 0 : level - 1;
    if (next != level) level_.store(next, std::memory_order_relaxed);
  }
  // How long a wait spins before it yields, if crowded(). Spinning pays if the awaited event
  // usually comes sooner than two context switches take, though another thread may want the core.
  // The waits find out: one in kTrial spins for longer than currently seems right. `now` (any
  // clock) decides which one.
  [[nodiscard]] std::uint64_t spin_ns(std::uint64_t now) const {
    const std::uint64_t known = spin_.load(std::memory_order_relaxed);
    return now / kTrialGrain % kTrial == 0 ? std::max(known, kTrialNs) : known;
  }
  // A wait has spun for `ns`, and that was long enough, or it has yielded.
  void spun(std::uint64_t ns, bool enough) {
    const std::uint64_t known = spin_.load(std::memory_order_relaxed);
    const std::uint64_t next =
        enough ? std::max(known, std::min(2 * ns, kMostCrowdedNs)) : std::max(known / 2, kShortestSpinNs);
    if (next != known) spin_.store(next, std::memory_order_relaxed);
  }
  // A thread that waits is on this core and is about to yield or to sleep.
  void seen(std::uint64_t now) {
    Core& core = this_core();
    core.seen.store(now, std::memory_order_relaxed);
    core.waits.store(0, std::memory_order_relaxed);
  }
  // joined(): a thread of this process has waited for long enough to yield. parted(): it has
  // stopped waiting. If several threads wait at a time, threads of the other processes may do so,
  // too, as far as is known here. If there is no core for each of them, it is these threads that
  // take the cores away, and not strangers.
  void joined(std::uint64_t now) {
    const std::uint64_t waiting = waiting_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (waiting == 1 ||
        waiting * processes_.load(std::memory_order_relaxed) <= core_count_.load(std::memory_order_relaxed))
      return;
    siblings_until_.store(now + kStrangersNs, std::memory_order_relaxed);
    if (level_.load(std::memory_order_relaxed) != kMost) level_.store(kMost, std::memory_order_relaxed);
  }
  void parted() { waiting_.fetch_sub(1, std::memory_order_relaxed); }
  // A wait has ended on this core.
  void ended() {
    std::atomic<std::uint64_t>& waits = this_core().waits;
    waits.store(waits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // A yield took from `before` until `now`. A thread that computes keeps the core for a slice: a
  // yield to it waits until the slice is over, and gains nothing for this thread. A thread that
  // sleeps and is woken mostly has its core back at once. But if ten threads of the process take
  // turns on the core, a yield takes long, too, and is right. So only the time since one of them
  // was last seen there counts, divided by the number of waits that have ended since. If there are
  // more ranks than cores, they may all have been waiting.
  void was_away(std::uint64_t before, std::uint64_t now) {
    if (now - before < kSliceNs || !roomy(now)) return;
    const Core& core = this_core();
    const std::uint64_t since = std::max(before, core.seen.load(std::memory_order_relaxed));
    const std::uint64_t turns = 1 + core.waits.load(std::memory_order_relaxed);
    if (now >= since + turns * kSliceNs) strangers_until_.store(now + kStrangersNs, std::memory_order_relaxed);
  }
  // Do not yield: spin, then sleep. From time to time a yield is tried again.
  [[nodiscard]] bool strangers(std::uint64_t now) const {
    return now < strangers_until_.load(std::memory_order_relaxed) &&
           now >= siblings_until_.load(std::memory_order_relaxed);
  }
  static constexpr std::uint64_t kLongestSpinNs = 20'000;
  static constexpr std::uint64_t kShortestSpinNs = 1'000;
  // How long to spin beside a stranger. A thread that sleeps may get the core back only when the
  // stranger's slice is over, and the system does not compensate for the time slept.
  static constexpr std::uint64_t kStrangersSpinNs = 100'000;
  // Call it after yielded(). True: the thread has shared its core for a while, although there
  // should be a core for each. The system leaves two threads that yield to each other on one core
  // for ever, since neither of them waits in its run queue for long.
  [[nodiscard]] bool should_step_aside(std::uint64_t ns, std::uint64_t now) {
    if (ns < kTwoSwitchesNs || !roomy(now)) {
      if (shared_.load(std::memory_order_relaxed) != 0) shared_.store(0, std::memory_order_relaxed);
      return false;
    }
    const std::uint32_t shared = shared_.load(std::memory_order_relaxed) + 1;
    shared_.store(shared, std::memory_order_relaxed);
    if (shared < kMostShared || now < not_before_.load(std::memory_order_relaxed)) return false;
    // If moving does not help, because all cores are busy, it is tried less and less often.
    const std::uint64_t pause = pause_.load(std::memory_order_relaxed);
    pause_.store(pause < kLongestPauseNs ? 2 * pause : pause, std::memory_order_relaxed);
    not_before_.store(now + pause, std::memory_order_relaxed);
    shared_.store(0, std::memory_order_relaxed);
    return true;
  }

 private:
  [[nodiscard]] bool roomy(std::uint64_t now) const {
    return roomy_.load(std::memory_order_relaxed) && now >= siblings_until_.load(std::memory_order_relaxed);
  }
  // One for each core, a line each, so that waits on different cores share none. Two cores may have
  // one by their number: then strangers may be taken for threads of the process for a while.
  // Relaxed: hints.
  struct alignas(kCacheLine) Core {
    std::atomic<std::uint64_t> seen{0};   // when a thread was last about to yield or to sleep
    std::atomic<std::uint64_t> waits{0};  // ends of waits, and what came to them, since then
  };
  static constexpr std::size_t kCores = 64;
  Core& this_core() { return cores_[static_cast<std::size_t>(std::max(sched_getcpu(), 0)) % kCores]; }
  static constexpr std::uint32_t kMostShared = 64;  // consecutive yields to another thread
  static constexpr std::uint64_t kFirstPauseNs = 1'000'000;
  static constexpr std::uint64_t kLongestPauseNs = 1'000'000'000;
  static constexpr std::uint64_t kTwoSwitchesNs = 1'500;
  static constexpr std::uint64_t kSliceNs = 300'000;
  // About thirty slices: a trial costs one of them.
  static constexpr std::uint64_t kStrangersNs = 100'000'000;
  // after so many yields to no other thread the core counts as free again
  static constexpr std::uint32_t kMost = 8;
  // more than ten times the core time that one sleep costs
  static constexpr std::uint64_t kNapPerShareNs = 200'000;
  static constexpr std::int64_t kLongestCrowdedNapNs = 100'000'000;
  // All relaxed: these are hints; updates may be lost.
  std::atomic<std::uint32_t> level_{0};
  std::atomic<std::int64_t> longest_nap_{kLongestNapNs};
  std::atomic<bool> roomy_{false};  // as far as known, a core for each thread that may wait
  // about two context switches: to spin for longer costs more than to yield
  static constexpr std::uint64_t kMostCrowdedNs = 5'000;
  static constexpr std::uint64_t kTrial = 64;
  static constexpr std::uint64_t kTrialGrain = 64;
  static constexpr std::uint64_t kTrialNs = 5'000;
  std::atomic<std::uint64_t> spin_{kShortestSpinNs};
  std::atomic<std::uint32_t> shared_{0};
  std::atomic<std::uint64_t> pause_{kFirstPauseNs};
  std::atomic<std::uint64_t> not_before_{0};
  std::atomic<std::uint64_t> strangers_until_{0};
  std::atomic<std::uint64_t> processes_{1};
  std::atomic<std::uint64_t> core_count_{1};
  std::atomic<std::uint64_t> siblings_until_{0};  // there is no core for each till then
  // The number of threads of this process that wait. Exact, since joined() and parted() come in
  // pairs. On a line of its own, since waits that yield write it, and all waits read the other
  // members.
  alignas(kCacheLine) std::atomic<std::uint64_t> waiting_{0};
  std::array<Core, kCores> cores_;
};

// Moves the calling thread to another core that it may run on, if there is one. Its affinity mask
// is the same afterwards.
void step_aside();

// One per wait. Call idle() after each attempt that found nothing, busy() after one that found
// something; then, if nap_ns() says so, sleep.
//
// Spins, yields, sleeps. With more threads than cores the partner may need this very core, and time
// spent spinning delays every thread on it; so a Waiter that knows of a crowd spins for as long as
// that has paid lately. A
// thread that is alone on its core is back from sched_yield() in half a microsecond, so yielding
// costs it little. A thread that has waited in vain for long sleeps for a sixteenth of the time it
// has waited: an event that does not wake it is noticed late by no more than that, and the core is
// free for others.
class Waiter {
 public:
  // `crowd` outlives the Waiter; null: nothing is known, nothing is learned. timeout_ns: negative:
  // wait for ever; 0: the caller has looked once, and the time is over.
  Waiter(Clock& clock, std::int64_t timeout_ns, Crowd* crowd = nullptr)
      : clock_(clock), crowd_(crowd), timeout_ns_(timeout_ns) {
    if (timeout_ns_ >= 0) start_ns_ = clock_.now_ns();
    if (timeout_ns_ == 0) since_clock_ = kClockPeriod;  // the first call reads the clock
    learns_ = crowd_ != nullptr && crowd_->crowded();
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  ~Waiter() { end_spell(); }

  // Continues the wait of an earlier Waiter that ended in vain and had waited since `idle_since`.
  void resume(std::uint64_t idle_since) {
    idle_since_ = idle_since;
    attempts_ = kMostLooks;
  }
  // Since when (Clock) it has waited in vain; 0: it has not yielded since the last busy().
  [[nodiscard]] std::uint64_t idle_since() const { return idle_since_; }

  // False: the time is over.
  [[nodiscard]] bool busy() {
    end_spell();
    attempts_ = 0;
    spinning_since_ = 0;
    idle_since_ = 0;
    idle_ns_ = 0;
    return ++since_clock_ < kClockPeriod || in_time(clock_.now_ns());
  }

  // False: the time is over.
  [[nodiscard]] bool idle() {
    if (attempts_ >= kMostLooks) return yield();
    ++attempts_;
    if (attempts_ % kLooks == 0 && !spins_on()) return yield();
    if (attempts_ > kFree) cpu_relax();
    return ++since_clock_ < kClockPeriod || in_time(clock_.now_ns());
  }

  // Call it after idle(): how long to sleep now; 0: not at all. If it is not 0, idle() has not
  // yielded.
  [[nodiscard]] std::int64_t nap_ns() const {
    if (idle_ns_ < kBeforeNapsNs) return 0;
    const std::int64_t longest = crowd_ != nullptr ? crowd_->longest_nap_ns() : Crowd::kLongestNapNs;
    const std::int64_t nap =
        std::clamp(static_cast<std::int64_t>(idle_ns_ / kNapShare), Crowd::kShortestNapNs, longest);
    return timeout_ns_ < 0 ? nap : std::min(nap, std::max<std::int64_t>(left_ns_, 1));
  }

 private:
  // looks without a pause: the answer is one cache transfer away
  static constexpr std::uint32_t kFree = 64;
  static constexpr std::uint32_t kLooks = 32;  // between two looks at the clock
  // if the clock stands still, or looks are very short
  static constexpr std::uint32_t kMostLooks = 5000;
  static constexpr std::uint32_t kClockPeriod = 256;
  static constexpr std::uint64_t kBeforeNapsNs = 1'000'000;
  static constexpr std::uint64_t kNapShare = 16;

  bool in_time(std::uint64_t now) {
    since_clock_ = 0;
    if (timeout_ns_ < 0) return true;
    left_ns_ = timeout_ns_ - static_cast<std::int64_t>(now - start_ns_);
    return left_ns_ > 0;
  }

  // The time to spin is not over.
  [[gnu::noinline]] bool spins_on() {
    const std::uint64_t now = clock_.now_ns();
    if (spinning_since_ == 0) {
      spinning_since_ = now;
      if (crowd_ != nullptr && crowd_->strangers(now)) {
        spin_ns_ = Crowd::kStrangersSpinNs;
      } else {
        spin_ns_ = learns_ ? crowd_->spin_ns(now) : Crowd::kLongestSpinNs;
      }
      if (timeout_ns_ > 0) spin_ns_ = std::min(spin_ns_, static_cast<std::uint64_t>(timeout_ns_));
    }
    return spin_ns_ > Crowd::kShortestSpinNs && now - spinning_since_ < spin_ns_;
  }
  // Called when the awaited event has come, or the wait is over.
  void end_spell() {
    if (joined_) [[unlikely]] {
      joined_ = false;
      crowd_->parted();
    }
    if (!learns_) return;
    crowd_->ended();
    if (spinning_since_ != 0) crowd_->spun(clock_.now_ns() - spinning_since_, idle_since_ == 0);
  }

  [[gnu::noinline]] bool yield() {
    attempts_ = kMostLooks;
    std::uint64_t now = clock_.now_ns();
    if (idle_since_ == 0) idle_since_ = now;
    idle_ns_ = now - idle_since_;
    if (crowd_ != nullptr) {
      if (!joined_) crowd_->joined(now);
      joined_ = true;
      crowd_->seen(now);
    }
    if (crowd_ != nullptr && crowd_->strangers(now)) idle_ns_ = std::max(idle_ns_, kBeforeNapsNs);
    if (idle_ns_ < kBeforeNapsNs) {
      const std::uint64_t before = now;
      sched_yield();
      now = clock_.now_ns();
      if (crowd_ != nullptr) {
        crowd_->yielded(now - before);
        crowd_->was_away(before, now);
        if (crowd_->should_step_aside(now - before, now)) step_aside();
      }
    }
    return in_time(now);
  }

  Clock& clock_;
  Crowd* crowd_;
  std::int64_t timeout_ns_;
  std::int64_t left_ns_ = 0;  // when the clock was last read
  std::uint64_t start_ns_ = 0;
  std::uint64_t idle_since_ = 0;  // time of the first yield; 0: none since the last busy()
  std::uint64_t idle_ns_ = 0;     // since then
  bool learns_ = false;
  bool joined_ = false;  // counted among those that wait
  std::uint64_t spin_ns_ = Crowd::kLongestSpinNs;
  std::uint64_t spinning_since_ = 0;  // the first look at the clock since the last busy(); 0: none
  std::uint32_t attempts_ = 0;
  std::uint32_t since_clock_ = 0;
};

// For waits during set-up, where the answer travels through other processes. Each sleep is twice as
// long as the last one, up to 1 ms.
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
