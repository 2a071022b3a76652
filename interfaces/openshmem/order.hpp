// Memory fences by purpose. ThreadSanitizer does not understand fences, so its builds use atomic
// read-modify-writes.
#pragma once

#include <atomic>

namespace heddle::shmem {

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

// All earlier stores become visible before any later store: shmem_fence. Free on x86.
inline void store_fence() {
  if constexpr (kThreadSanitizer) {
    static std::atomic<int> word{0};
    word.fetch_add(1, std::memory_order_acq_rel);
  } else {
    std::atomic_thread_fence(std::memory_order_release);
  }
}

// All earlier loads and stores are visible to all before any later load or store: shmem_quiet.
inline void full_fence() {
  if constexpr (kThreadSanitizer) {
    static std::atomic<int> word{0};
    word.fetch_add(1, std::memory_order_seq_cst);
  } else {
#if defined(__x86_64__)
    // cheaper than mfence, with the same order for normal memory
    asm volatile("lock; orl $0, -8(%%rsp)" ::: "memory", "cc");
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }
}

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // NOLINT: `yield` is a no-op on the cores that matter; isb really pauses
#endif
}

}  // namespace heddle::shmem
