// Asymmetric barriers: the kernel makes other threads execute a full fence, so that the side that
// runs often needs none.
//
// The frequent side puts light_fence() between a store and a load; the rare side calls one of the
// two barriers below between its own store and load. Then at least one side sees the other's store.
// ThreadSanitizer does not know this: data that is handed over needs release and acquire on the
// variables as well.
#pragma once

#include <atomic>

namespace heddle::base {

// Costs nothing: the compiler keeps the order; the rare side's barrier makes the processor keep it.
inline void light_fence() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// membarrier_private(): a full fence in all other threads of this process.
// membarrier_private_ready() registers the process; false: this kernel does not have the call, or
// forbids it.
[[nodiscard]] bool membarrier_private_ready();
// False: no barrier happened, and errno says why. After membarrier_private_ready() has said true:
// the kernel has no memory (ENOMEM, though tried again), or a filter of system calls (seccomp) that
// the program has installed since forbids it.
[[nodiscard]] bool membarrier_private();

// The same for all threads of all processes that have called membarrier_shared_ready(), this one
// included.
[[nodiscard]] bool membarrier_shared_ready();
[[nodiscard]] bool membarrier_shared();

}  // namespace heddle::base
