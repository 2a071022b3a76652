#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/fence.hpp"
#include "base/wait.hpp"
#include "queue/bell.hpp"
#include "queue/handover.hpp"

namespace heddle::queue {

namespace {

// Release after each move, acquire by moves(): a helper that sees the number restores its affinity
// after the move, not before.
std::atomic<std::uint32_t> g_moves{0};

bool is_thread_of_ours(pid_t thread) {
  return ::syscall(SYS_tgkill, ::getpid(), thread, 0) == 0;
}

}  // namespace

bool SystemHandover::barrier_failed() {
  static std::atomic<bool> said{false};
  if (errno == ENOMEM || said.exchange(true, std::memory_order_relaxed)) return false;
  constexpr std::string_view kLine =
      "heddle: membarrier is forbidden now (seccomp?) but was allowed before: only its owner can enter a worker of "
      "one thread, no other thread and no helper; set HEDDLE_SHARING=shared, or forbid it before "
      "heddle_context_join\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kLine.data(), kLine.size());
  return false;
}

[[gnu::cold]] void BellPull::pull() {
  if (looked_at_ != armed_) {
    base::full_fence();
    if (disarmed_by_me(*armed_)) bell_.ring(place_);
    return;
  }
  if (fencing_.disarmed_by_me(*armed_, [] { base::full_fence(); })) bell_.ring(place_);
}

void SystemHandover::relax() {
  base::cpu_relax();
}

// To raise a thread from SCHED_IDLE takes a privilege that ordinary programs lack; to move it takes
// none. The number may be out of date: a helper that has released its claim may have ended since,
// and its number may be another thread's by now. So the claim is read just before, and a number
// that names no thread of this process is left alone.
void SystemHandover::bring(std::uint32_t helper, const std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  if ((helper & kStays) != 0) return;
  const int core = ::sched_getcpu();
  if (core < 0 || core >= CPU_SETSIZE) return;
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(core, &here);
  const auto thread = static_cast<pid_t>(helper);
  if (!is_thread_of_ours(thread) || word.load(std::memory_order_acquire) != expected) return;
  // if this fails, the helper comes by itself, later
  static_cast<void>(::sched_setaffinity(thread, sizeof here, &here));
  g_moves.fetch_add(1, std::memory_order_release);
}

void SystemHandover::fetch(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::uint32_t helper,
                           std::int64_t sleep_ns) {
  bring(helper, *word, expected);
  base::futex_wait(word, expected, sleep_ns, base::FutexScope::process);
}

void SystemHandover::wait(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::uint32_t helper,
                          std::uint32_t round) {
  constexpr std::int64_t kAgainNs = 10'000'000;  // the caller itself may have been moved meanwhile
  if (round > 0) bring(helper, *word, expected);
  base::futex_wait(word, expected, round == 0 ? kPatienceNs : kAgainNs, base::FutexScope::process);
}

std::uint32_t SystemHandover::moves() {
  return g_moves.load(std::memory_order_acquire);
}

void SystemHandover::wake(std::atomic<std::uint32_t>* word) {
  base::futex_wake_all(word, base::FutexScope::process);
}

void SystemFutex::wait(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::int64_t timeout_ns) {
  base::futex_wait(word, expected, timeout_ns, base::FutexScope::process);
}

void SystemFutex::wake_one(std::atomic<std::uint32_t>* word) {
  base::futex_wake(word, 1, base::FutexScope::process);
}

}  // namespace heddle::queue
