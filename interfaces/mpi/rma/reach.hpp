// What an operation reaches at a target, once its arguments are checked.
#pragma once

#include <vector>

#include "mpi/rma/ask.hpp"
#include "mpi/rma/win.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

// Elements of a type at one side of an operation.
struct Side {
  void* buffer = nullptr;
  MPI_Count count = 0;
  Type* type = nullptr;
  [[nodiscard]] MPI_Count bytes() const { return count * type->size; }
};
int read_side(const void* buffer, MPI_Count count, MPI_Datatype datatype, const char* name, Side* side);

struct Reach {
  Win* win = nullptr;
  int rank = MPI_PROC_NULL;
  MPI_Count count = 0;
  Type* type = nullptr;
  std::uint64_t offset = 0;     // from the window's start; an absolute address in a dynamic window
  std::byte* memory = nullptr;  // the target memory, if it is mapped here
  [[nodiscard]] MPI_Count bytes() const { return count * type->size; }
  [[nodiscard]] Far& far() const { return win->far[static_cast<std::size_t>(rank)]; }
};
// Checks the window, the epoch and the range. MPI_PROC_NULL: MPI_SUCCESS with reach->rank ==
// MPI_PROC_NULL.
int read_reach(Win& win, int rank, MPI_Aint disp, MPI_Count count, MPI_Datatype datatype, Reach* reach);

// Checks that an access to the rank is allowed now. After a fence, the first access begins the
// fence's epoch.
int check_epoch(Win& win, int rank);

// Bytes in order: of a buffer from its address on, of a target from the window's start.
struct MemoryBlock {
  std::uint64_t offset;
  std::uint64_t bytes;
};
std::vector<MemoryBlock> blocks_of(MPI_Count count, const Type& type, std::uint64_t offset);
// The same as runs of elements of the type's basic type.
std::vector<Run> runs_of(MPI_Count count, const Type& type, const Type& element, std::uint64_t offset);
// The basic type that it is made of; null: several.
inline const Type* element_of(const Type& type) {
  if (type.element != nullptr) return type.element;
  return type.predefined ? &type : nullptr;
}

}  // namespace heddle::mpi
