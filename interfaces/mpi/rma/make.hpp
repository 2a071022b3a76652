// Windows in the making, and how they end.
#pragma once

#include <cstddef>
#include <cstdint>

#include <heddle/heddle.h>
#include "mpi/core/info.hpp"
#include "mpi/rma/win.hpp"

namespace heddle::mpi {

// What a rank tells the others about its part of a window.
struct WindowPart {
  std::int32_t code = MPI_SUCCESS;  // why it has none
  std::uint32_t number = 0;         // of the window there
  std::uint64_t bytes = 0;
  std::int64_t unit = 1;
  std::uint64_t address = 0;
  std::uint64_t offset = 0;          // of the memory in its region
  std::uint64_t control_offset = 0;  // of the control block in its region
  std::uint8_t region_bytes = 0;     // packed; 0: no memory
  std::uint8_t apart = 0;            // the hint alloc_shared_noncontig; rank 0's counts
  std::uint8_t control_bytes = 0;    // packed; 0: the control block is in the memory's region
  std::byte region[HEDDLE_PACKED_REGION_BYTES] = {};
  std::byte control[HEDDLE_PACKED_REGION_BYTES] = {};
};

// A window of the communicator's members without memory. Collective.
int begin_window(Comm& parent, const Info& hints, int flavor, Win** made);
// All parts by rank.
int exchange_parts(Win& win, const WindowPart& mine, std::vector<WindowPart>* all);
// Finds out whether all ranks have come here without an error; `code` is this rank's.
int agree(Win& win, int code);
// Waits until all ranks have come here. Makes progress meanwhile.
int barrier(Win& win);
// Called before destroy() if the ranks could not meet because one has died: others may still use
// memory of this rank that they have mapped. Memory that the library allocated then stays until the
// job is left.
void keep_memory(Win& win);
// Frees all that the window has. No rank uses it any more.
void destroy(Win* win);

// Memory that only the window has: a region of `bytes` bytes, zeroed.
int allocate_region(std::size_t bytes, heddle_region* region, std::byte** address);
int pack_region(heddle_region region, std::byte* packed, std::uint8_t* bytes);

// Memory of MPI_Alloc_mem. It lies where peers can map it if there is room, so that windows made of
// it are as fast as allocated ones.

inline constexpr std::size_t kPageBytes = 4096;

// The region that has these bytes, and where in it they begin. False: none of MPI_Alloc_mem.
bool find_allocated(const void* base, std::size_t bytes, heddle_region* region, std::uint64_t* offset);
// The alignment that the key mpi_minimum_memory_alignment asks for: a power of two, at least
// `least`.
std::size_t wanted_alignment(const Info& info, std::size_t least);

// Windows of memory that all members load and store: one region of rank 0 with all parts, which all
// map.

// Makes it, once the parts' lengths are known. Collective.
int open_shared(Win& win, const std::vector<WindowPart>& parts);

// Dynamic windows: memory that its owner attaches and detaches. Another rank asks the owner where
// an address lies, and keeps the answer until the owner's version shows that something was
// detached.

// Finds out whether the rank has detached memory since the last call, and if so forgets what was
// known of its memory. Called before the addresses of an operation are resolved.
int refresh_known(Win& win, int rank);
// Finds where the memory at an address lies. *bytes: before the call, the number of bytes wanted;
// after it, how many of them the attached piece has, at least one. The rest may be in the next
// piece.
int resolve(Win& win, int rank, std::uint64_t address, std::uint64_t* bytes, heddle_remote* place);
// This rank has attached the bytes, in one piece or in several side by side.
bool is_attached(Win& win, std::uint64_t address, std::uint64_t bytes);
// When the window is freed.
void detach_all(Win& win);

}  // namespace heddle::mpi
