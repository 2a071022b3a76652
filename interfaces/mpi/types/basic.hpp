// The predefined datatypes.
#pragma once

#include "mpi/types/type.hpp"

namespace heddle::mpi {

// The predefined datatype of this handle, which is a constant of the standard.
inline Type* basic_type(MPI_Datatype handle) {
  return &g_basic_types[value_of(handle) - kFirstType];
}

}  // namespace heddle::mpi
