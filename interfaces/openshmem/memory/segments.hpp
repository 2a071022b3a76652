// Creates and releases the symmetric segments of the job.
#pragma once

#include <cstddef>
#include <cstdint>

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
heddle_status meet(const SymmetricSegment& segment, int world);
// This process can, or will, load and store that PE's heap.
bool is_near(int world);
// To be called after the last operation of every PE.
void close_segments(Call call);

// The static data of the executable as symmetric memory: its writable segment, .data and .bss,
// without what the loader made read-only (RELRO).
//
// move_to() maps pages of a Heddle region, which peers can map, at the addresses of the program's
// variables. From then on a peer's loads and stores reach the variables themselves, and no other
// code needs to know of it.

// Page-aligned. bytes 0: the executable has no static data, or it was not found.
struct StaticData {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  // Distinguishes executables: a hash of the range relative to the load address and of the build
  // ID.
  std::uint64_t identity = 0;
};
StaticData find_static_data();

// Copies the data into `region` (as long as the data, page-aligned, a shared mapping), then maps
// the region's pages over the data. False: this system cannot do it; nothing has changed. No other
// thread of the program may write its variables meanwhile. Until move_back(), a child of fork()
// gets the data as private memory, with the values at the fork.
bool move_to(std::byte* region, const StaticData& data);
// Makes the data private memory again, with its current values. Ends the process if there is no
// memory for it.
void move_back();

}  // namespace heddle::shmem::memory
