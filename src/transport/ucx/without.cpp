// Replaces the other files of this folder if UCX's headers were not found, or not wanted, when this
// library was built.
#include "transport/ucx/ucx.hpp"

namespace heddle::transport::ucx {

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap&, const base::Environment& environment) {
  return probe(environment);
}

base::Status probe(const base::Environment&) {
  return base::fail(HEDDLE_ERR_CONFIG,
                    "this Heddle was built without the ucx transport; build it with -DHEDDLE_UCX=ON where UCX is "
                    "installed, or choose another HEDDLE_TRANSPORT");
}

}  // namespace heddle::transport::ucx
