// Makes the symmetric segments of the job, and undoes them.
#pragma once

#include <cstddef>

#include "shmem/state.hpp"

namespace heddle::shmem::memory {

// Collective. Fills g_state.heap, with `heap_bytes` (a multiple of the page) on every PE, and g_state.statics.
void open_segments(Call call, std::size_t heap_bytes);
// After the last operation of every PE.
void close_segments(Call call);

}  // namespace heddle::shmem::memory
