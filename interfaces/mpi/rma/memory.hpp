// Memory of MPI_Alloc_mem. It lies where peers can map it if there is room, so that windows made of
// it are as fast as allocated ones.
#pragma once

#include <heddle/heddle.h>

#include <cstddef>
#include <cstdint>

#include "mpi/core/info.hpp"

namespace heddle::mpi {

inline constexpr std::size_t kPageBytes = 4096;

// The region that has these bytes, and where in it they begin. False: none of MPI_Alloc_mem.
bool find_allocated(const void* base, std::size_t bytes, heddle_region* region, std::uint64_t* offset);
// The alignment that the key mpi_minimum_memory_alignment asks for: a power of two, at least
// `least`.
std::size_t wanted_alignment(const Info& info, std::size_t least);

}  // namespace heddle::mpi
