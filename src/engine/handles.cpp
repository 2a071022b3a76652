#include "engine/handles.hpp"

#include <sys/mman.h>

#include <mutex>
#include <vector>

namespace heddle::engine {

// In .bss: pages come into being when touched. Page-aligned, so that wiping it touches nothing else.
alignas(4096) constinit HandleEntry g_handles[kHandles]{};

namespace {

// Allocation of entries; cold. Survives a fork with the generations going on, so that a child's new handles differ from
// all that it inherited.
struct Allocator {
  std::mutex mutex;
  std::vector<std::uint64_t> free;
  std::uint64_t next = 1;  // entry 0 stays free: the null handle is never live
  std::uint64_t generation = 0;
  bool wiped_on_fork = false;
};

Allocator& allocator() {
  static Allocator instance;
  return instance;
}

}  // namespace

std::uint64_t open_handle(HandleType type, void* object) {
  Allocator& all = allocator();
  const std::lock_guard lock(all.mutex);
  if (!all.wiped_on_fork) {
    all.wiped_on_fork = madvise(g_handles, sizeof g_handles, MADV_WIPEONFORK) == 0;
  }
  std::uint64_t index = 0;
  if (all.free.capacity() < all.next) all.free.reserve(2 * all.next + 64);  // so that closing never allocates
  if (!all.free.empty()) {
    index = all.free.back();
    all.free.pop_back();
  } else if (all.next < kHandles) {
    index = all.next++;
  } else {
    return 0;
  }
  constexpr std::uint64_t kGenerationMask = (std::uint64_t{1} << (kHandleTypeShift - kHandleIndexBits)) - 1;
  const std::uint64_t generation = ++all.generation & kGenerationMask;
  const std::uint64_t id =
      static_cast<std::uint64_t>(type) << kHandleTypeShift | generation << kHandleIndexBits | index;
  g_handles[index].object = object;
  std::atomic_ref(g_handles[index].id).store(id, std::memory_order_release);
  return id;
}

void close_handle(std::uint64_t id) {
  Allocator& all = allocator();
  const std::lock_guard lock(all.mutex);
  const std::uint64_t index = id & (kHandles - 1);
  HandleEntry& entry = g_handles[index];
  if (id == 0 || std::atomic_ref(entry.id).load(std::memory_order_relaxed) != id) return;
  std::atomic_ref(entry.id).store(0, std::memory_order_release);
  all.free.push_back(index);
}

}  // namespace heddle::engine
