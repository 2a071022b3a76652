// Jobs started by hydra's mpiexec (MPICH, Intel MPI) and by srun --mpi=pmi2: a socket that the
// process inherits as PMI_FD.
#pragma once

#include "base/environment.hpp"
#include "bootstrap/bootstrap.hpp"

namespace heddle::bootstrap::pmi {

// PMI_FD is set.
bool started_by_launcher();

// Joins, once per process; blocks until all ranks have. Errors: CONFIG (PMI_RANK, PMI_SIZE or
// PMI_FD is missing or not a number), STATE (another living process has joined as this rank), and
// those of hosted::open().
base::Result<std::unique_ptr<Bootstrap>> open(const base::Environment& environment);

}  // namespace heddle::bootstrap::pmi
