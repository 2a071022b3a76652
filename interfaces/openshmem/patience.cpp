#include "openshmem/patience.hpp"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace heddle::shmem {

namespace {

constexpr std::uint32_t kSpins = 250;    // five microseconds: about two context switches
constexpr std::uint32_t kFewSpins = 16;  // where the partner may need this core
// after this many yields during which no other thread ran, the core counts as free again
constexpr std::uint32_t kMostLevel = 8;
constexpr std::uint64_t kTwoSwitchesNs = 1'500;
// A thread that keeps the core for kSliceNs computes and does not wait. Then nobody yields for
// kStrangersNs.
constexpr std::uint64_t kSliceNs = 300'000;
constexpr std::uint64_t kStrangersNs = 100'000'000;
constexpr std::uint64_t kStrangerSpinNs = 100'000;
constexpr std::uint64_t kBeforeNapsNs = 1'000'000;
constexpr std::uint64_t kNapShare = 16;
constexpr std::uint64_t kShortestNapNs = 50'000;
constexpr std::uint64_t kLongestNapNs = 1'000'000;
// for each PE that shares the core: more than ten times the core time that a nap costs, so that
// sleepers leave the core to others
constexpr std::uint64_t kNapPerShareNs = 200'000;
constexpr std::uint64_t kLongestCrowdedNapNs = 100'000'000;

// A note of a wait takes a lock and a system call.
constexpr std::uint32_t kManyMoves = 1024;
constexpr int kMostMoves = 1000;

constexpr std::uint64_t kSecondNs = 1'000'000'000;

std::atomic<std::uint32_t> g_crowd{0};           // relaxed: a hint
std::uint64_t g_longest_nap_ns = kLongestNapNs;  // likewise

// As far as known there is a core for each PE. Written before anybody waits.
bool g_roomy = false;
// The number of yields in a row during which another thread took the core; the earliest time to
// step aside again; and how long after that. Relaxed: hints, whose updates may be lost.
constexpr std::uint32_t kMostShared = 16;
constexpr std::uint64_t kLongestPauseNs = 1'000'000'000;
std::atomic<std::uint32_t> g_shared{0};
std::atomic<std::uint64_t> g_not_before_ns{0};
std::atomic<std::uint64_t> g_pause_ns{1'000'000};
std::atomic<std::uint64_t> g_strangers_until_ns{0};

std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kSecondNs + static_cast<std::uint64_t>(now.tv_nsec);
}

// sched_yield() returns after half a microsecond if no other thread runs on the core; otherwise it
// takes two context switches.
void learn(std::uint64_t away_ns) {
  const std::uint32_t level = g_crowd.load(std::memory_order_relaxed);
  const std::uint32_t next = away_ns >= kTwoSwitchesNs ? kMostLevel : level == 0 ? 0 : level - 1;
  if (next != level) g_crowd.store(next, std::memory_order_relaxed);
}

// Two threads that yield to each other stay on one core for ever, even if other cores are free,
// since neither waits in its run queue for long. True: this one should go.
bool should_step_aside(std::uint64_t away_ns, std::uint64_t now) {
  if (away_ns < kTwoSwitchesNs || !g_roomy) {
    if (g_shared.load(std::memory_order_relaxed) != 0) g_shared.store(0, std::memory_order_relaxed);
    return false;
  }
  const std::uint32_t shared = g_shared.load(std::memory_order_relaxed) + 1;
  g_shared.store(shared, std::memory_order_relaxed);
  if (shared < kMostShared || now < g_not_before_ns.load(std::memory_order_relaxed)) return false;
  // If it does not help because all cores are busy, it is tried less and less often.
  const std::uint64_t pause = g_pause_ns.load(std::memory_order_relaxed);
  g_pause_ns.store(std::min(2 * pause, kLongestPauseNs), std::memory_order_relaxed);
  g_not_before_ns.store(now + pause, std::memory_order_relaxed);
  g_shared.store(0, std::memory_order_relaxed);
  return true;
}

// Moves the calling thread to another core that it may run on, if there is one. Its affinity mask
// is the same afterwards.
void step_aside() {
  cpu_set_t all;
  if (pthread_getaffinity_np(pthread_self(), sizeof all, &all) != 0) return;
  cpu_set_t others = all;
  if (const int here = sched_getcpu(); here >= 0) CPU_CLR(here, &others);
  if (CPU_COUNT(&others) == 0 || pthread_setaffinity_np(pthread_self(), sizeof others, &others) != 0) return;
  pthread_setaffinity_np(pthread_self(), sizeof all, &all);
}

}  // namespace

void expect_crowd(std::uint32_t pes, std::uint32_t cores) {
  const bool crowded = pes > cores;
  g_roomy = !crowded;
  g_crowd.store(crowded ? kMostLevel : 0, std::memory_order_relaxed);
  const std::uint64_t shares = pes / std::max(cores, 1U);
  g_longest_nap_ns = std::clamp(shares * kNapPerShareNs, kLongestNapNs, kLongestCrowdedNapNs);
}

std::uint32_t PollPatience::first_spins() {
  return g_crowd.load(std::memory_order_relaxed) != 0 ? kFewSpins : kSpins;
}

