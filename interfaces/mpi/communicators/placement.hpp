// Finds the members of a communicator that are on one node, or share a resource of it: for
// MPI_Comm_split_type.
#pragma once

#include "mpi/communicators/comm.hpp"

namespace heddle::mpi {

// The members of one colour make a communicator. Collective. MPI_UNDEFINED: this process is in
// none.
int colour_of_type(Comm& comm, int split_type, const Info& hints, int* colour);

}  // namespace heddle::mpi
