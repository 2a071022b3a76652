#include "tofu/emulator/api.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "tofu/emulator/report.hpp"
#include "tofu/emulator/settings.hpp"

namespace tofu_emulator {

std::array<Handle, kHandles> all_handles;

Handle* new_handle(const VcqPlace& place) {
  static std::array<std::array<CqUser, kCqs>, kTnis> users;
  std::size_t index = 1;
  while (all_handles[index].number.load(std::memory_order_relaxed) != 0) ++index;
  Handle& handle = all_handles[index];
  handle.place = place;
  handle.user = &users[place.tni][place.cq];
  return &handle;
}

int no_handle(utofu_vcq_hdl_t number) {
  for (const Handle& handle : all_handles) {
    if (handle.number.load(std::memory_order_relaxed) == 0 || handle.vcq.id != number) continue;
    broken_rule("%s is an id, for peers to name it by: its calls take the handle that utofu_create_vcq gave",
                handle.encoder.machine->name_of(number).text);
  }
  return failed(UTOFU_ERR_INVALID_VCQ_HDL);
}

utofu_vcq_hdl_t publish(Handle* handle) {
  static std::uint64_t generation = 0x51A;  // so that a handle does not look like a small number
  const auto index = static_cast<std::size_t>(handle - all_handles.data());
  const utofu_vcq_hdl_t number = ++generation * kHandles + index;
  handle->number.store(number, std::memory_order_relaxed);
  return number;
}

void free_handle(Handle* handle) {
  handle->number.store(0, std::memory_order_relaxed);
}

void guard_all_handles() {
  for (Handle& handle : all_handles) handle.guarded = true;
}

bool InCall::enter(Handle& handle) {
  Callers::check();
  if (handle.thread_safe) handle.user->lock.lock();
  if (!handle.strict) return false;
  std::uint32_t other = 0;
  const bool noted =
      handle.user->thread.compare_exchange_strong(other, Callers::this_thread(), std::memory_order_acquire);
  if (!noted) {
    broken_rule(
        "threads %u and %u are in calls on TNI %u CQ %u at once; %s %s: lock, or one VCQ_FLAG_EXCLUSIVE for "
        "each thread",
        other, Callers::this_thread(), handle.place.tni, handle.place.cq,
        handle.encoder.machine->name_of(handle.vcq.id).text,
        handle.thread_safe ? "is thread-safe, but shares its CQ with one that is not" : "is not thread-safe");
  }
  return noted;
}

void InCall::leave(Handle& handle, bool noted) {
  if (noted) handle.user->thread.store(0, std::memory_order_release);
  if (handle.thread_safe) handle.user->lock.unlock();
}

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

void Callers::watch(const EmulatorSettings& settings) {
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
