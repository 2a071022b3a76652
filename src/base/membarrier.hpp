// Asymmetric barriers: the kernel makes other threads pass a full fence, so that the side that runs
// often has none.
//
// The frequent side writes light_fence() between a store and a load; the rare side calls one of the
// two below between its own store and load. Then at least one of them sees the other's store.
// ThreadSanitizer does not know this: what is handed over needs release and acquire on the
// variables as well.
#pragma once

#include <atomic>

namespace heddle::base {

// Costs nothing: the compiler keeps the order, the rare side makes the processor keep it.
inline void light_fence() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// All other threads of this process. Registers the process at the first call of
// membarrier_private_ready(); false: this kernel does not have it, or forbids it.
[[nodiscard]] bool membarrier_private_ready();
// False: it did not happen (only possible if the above said false, or after a fork).
[[nodiscard]] bool membarrier_private();

// All threads of all processes that have said membarrier_shared_ready(), this one included.
// Likewise.
[[nodiscard]] bool membarrier_shared_ready();
[[nodiscard]] bool membarrier_shared();

}  // namespace heddle::base
