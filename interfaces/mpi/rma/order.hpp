// Memory fences and pauses. ThreadSanitizer does not understand fences, so its builds use atomic
// read-modify-writes.
#pragma once

#include <atomic>

namespace heddle::mpi {

// All earlier loads and stores are visible to all before any later load or store.
inline void full_fence() {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<int> word{0};
  word.fetch_add(1, std::memory_order_seq_cst);
#elif defined(__x86_64__)
  // cheaper than mfence, with the same order for normal memory
  asm volatile("lock; orl $0, -8(%%rsp)" ::: "memory", "cc");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace heddle::mpi
