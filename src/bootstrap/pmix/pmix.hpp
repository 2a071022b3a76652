// PMIx: joining, and the mark of the one process that is the rank. It serves jobs started by a
// launcher with PMIx: Open MPI's mpirun, prterun, srun --mpi=pmix. The library is found at run
// time.
#pragma once

#include <string>

#include "base/config.hpp"
#include "base/error.hpp"
#include "bootstrap/bootstrap.hpp"

namespace heddle::bootstrap::pmix {

// PMIX_NAMESPACE and PMIX_RANK are set.
bool started_by_launcher();

// Joins, once per process; blocks until all ranks have. Errors: BOOTSTRAP (Heddle was built without
// PMIx, libpmix.so.2 is not found, the launcher rejects, this process has joined before), STATE
// (another living process has joined as this rank), and those of hosted::open().
base::Result<std::unique_ptr<Bootstrap>> open(const base::Environment& environment);

// The library's name of itself, such as "OpenPMIx 4.2.2 …". Loads it, and asks no launcher.
// BOOTSTRAP: it is not found, or Heddle was built without its header.
base::Result<std::string> library_version();

// Only one process is a rank. A child of a rank inherits the launcher's variables, and without the
// mark would join and wait for the others for ever.

// Marks this process as the rank, as long as it lives: by a local socket whose name says which rank
// of which job, so that the mark ends with the process. Never waits. STATE: another process has the
// mark. Another user's socket of that name is no mark.
base::Status mark_process(const std::string& name_space, const std::string& rank);

}  // namespace heddle::bootstrap::pmix
