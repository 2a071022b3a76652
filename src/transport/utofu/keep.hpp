// What must not be freed while its peers, or its NIC, may still use it.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

namespace heddle::transport::utofu {

// As long as the process: it is never destroyed.
template <class T>
void keep_to_the_end(T object) {
  static std::mutex mutex;
  static auto* const all = new std::vector<T>;
  const std::lock_guard lock(mutex);
  all->push_back(std::move(object));
}

}  // namespace heddle::transport::utofu
