// Replaces the other files of this folder if libfabric's headers were not found, or not wanted,
// when this library was built.
#include "transport/ofi/ofi.hpp"

namespace heddle::transport::ofi {

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap&, const base::Environment& environment) {
  return probe(environment);
}

base::Status probe(const base::Environment&) {
  return base::fail(HEDDLE_ERR_CONFIG,
                    "this Heddle was built without the ofi transport; build it with -DHEDDLE_OFI=ON where libfabric is "
                    "installed, or choose another HEDDLE_TRANSPORT");
}

base::Status probe_own(const base::Environment& environment) {
  return probe(environment);
}

}  // namespace heddle::transport::ofi
