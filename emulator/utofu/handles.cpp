#include "utofu/handles.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include "utofu/report.hpp"

namespace tofu_emulator {
namespace {

std::uint32_t this_thread() {
  thread_local const auto number = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  return number;
}

}  // namespace

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

utofu_vcq_hdl_t publish(Handle* handle) {
  static std::uint64_t generation = 0x51A;  // so that a handle looks like no small number
  const auto index = static_cast<std::size_t>(handle - all_handles.data());
  const utofu_vcq_hdl_t number = ++generation * kHandles + index;
  handle->number.store(number, std::memory_order_relaxed);
  return number;
}

void free_handle(Handle* handle) {
  handle->number.store(0, std::memory_order_relaxed);
}

bool InCall::enter(Handle& handle) {
  if (handle.thread_safe) handle.user->lock.lock();
  if (!handle.strict) return false;
  std::uint32_t other = 0;
  const bool noted = handle.user->thread.compare_exchange_strong(other, this_thread(), std::memory_order_acquire);
  if (!noted) {
    broken_rule(
        "threads %u and %u are in calls on TNI %u CQ %u at once; VCQ %016llx %s: lock, or one VCQ_FLAG_EXCLUSIVE for "
        "each thread",
        other, this_thread(), handle.place.tni, handle.place.cq, static_cast<unsigned long long>(handle.vcq.id),
        handle.thread_safe ? "is thread-safe, but shares its CQ with one that is not" : "is not thread-safe");
  }
  return noted;
}

void InCall::leave(Handle& handle, bool noted) {
  if (noted) handle.user->thread.store(0, std::memory_order_release);
  if (handle.thread_safe) handle.user->lock.unlock();
}

}  // namespace tofu_emulator
