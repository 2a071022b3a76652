// The static data of the executable as symmetric memory: its writable segment, .data and .bss,
// without what the loader made read-only (RELRO).
//
// move_to() puts pages of a Heddle region, which peers can map, at the very addresses where the
// program's variables lie: afterwards a peer's loads and stores reach the variables themselves, and
// nothing between needs to know of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::shmem::memory {

// Page-aligned. bytes 0: the executable has none that could be found.
struct StaticData {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  // Tells executables apart: its range relative to where the executable was loaded, and its build
  // identification.
  std::uint64_t identity = 0;
};
StaticData find_static_data();

// Copies the data into `region` (as long as the data, page-aligned, a shared mapping), then maps
// the region's pages over it.
// False: this system cannot; nothing has changed. No other thread of the program may write its
// variables meanwhile. From then on until move_back() a child of fork() gets the data as private
// memory, as it was at the fork.
bool move_to(std::byte* region, const StaticData& data);
// Private memory again, with what the variables hold now. Ends the process if there is no memory
// for it.
void move_back();

}  // namespace heddle::shmem::memory
