// From the 64-bit handles of the C API to objects. See docs/decisions/0001.
//
// A handle is [type: 4 bits | generation: 36 bits | index: 20 bits | 0: 4 bits], so that the masked
// low bits are the entry's offset in bytes. Each type has a section of the table. find() masks the
// index, so that no value, however wrong, leads outside its section, and compares the whole handle
// with the entry, so that closed, foreign, invented and wrongly typed handles are told apart from
// live ones by one comparison. Handles are never used twice.
//
// The table is the only process-wide state of the library: a C handle must be found without a
// context. The kernel wipes it in a child of fork() (MADV_WIPEONFORK), which makes every inherited
// handle a closed one there at no cost here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heddle::engine {

enum class HandleType : std::uint64_t {
  context = 1,
  worker,
  region,
  remote_region,
  counter,
  inproc_job,
  team,
  collective,
  partitioned
};
inline constexpr HandleType kLastHandleType = HandleType::partitioned;

inline constexpr std::uint64_t kHandleTypeShift = 60;
inline constexpr std::uint64_t kHandleGenerationShift = 24;
inline constexpr std::uint64_t kHandleIndexShift = 4;

// Entries of the section of a type, powers of two. Entry 0 of each is never live, so that the null
// handle finds nothing there.
constexpr std::size_t handle_entries(HandleType type) {
  switch (type) {
    case HandleType::region:
    case HandleType::remote_region:
    case HandleType::counter:
      return std::size_t{1} << 20;
    case HandleType::worker:
    case HandleType::team:
    case HandleType::collective:
    case HandleType::partitioned:
      return std::size_t{1} << 16;
    case HandleType::context:
    case HandleType::inproc_job:
      break;
  }
  return std::size_t{1} << 14;
}
// Entries of the types before it.
constexpr std::size_t handle_section(HandleType type) {
  std::size_t first = 0;
  for (std::uint64_t before = 1; before < static_cast<std::uint64_t>(type); ++before) {
    first += handle_entries(static_cast<HandleType>(before));
  }
  return first;
}
inline constexpr std::size_t kHandleEntries = handle_section(kLastHandleType) + handle_entries(kLastHandleType);

// A plain word used through atomic_ref, not a std::atomic: clang would run millions of constructors
// to make the table a constant, and gives up.
struct HandleEntry {
  alignas(std::atomic_ref<std::uint64_t>::required_alignment)
      std::uint64_t id;  // 0: free. Release when set; partner: the acquire load in find_handle
  void* object;
};
static_assert(sizeof(HandleEntry) == 16, "a handle's low bits are an entry's offset in bytes");
extern HandleEntry g_handles[kHandleEntries];

// Null: not a live handle of this type.
template <class T>
inline T* find_handle(std::uint64_t id) {
  constexpr std::uint64_t kLast = handle_entries(T::kType) - 1;
  HandleEntry& entry = g_handles[handle_section(T::kType) + (id / sizeof(HandleEntry) & kLast)];
  if (std::atomic_ref(entry.id).load(std::memory_order_acquire) != id) return nullptr;
  return static_cast<T*>(entry.object);
}

// 0: handle_entries(type) - 1 of them are open.
std::uint64_t open_handle(HandleType type, void* object);
void close_handle(std::uint64_t id);

}  // namespace heddle::engine
