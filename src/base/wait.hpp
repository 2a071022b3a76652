// Waiting: the kernel's wait on a word of 32 bits; spinning, yielding the core and sleeping.
//
// The kernel's wait only gives the core away: its result is not used, since the caller reads the
// word again.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>

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

// The kernel ends a timed sleep late by up to the thread's timer slack, 50 µs by default: as long
// as a short sleep itself. While this lives, the calling thread's slack is 1 µs. A child that a
// signal handler forks meanwhile keeps that; so does the thread if the handler does not return.
class ShortSlack {
 public:
  // `wanted`: otherwise nothing changes.
  explicit ShortSlack(bool wanted) : before_(wanted ? ::syscall(SYS_prctl, PR_GET_TIMERSLACK, 0L, 0L, 0L, 0L) : 0) {
    if (before_ > kSlackNs) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(kSlackNs));
  }
  ~ShortSlack() {
    if (before_ > kSlackNs) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(before_));
  }
  ShortSlack(const ShortSlack&) = delete;
  ShortSlack& operator=(const ShortSlack&) = delete;

 private:
  static constexpr long kSlackNs = 1'000;
  const long before_;  // ns; not positive: not known, or not wanted
};

// How a thread waits for something that another thread or process will do: spin briefly, give the
// core away, then sleep.

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // NOLINT: `yield` is a no-op on the cores that matter; isb really pauses
#endif
}

// What the waits of a job know of one core. The ranks of a node share these lines (see
// bootstrap::Bootstrap::board); threads that run on the core write them, so that waits on different
// cores share none. All of it is hints: relaxed, updates may be lost, and a process may leave
// anything there.
struct alignas(2 * kCacheLine) CoreLine {
  std::atomic<std::uint64_t> seen;             // when a wait was last about to give the core away
  std::atomic<std::uint64_t> ends;             // waits that have ended here since then
  std::atomic<std::uint64_t> strangers_until;  // until then somebody else is taken to compute here
  std::atomic<std::uint64_t> strangers_ns;     // for how long that was noted
};

