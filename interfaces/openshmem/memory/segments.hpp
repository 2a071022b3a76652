// Makes the symmetric segments of the job, and undoes them.
#pragma once

#include <cstddef>

#include "openshmem/state.hpp"

namespace heddle::shmem::memory {

// The heap begins at a multiple of this on every PE, so that what is aligned in the heap is aligned
// in memory.
inline constexpr std::size_t kHeapAlignment = std::size_t{8} << 20U;

// Collective. Fills g_state.heap, with `heap_bytes` (a multiple of the page) on every PE, and
// g_state.statics.
void open_segments(Call call, std::size_t heap_bytes);
// After the last operation of every PE.
void close_segments(Call call);

}  // namespace heddle::shmem::memory
