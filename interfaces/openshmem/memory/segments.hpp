// Creates and releases the symmetric segments of the job.
#pragma once

#include <cstddef>

#include "openshmem/state.hpp"

namespace heddle::shmem::memory {

// On every PE the heap begins at a multiple of this, so an aligned offset gives an aligned
// address.
inline constexpr std::size_t kHeapAlignment = std::size_t{8} << 20U;

// Collective. Fills g_state.heap, with `heap_bytes` (a multiple of the page) on every PE, and
// g_state.statics.
void open_segments(Call call, std::size_t heap_bytes);
// Finds out, once, where this process can load and store that PE's part of the segment. In small
// jobs that is known from the beginning. In large ones it is done at the first access, since few
// programs access all PEs, and each takes time and a descriptor. It may wait for the launcher. Any
// thread. DONE, UNSUPPORTED: it is known; else it is asked anew at the next call.
heddle_status meet(const Segment& segment, int world);
// This process can, or will, load and store that PE's heap.
bool is_near(int world);
// To be called after the last operation of every PE.
void close_segments(Call call);

}  // namespace heddle::shmem::memory
