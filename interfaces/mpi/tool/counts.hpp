// Performance variables: the engine's counts of this process's workers, added up.
#pragma once

#include <cstddef>

namespace heddle::mpi::tool {

std::size_t number_of_counts();

// The job's workers are about to close: what they have counted is kept, so that the variables do
// not fall.
void keep_counts();

}  // namespace heddle::mpi::tool
