#include "tofu/emulator/handles.hpp"

#include "tofu/emulator/callers.hpp"
#include "tofu/emulator/last_error.hpp"
#include "tofu/emulator/report.hpp"

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

}  // namespace tofu_emulator
