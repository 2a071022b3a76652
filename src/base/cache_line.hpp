// Sizes of the memory: cache lines, pages, objects that have lines of their own, prefetching.
#pragma once

#include <cstddef>
#include <new>

namespace heddle::base {

// The alignment that keeps two objects on separate cache lines. 64 bytes on x86 (and most others),
// 256 on A64FX, the processor of Fugaku; generic aarch64 builds take the larger one.
#if defined(__aarch64__)
inline constexpr std::size_t kCacheLine = 256;
#else
inline constexpr std::size_t kCacheLine = 64;
#endif

// Page sizes: the largest possible one, for alignments that the compiler has to know. sysconf gives
// the actual size.

// 64 KiB on many aarch64 machines, Fugaku among them. Elsewhere not more than the actual page:
// valgrind does not read the symbols of libraries that are aligned to more than a page.
#if defined(__aarch64__)
inline constexpr std::size_t kLargestPage = 65536;
#else
inline constexpr std::size_t kLargestPage = 4096;
#endif

// An allocator for memory that one worker's threads write: it gives whole cache lines, so that
// neighbouring allocations of other workers are in other lines.
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

// Prefetch into the cache.

// Begins to acquire the line of `address` for writing; any address is allowed. On x86 the
// compiler's prefetch only acquires the line for reading unless the build targets a newer
// processor; processors without prefetchw treat it as a no-operation.
inline void prefetch_for_writing(const void* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace heddle::base
