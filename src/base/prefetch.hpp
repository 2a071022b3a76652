// Telling the cache what comes next.
#pragma once

namespace heddle::base {

// Begins to own the line of `address`, which is going to be written; no address is wrong. On x86
// the compiler's prefetch only reads unless it is told of a younger processor; those without this
// instruction take it for a no-operation.
inline void prefetch_for_writing(const void* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace heddle::base
