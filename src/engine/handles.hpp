// From the 64-bit handles of the C API to objects. See docs/decisions/0001.
//
// A handle is [type: 4 bits | generation: 40 bits | index: 20 bits]. find() masks the index, so that no value, however wrong,
// leads outside the table, and compares the whole handle with the entry, so that closed, foreign and invented handles are told
// apart from live ones by one comparison. Handles are never used twice.
//
// The table is the only process-wide state of the library: a C handle must be found without a context. The kernel wipes it
// in a child of fork() (MADV_WIPEONFORK), which makes every inherited handle a closed one there at no cost here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heddle::engine {

enum class HandleType : std::uint64_t { context = 1, worker, region, remote_region, counter, inproc_job };

inline constexpr std::uint64_t kHandleIndexBits = 20;
inline constexpr std::size_t kHandles = std::size_t{1} << kHandleIndexBits;
inline constexpr std::uint64_t kHandleTypeShift = 60;

// A plain word used through atomic_ref, not a std::atomic: clang would run a million constructors to make the table a
// constant, and gives up.
struct HandleEntry {
  alignas(std::atomic_ref<std::uint64_t>::required_alignment)
      std::uint64_t id;  // 0: free. Release when set; partner: the acquire load in find_handle
  void* object;
};
extern HandleEntry g_handles[kHandles];

// Null: not a live handle of this type.
template <class T>
inline T* find_handle(std::uint64_t id) {
  HandleEntry& entry = g_handles[id & (kHandles - 1)];
  if (std::atomic_ref(entry.id).load(std::memory_order_acquire) != id ||
      id >> kHandleTypeShift != static_cast<std::uint64_t>(T::kType)) {
    return nullptr;
  }
  return static_cast<T*>(entry.object);
}

// 0: the table is full.
std::uint64_t open_handle(HandleType type, void* object);
void close_handle(std::uint64_t id);

}  // namespace heddle::engine
