// Keeps objects that must not be freed while peers, or the NIC, may still use them.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

namespace heddle::transport::utofu {

// Keeps `object` as long as the process: it is never destroyed.
template <class T>
void keep_to_the_end(T object) {
  static std::mutex mutex;
  static auto* const all = new std::vector<T>;
  const std::lock_guard lock(mutex);
  all->push_back(std::move(object));
}

}  // namespace heddle::transport::utofu
