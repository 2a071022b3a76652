// The standard's representation of data that all machines read, external32: most significant byte
// first, IEEE numbers, and its own sizes of some types (4 bytes of long, 2 of wchar_t, 16 of long
// double).
#pragma once

#include "mpi/types/type.hpp"

namespace heddle::mpi {

// Bytes of one element of it.
MPI_Count external_size(const Layout& layout);
// Converts `count` elements. Error: a value does not fit in the representation.
int pack_external(const void* buffer, MPI_Count count, const Type& type, void* external);
void unpack_external(const void* external, void* buffer, MPI_Count count, const Type& type);

}  // namespace heddle::mpi
