// Objects of one kind that a context owns, each with the handle under which the C API knows it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "engine/handles.hpp"
#include "queue/locks.hpp"

namespace heddle::engine {

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

}  // namespace heddle::engine
