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
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "queue/locks.hpp"
#include "tap/debug_view.hpp"

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

// Objects of one kind that a context owns, each with the handle under which the C API knows it.
//
// Any thread.
template <class T>
class Owned {
 public:
  ~Owned() {
    for (auto& [object, entry] : entries_) close_handle(entry.id);
  }
  // On an error, including exceptions, the object is destroyed and no handle is open.
  // prepare(object, handle) runs before another thread can find the object.
  template <class Prepare = void (*)(T&, std::uint64_t)>
  base::Result<T*> add(std::unique_ptr<T> object, Prepare&& prepare = [](T&, std::uint64_t) {}) {
    T* raw = object.get();
    const std::lock_guard lock(mutex_);
    const auto entry = entries_.emplace(raw, Entry{0, std::move(object)}).first;
    try {
      entry->second.id = open_handle(T::kType, raw);
    } catch (...) {
      entries_.erase(entry);
      throw;
    }
    if (entry->second.id != 0) {
      prepare(*raw, entry->second.id);
      return raw;
    }
    entries_.erase(entry);
    return base::fail(HEDDLE_ERR_NO_MEMORY, "all %zu handles of this kind are open in this process; close some",
                      handle_entries(T::kType) - 1);
  }
  // The handle is closed first, so that no thread finds the object any more.
  std::unique_ptr<T> remove(const T* object) noexcept {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(object);
    if (it == entries_.end()) return nullptr;
    close_handle(it->second.id);
    std::unique_ptr<T> taken = std::move(it->second.object);
    entries_.erase(it);
    return taken;
  }
  std::unique_ptr<T> remove_any() noexcept { return remove(any()); }
  // Any one of them; null: there is none.
  [[nodiscard]] T* any() const noexcept {
    const std::lock_guard lock(mutex_);
    return entries_.empty() ? nullptr : entries_.begin()->second.object.get();
  }
  [[nodiscard]] std::uint64_t handle(const T* object) const {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(object);
    return it == entries_.end() ? 0 : it->second.id;
  }
  // Runs function(object) for each object; none of them is destroyed meanwhile.
  template <class Function>
  void for_each(Function&& function) {
    const std::lock_guard lock(mutex_);
    for (auto& [object, entry] : entries_) function(*entry.object);
  }
  [[nodiscard]] std::vector<T*> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<T*> objects;
    for (const auto& [object, entry] : entries_) objects.push_back(entry.object.get());
    return objects;
  }

 private:
  struct Entry {
    std::uint64_t id;
    std::unique_ptr<T> object;
  };
  mutable queue::FetchingMutex mutex_;
  std::unordered_map<const T*, Entry> entries_;
};

// The place from which a debugger finds what the library knows (tap/debug_view.hpp): the symbol
// heddle_debug_directory, which libheddle.so exports for that alone.

// A context that has joined, until hide_context(). Any thread.
void show_context(tap::DebugContext& context);
void hide_context(tap::DebugContext& context);
// Adds a type of objects of a room above, with their fields. `fields` must stay valid. Any thread.
void show_type(HandleType type, std::span<const tap::DebugField> fields);

}  // namespace heddle::engine