bool PollPatience::give_way() {
  looks_ = spins_;
  if (heddle_worker_progress(worker_) > 0) {
    looks_ = 0;
    since_ns_ = 0;
    return ++moves_ % kManyMoves == 0;
  }
  const std::uint64_t before = now_ns();
  if (since_ns_ == 0) since_ns_ = before;
  const std::uint64_t waited = before - since_ns_;
  const bool strangers = before < g_strangers_until_ns.load(std::memory_order_relaxed);
  if (strangers && waited < kStrangerSpinNs) return false;
  if (!strangers && waited < kBeforeNapsNs) {
    sched_yield();
    const std::uint64_t now = now_ns();
    learn(now - before);
    // A yield to a thread that computes lasts until its time slice is over.
    if (now - before >= kSliceNs && g_roomy) {
      g_strangers_until_ns.store(now + kStrangersNs, std::memory_order_relaxed);
    }
    if (should_step_aside(now - before, now)) step_aside();
    return false;
  }
  // Meanwhile the engine's helpers answer messages. A store into the awaited word is noticed late,
  // by at most a sixteenth of the time waited.
  const auto nap = static_cast<long>(std::clamp(waited / kNapShare, kShortestNapNs, g_longest_nap_ns));
  const timespec length{0, nap};
  ::nanosleep(&length, nullptr);
  return true;
}

void take_what_came(heddle_worker worker) {
  for (int i = 0; i < kMostMoves && heddle_worker_progress(worker) > 0; ++i) {
  }
}

bool comes_true(const std::function<bool()>& condition) {
  const std::uint64_t until = now_ns() + kSecondNs;
  const timespec nap{0, static_cast<long>(kLongestNapNs)};
  while (!condition()) {
    if (now_ns() > until) return false;
    ::nanosleep(&nap, nullptr);
  }
  return true;
}

void awaits(heddle_wait_facts& facts, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(facts.text, sizeof facts.text, format, arguments);
  va_end(arguments);
}

namespace {

bool g_ignored = false;           // SHMEM_DEATHS=ignore; written before anybody waits
std::atomic<int> g_dead{-1};      // the first seen. Relaxed: a miss leads to another look
std::atomic<unsigned> g_turn{0};  // the PE that the next call looks at first. Relaxed: likewise

constexpr int kLooks = 64;
constexpr unsigned kTests = 64;

}  // namespace

void read_deaths(Call call) {
  const char* text = std::getenv("SHMEM_DEATHS");
  if (text == nullptr || std::strcmp(text, "end") == 0) return;
  if (std::strcmp(text, "ignore") != 0) fail(call, "SHMEM_DEATHS is \"%s\": it is end or ignore", text);
  g_ignored = true;
}

bool has_died(int pe) {
  return heddle_context_peer_status(g_state.job, static_cast<std::uint32_t>(pe)) == HEDDLE_ERR_PEER_FAILED;
}

bool sees_death() {
  if (g_dead.load(std::memory_order_relaxed) >= 0) return true;
  if (g_state.n_pes <= 1) return false;
  const auto n = static_cast<unsigned>(g_state.n_pes);
  const unsigned looks = std::min<unsigned>(kLooks, n);
  const unsigned from = g_turn.fetch_add(looks, std::memory_order_relaxed);
  for (unsigned i = 0; i < looks; ++i) {
    const auto pe = static_cast<int>((from + i) % n);
    if (pe == g_state.my_pe || !has_died(pe)) continue;
    g_dead.store(pe, std::memory_order_relaxed);
    return true;
  }
  return false;
}

bool sees_death_in_tests() {
  // initial-exec: accessed without a function call. Libraries that are linked may use it.
  static thread_local unsigned t_tests [[gnu::tls_model("initial-exec")]] = 0;
  static thread_local bool t_seen [[gnu::tls_model("initial-exec")]] = false;
  if (++t_tests % kTests != 0 || !sees_death()) return false;
  return std::exchange(t_seen, true);
}

void fail_by_death(Call call, int pe) {
  const std::string text = heddle_last_error();
  const bool heard = comes_true([=] { return pe >= 0 ? has_died(pe) : sees_death(); });
  if (pe >= 0) fail(call, heard ? "PE %d has died" : "PE %d cannot be reached any more", pe);
  if (heard) fail(call, "PE %d has died", g_dead.load(std::memory_order_relaxed));
  fail(call, "a PE cannot be reached any more: %s", in_words_of_shmem(text).c_str());
}

void end_if_in_vain(Call call, heddle_tell_wait tell, void* arg, int dead) {
  heddle_wait_facts facts{};
  facts.size = sizeof facts;
  facts.rank = HEDDLE_ANY;
  tell(arg, &facts);
  const int first = g_dead.load(std::memory_order_relaxed);
  switch (facts.cause) {
    case HEDDLE_WAIT_COLLECTIVE:
      // If all PEs that this one waits for live, a PE that waits for the dead one finds that out.
      if (dead >= 0) fail(call, "PE %d has died, and has not come to this call", dead);
      return;
    case HEDDLE_WAIT_LOCK:
      if (dead >= 0) fail(call, "PE %d has died, and holds %s", dead, facts.tag);
      if (!g_ignored) fail(call, "PE %d has died, and this PE waits: %s", first, facts.text);
      return;
    case HEDDLE_WAIT_WORD:
      if (g_ignored) return;
      fail(call, "PE %d has died, and this PE waits for %s, which any PE may write (SHMEM_DEATHS=ignore: it goes on)",
           first, facts.text);
    default:  // the engine ends it
      return;
  }
}

}  // namespace heddle::shmem
