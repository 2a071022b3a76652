// Memory fences by purpose. ThreadSanitizer does not understand fences, so its builds get an
// equivalent it does.
#pragma once

#include <atomic>

namespace heddle::base {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// All earlier loads and stores are visible to all threads before any later load or store.
inline void full_fence() {
  if constexpr (kThreadSanitizer) {
    static thread_local std::atomic<int> word{0};
    word.fetch_add(1, std::memory_order_seq_cst);
  } else {
#if defined(__x86_64__)
    // cheaper than mfence; orders normal memory just as well
    asm volatile("lock; orl $0, -8(%%rsp)" ::: "memory", "cc");
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }
}

}  // namespace heddle::base
