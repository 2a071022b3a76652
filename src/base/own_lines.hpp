// An allocator for memory that one worker's threads write: it gives whole cache lines, so that
// neighbouring allocations of other workers are in other lines.
#pragma once

#include <cstddef>
#include <new>

#include "base/cache_line.hpp"

namespace heddle::base {

template <class T>
struct OwnLines {
  using value_type = T;

  OwnLines() = default;
  template <class Other>
  OwnLines(const OwnLines<Other>&) {}  // NOLINT(google-explicit-constructor): as containers rebind it

  [[nodiscard]] T* allocate(std::size_t count) {
    const std::size_t lines = (count * sizeof(T) + kCacheLine - 1) / kCacheLine;
    return static_cast<T*>(::operator new(lines * kCacheLine, kAlignment));
  }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, kAlignment); }
  bool operator==(const OwnLines&) const = default;

 private:
  static constexpr std::align_val_t kAlignment{alignof(T) > kCacheLine ? alignof(T) : kCacheLine};
};

}  // namespace heddle::base
