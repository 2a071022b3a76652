// Prefetch into the cache.
#pragma once

namespace heddle::base {

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
