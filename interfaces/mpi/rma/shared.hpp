// Windows of memory that all members load and store: one region of rank 0 with all parts, which all
// map.
#pragma once

#include "mpi/rma/make.hpp"

namespace heddle::mpi {

// Makes it, once the parts' lengths are known. Collective.
int open_shared(Win& win, const std::vector<Part>& parts);

}  // namespace heddle::mpi
