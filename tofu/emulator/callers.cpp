#include "tofu/emulator/callers.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "tofu/emulator/handles.hpp"
#include "tofu/emulator/report.hpp"
#include "tofu/emulator/settings.hpp"

namespace tofu_emulator {
namespace {

// All relaxed: they do not depend on each other.
std::atomic<bool> is_child{false};
std::atomic<bool> one_thread{false};
std::atomic<std::uint32_t> the_thread{0};

}  // namespace

std::atomic<bool> Callers::restricted_{false};

std::uint32_t Callers::this_thread() {
  thread_local const auto number = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  return number;
}

void Callers::watch(const Settings& settings) {
  one_thread.store(settings.one_thread, std::memory_order_relaxed);
  if (settings.one_thread) restricted_.store(true, std::memory_order_relaxed);
  static const int registered = ::pthread_atfork(nullptr, nullptr, &in_child);
  if (registered != 0) warn("a child that is forked will not be told that it has no network interfaces");
}

void Callers::in_child() {
  is_child.store(true, std::memory_order_relaxed);
  restricted_.store(true, std::memory_order_relaxed);
  guard_all_handles();
}

void Callers::look() {
  if (is_child.load(std::memory_order_relaxed)) {
    warn(
        "a uTofu function is called in process id %d, which was forked: a child has no network interfaces, and what it "
        "posts would "
        "go nowhere; call uTofu in the parent only, or exec() a program of its own. The child ends",
        static_cast<int>(::getpid()));
    std::abort();  // ends this process only: no process of the job has ended
  }
  if (!one_thread.load(std::memory_order_relaxed)) return;
  std::uint32_t first = 0;
  const std::uint32_t mine = this_thread();
  if (the_thread.compare_exchange_strong(first, mine, std::memory_order_relaxed) || first == mine) return;
  fatal(
      "thread %u calls uTofu, and thread %u did before: with UTOFU_EMU_ONE_THREAD=1 one thread makes all calls, those "
      "that set up "
      "and end included",
      mine, first);
}

}  // namespace tofu_emulator
