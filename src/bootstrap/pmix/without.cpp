// Takes the place of pmix.cpp where Heddle is built without PMIx's headers.
#include <cstdlib>

#include "bootstrap/pmix/pmix.hpp"

namespace heddle::bootstrap::pmix {

bool started_by_launcher() {
  return std::getenv("PMIX_NAMESPACE") != nullptr && std::getenv("PMIX_RANK") != nullptr;
}

base::Result<std::unique_ptr<Bootstrap>> open(const base::Environment&) {
  return base::fail(
      HEDDLE_ERR_BOOTSTRAP,
      "this process is to join by PMIx (mpirun, prterun, srun --mpi=pmix), and this Heddle was built without it: "
      "install libpmix-dev and build anew, or start with `heddle run`, mpiexec.hydra or srun --mpi=pmi2, or set "
      "HEDDLE_BOOTSTRAP=single for jobs of one");
}

base::Result<std::string> library_version() {
  return base::fail(HEDDLE_ERR_BOOTSTRAP, "this Heddle was built without PMIx; install libpmix-dev and build anew");
}

}  // namespace heddle::bootstrap::pmix