// What the waits of a process know of its cores: whether other threads want them, and whose threads
// those are. This only decides whether a wait spins, yields or sleeps, so it may be wrong for a
// while. Any thread, but for share() and expect().
class Crowd {
 public:
  // Before any wait. The lines of the node, zeroed when the job started; they outlive this object.
  // Without it the process only knows its own threads.
  void share(std::span<CoreLine> lines) {
    lines_ = lines;
    sees_all_ = true;
  }
  // Before any wait: `processes` may wait on `cores` cores, one thread of each.
  void expect(std::uint64_t processes, std::uint64_t cores) {
    const bool crowded = processes > cores;
    level_.store(crowded ? kMost : 0, std::memory_order_relaxed);
    roomy_ = !crowded;
    spare_ = cores == 0 || 2 * processes <= cores;
    const std::uint64_t share = cores == 0 ? 1 : processes / cores;
    longest_nap_ns_ =
        std::clamp(static_cast<std::int64_t>(kNapPerShareNs * share), kLongestNapNs, kLongestCrowdedNapNs);
    before_naps_ns_ = std::clamp(kBeforePerShareNs * share, kBeforeNapsNs, kMostBeforeNapsNs);
    slice_ns_ = std::max(kSliceNs, kSlicePerShareNs * share);
  }
  // How long a thread waits in vain before it sleeps. A thread that yields is back when each other
  // one has had its turn, and a collective takes several turns of all. If its members sleep before
  // it is over, it takes a wake-up of each in addition, ten times a turn.
  [[nodiscard]] std::uint64_t before_naps_ns() const { return before_naps_ns_; }
  static constexpr std::uint64_t kBeforeNapsNs = 1'000'000;
  // Each look of a sleeper takes a few microseconds of its core, and a membarrier, which the kernel
  // serializes. Hundreds of sleepers on a core that look each millisecond leave it no time. So the
  // longest sleep grows with the number of ranks that share a core.
  [[nodiscard]] std::int64_t longest_nap_ns() const { return longest_nap_ns_; }
  static constexpr std::int64_t kLongestNapNs = 1'000'000;
  static constexpr std::int64_t kShortestNapNs = 50'000;
  // For a thread that could not find out whether something has arrived: the shortest sleep. It
  // grows in proportion to the longest one, so that hundreds of threads on a core leave it time
  // then, too.
  [[nodiscard]] std::int64_t brief_nap_ns() const { return longest_nap_ns() / (kLongestNapNs / kShortestNapNs); }
  // A yield has lately let another thread run.
  [[nodiscard]] bool crowded() const { return level_.load(std::memory_order_relaxed) != 0; }
  // As far as known, there is a core for a second thread of each process.
  [[nodiscard]] bool spare() const { return spare_; }
  // `ns`: how long a yield lasted. A thread that is alone on its core is back in half a
  // microsecond; another thread takes at least two context switches.
  void yielded(std::uint64_t ns) {
    const std::uint32_t level = level_.load(std::memory_order_relaxed);
    const std::uint32_t next = ns >= kTwoSwitchesNs ? kMost : level == 0 ? 0 : level - 1;
    if (next != level) level_.store(next, std::memory_order_relaxed);
  }
  // A thread that waits is on this core and is about to yield or to sleep.
  void seen(std::uint64_t now) {
    CoreLine& core = this_core();
    core.seen.store(now, std::memory_order_relaxed);
    core.ends.store(0, std::memory_order_relaxed);
    count_turn();
  }
  // A wait has ended on this core.
  void ended() {
    std::atomic<std::uint64_t>& ends = this_core().ends;
    ends.store(ends.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    count_turn();
  }
  // A number that grows while threads of this process wait where threads share cores.
  [[nodiscard]] std::uint64_t turns() const {
    std::uint64_t sum = 0;
    for (const Turns& turns : turns_) sum += turns.count.load(std::memory_order_relaxed);
    return sum;
  }
  // A yield took from `before` until `now`. A thread that computes keeps the core for a slice: a
  // yield to it waits until the slice is over, and gains nothing for this thread. A thread that
  // sleeps and is woken mostly has its core back at once. But if ten threads of the job take turns
  // on the core, or two of them answer each other without a yield, a yield takes long, too, and is
  // right. So only the time since one of them was last seen there counts, divided by the number of
  // waits that have ended since.
  void was_away(std::uint64_t before, std::uint64_t now) {
    if (now - before < slice_ns_ || !(sees_all_ || roomy_)) return;
    CoreLine& core = this_core();
    const std::uint64_t since = std::max(before, core.seen.load(std::memory_order_relaxed));
    if (now <= since || (now - since) / slice_ns_ <= core.ends.load(std::memory_order_relaxed)) return;
    // A process that starts computes for some milliseconds, and is none any more. Who is still
    // there when a yield is tried again is believed for twice as long.
    const std::uint64_t last = core.strangers_ns.load(std::memory_order_relaxed);
    const std::uint64_t ended = core.strangers_until.load(std::memory_order_relaxed);
    const bool again = ended + last > now && ended <= now + last && last <= kStrangersNs;
    const std::uint64_t next = again ? std::clamp(2 * last, kFirstStrangersNs, kStrangersNs) : kFirstStrangersNs;
    core.strangers_ns.store(next, std::memory_order_relaxed);
    core.strangers_until.store(now + next, std::memory_order_relaxed);
  }
  // The calling thread begins to wait. If it has not given its core away since `gave_away`, as far
  // as the library knows, and a stranger was found here later, then it was this thread itself,
  // which computed.
  void has_computed(std::uint64_t gave_away, std::uint64_t now) {
    CoreLine& core = this_core();
    const std::uint64_t until = core.strangers_until.load(std::memory_order_relaxed);
    if (until <= now || until - core.strangers_ns.load(std::memory_order_relaxed) <= gave_away) return;
    core.strangers_ns.store(0, std::memory_order_relaxed);  // nobody is believed for longer again
    core.strangers_until.store(now, std::memory_order_relaxed);
  }
  // A thread of the lowest priority got this core at once, several times: it seems that nobody
  // computes here now. Strangers that were there each time when a yield was tried are believed
  // more: where the system shares the core among sessions, low priority does not count.
  void found_free(std::size_t core_number, std::uint64_t now) {
    CoreLine& core = lines_[core_number % lines_.size()];
    if (core.strangers_until.load(std::memory_order_relaxed) <= now) return;
    if (core.strangers_ns.load(std::memory_order_relaxed) >= kStrangersNs) return;
    core.strangers_until.store(now, std::memory_order_relaxed);
  }
  // Two cores may have one line by their number: then strangers may be taken for threads of the job
  // for a while.
  static std::size_t core_number() { return static_cast<std::size_t>(std::max(sched_getcpu(), 0)); }
  // A thread that does not wait for this job computes on this core: do not yield to it, sleep. From
  // time to time a yield is tried again.
  [[nodiscard]] bool strangers(std::uint64_t now) {
    const std::uint64_t until = this_core().strangers_until.load(std::memory_order_relaxed);
    return now < until && until - now <= kStrangersNs;
  }
  // Call it after yielded(). True: the thread has shared its core for a while, although there
  // should be a core for each. The system leaves two threads that yield to each other on one core
  // for ever, since neither of them waits in its run queue for long.
  [[nodiscard]] bool should_step_aside(std::uint64_t ns, std::uint64_t now) {
    if (ns < kTwoSwitchesNs || !roomy_) {
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
  // By core, so that waits on different cores share no line.
  struct alignas(kCacheLine) Turns {
    std::atomic<std::uint64_t> count{0};
  };
  CoreLine& this_core() { return lines_[core_number() % lines_.size()]; }
  void count_turn() {
    std::atomic<std::uint64_t>& count = turns_[core_number() % kOwnLines].count;
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  static constexpr std::size_t kOwnLines = 64;
  static constexpr std::uint32_t kMostShared = 64;  // consecutive yields to another thread
  static constexpr std::uint64_t kFirstPauseNs = 1'000'000;
  static constexpr std::uint64_t kLongestPauseNs = 1'000'000'000;
  static constexpr std::uint64_t kTwoSwitchesNs = 1'500;
  // A throng's turn takes long by itself, and takes ten times as long if its members sleep.
  static constexpr std::uint64_t kSliceNs = 300'000;
  static constexpr std::uint64_t kSlicePerShareNs = 40'000;
  // About thirty slices: a trial costs one of them.
  static constexpr std::uint64_t kStrangersNs = 100'000'000;
  static constexpr std::uint64_t kFirstStrangersNs = 12'500'000;
  // after so many yields to no other thread the core counts as free again
  static constexpr std::uint32_t kMost = 8;
  // more than ten times the core time that one sleep costs
  static constexpr std::uint64_t kNapPerShareNs = 200'000;
  static constexpr std::uint64_t kBeforePerShareNs = 200'000;
  static constexpr std::uint64_t kMostBeforeNapsNs = 100'000'000;
  static constexpr std::int64_t kLongestCrowdedNapNs = 100'000'000;
  std::array<CoreLine, kOwnLines> own_lines_{};
  std::array<Turns, kOwnLines> turns_;
  std::span<CoreLine> lines_{own_lines_};
  bool sees_all_ = false;
  bool roomy_ = false;  // as far as known, a core for each rank
  bool spare_ = true;   // as far as known, two
  std::int64_t longest_nap_ns_ = kLongestNapNs;
  std::uint64_t before_naps_ns_ = kBeforeNapsNs;
  std::uint64_t slice_ns_ = kSliceNs;
  // All relaxed: these are hints; updates may be lost.
  std::atomic<std::uint32_t> level_{0};
  std::atomic<std::uint32_t> shared_{0};
  std::atomic<std::uint64_t> pause_{kFirstPauseNs};
  std::atomic<std::uint64_t> not_before_{0};
};

// Moves the calling thread to another core that it may run on, if there is one. Its affinity mask
// is the same afterwards.
void step_aside();

namespace detail {
// What a thread does where threads share cores, see Waiter.
struct WaitHabit {
  bool spins = true;        // its last wait that spun ended before it gave the core away
  std::uint32_t waits = 0;  // since then
  // when a wait last came back from giving the core away; kUnknown: it has spun in a wait since
  std::uint64_t gave_away_ns = 0;
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
};
extern thread_local constinit WaitHabit t_wait_habit [[gnu::tls_model("initial-exec")]];
}  // namespace detail

// One per wait. Call idle() after each attempt that found nothing, busy() after one that found
// something; then, if nap_ns() says so, sleep.
//
// Where a core is free it spins for 20 µs. Where threads share cores, that is wrong for a wait
// whose answer needs this very core, and right for one whose partner runs on another core: two
// threads that answer each other while they spin keep both cores until the system takes one away,
// and need no switch. Which of the two it is, each thread learns from its own waits: while spinning
// gives it answers, it goes on spinning; after a wait in which it did not, it gives the core away
// after a few looks. One wait in kTrial tries again. What comes for others on the same worker is no
// answer. (Measured: docs/decisions/0073.)
// But where it sleeps, beside strangers or after a long wait, something that has come for others is
// mostly followed by more, and a sleep costs both sides more than a spin: it spins again.
//
// After that it yields: a thread that is alone on its core is back from sched_yield() in half a
// microsecond. Beside a thread that computes, a yield costs a slice; there it sleeps at once, and
// who wakes it gets it its core back. A thread that has waited in vain for long sleeps for a
// sixteenth of the time it has waited: an event that does not wake it is noticed late by no more
// than that, and the core is free for others.
class Waiter {
 public:
  // `crowd` outlives the Waiter; null: nothing is known, nothing is learned. timeout_ns: negative:
  // wait for ever; 0: the caller has looked once, and the time is over.
  Waiter(Clock& clock, std::int64_t timeout_ns, Crowd* crowd = nullptr)
      : clock_(clock), crowd_(crowd), timeout_ns_(timeout_ns) {
    if (timeout_ns_ >= 0) start_ns_ = clock_.now_ns();
    if (timeout_ns_ == 0) since_clock_ = kClockPeriod;  // the first call reads the clock
    if (crowd_ != nullptr && crowd_->crowded()) [[unlikely]]
      begin_shared();
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  ~Waiter() {
    if (noted_) [[unlikely]]
      end();
  }

  // Continues the wait of an earlier Waiter that ended in vain and had waited since `idle_since`.
  void resume(std::uint64_t idle_since) {
    idle_since_ = idle_since;
    attempts_ = kMostLooks;
  }
  // Since when (Clock) it has waited in vain; 0: it has not yielded since the last busy().
  [[nodiscard]] std::uint64_t idle_since() const { return idle_since_; }

  // False: the time is over.
  [[nodiscard]] bool busy() {
    if (noted_) [[unlikely]]
      go_on();
    next_clock_ = tries_ || !shares_ ? kLooks : kFewLooks;
    attempts_ = 0;
    spinning_since_ = 0;
    idle_since_ = 0;
    idle_ns_ = 0;
    sleeps_ = false;
    return ++since_clock_ < kClockPeriod || in_time(clock_.now_ns());
  }

  // False: the time is over.
  [[nodiscard]] bool idle() {
    if (attempts_ >= kMostLooks) return yield();
    if (++attempts_ >= next_clock_ && !spins_on()) return yield();
    if (attempts_ > kFree) cpu_relax();
    return ++since_clock_ < kClockPeriod || in_time(clock_.now_ns());
  }

  // Call it after idle(): how long to sleep now; 0: not at all. If it is not 0, idle() has not
  // yielded.
  [[nodiscard]] std::int64_t nap_ns() const {
    if (!sleeps_) return 0;
    const std::int64_t longest = crowd_ != nullptr ? crowd_->longest_nap_ns() : Crowd::kLongestNapNs;
    const std::int64_t nap =
        std::clamp(static_cast<std::int64_t>(idle_ns_ / kNapShare), Crowd::kShortestNapNs, longest);
    return within_time(nap);
  }
  // The same if all that the wait waits for ends the sleep: as long as it has waited already. Where
  // hundreds of ranks share a core, sleeps of 20 ms are too many for it.
  [[nodiscard]] std::int64_t rung_nap_ns() const {
    const std::int64_t longest = crowd_ != nullptr ? crowd_->longest_nap_ns() : 0;
    const std::int64_t most = std::max(longest, kLongestRungNapNs);
    const auto waited = static_cast<std::int64_t>(std::min(idle_ns_, static_cast<std::uint64_t>(most)));
    return within_time(std::max(waited, nap_ns()));
  }

  static constexpr std::uint64_t kSpinNs = 20'000;
  static constexpr std::uint64_t kSharedSpinNs = 5'000;  // about two context switches and an answer
  static constexpr std::uint32_t kTrial = 32;
  // looks of a wait that does not spin: what has been answered meanwhile needs no more
  static constexpr std::uint32_t kFewLooks = 3;

 private:
  // looks without a pause: the answer is one cache transfer away
  static constexpr std::uint32_t kFree = 64;
  static constexpr std::uint32_t kLooks = 32;  // between two looks at the clock
  // if the clock stands still, or looks are very short
  static constexpr std::uint32_t kMostLooks = 5000;
  static constexpr std::uint32_t kClockPeriod = 256;
  static constexpr std::uint64_t kNapShare = 16;
  // what no bell tells of (another thread of the process) is noticed late by no more than that,
  // or than the crowd's longest nap
  static constexpr std::int64_t kLongestRungNapNs = 20'000'000;

  bool in_time(std::uint64_t now) {
    since_clock_ = 0;
    if (timeout_ns_ < 0) return true;
    left_ns_ = timeout_ns_ - static_cast<std::int64_t>(now - start_ns_);
    over_ = left_ns_ <= 0;
    return !over_;
  }

  [[nodiscard]] std::int64_t within_time(std::int64_t nap) const {
    return timeout_ns_ < 0 ? nap : std::min(nap, std::max<std::int64_t>(left_ns_, 1));
  }
  void begin_shared();
  void go_on();
  void end();
  bool spins_on();
  bool yield();

  Clock& clock_;
  Crowd* crowd_;
  std::int64_t timeout_ns_;
  std::int64_t left_ns_ = 0;  // when the clock was last read
  std::uint64_t start_ns_ = 0;
  std::uint64_t idle_since_ = 0;  // time of the first yield; 0: none since the last busy()
  std::uint64_t idle_ns_ = 0;     // since then
  std::uint64_t spin_ns_ = kSpinNs;
  std::uint64_t spinning_since_ = 0;  // the first look at the clock since the last busy(); 0: none
  std::uint32_t attempts_ = 0;
  std::uint32_t next_clock_ = kLooks;  // the look after which the clock is read next
  std::uint32_t since_clock_ = 0;
  bool shares_ = false;  // threads share cores, as far as known when it began
  bool noted_ = false;   // its thread's habit or the crowd knows of it: it shares, or has yielded
  bool tries_ = false;   // if it shares: it spins; false once it has given the core away in vain
  bool sleeps_ = false;  // it has waited for long, or strangers compute here
  bool over_ = false;    // its time is over
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
