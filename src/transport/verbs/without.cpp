// Replaces the other files of this folder if the headers of libibverbs were not found, or not
// wanted, when this library was built.
#include "transport/verbs/verbs.hpp"

namespace heddle::transport::verbs {

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap&, const base::Environment& environment) {
  return probe(environment);
}

base::Status probe(const base::Environment&) {
  return base::fail(HEDDLE_ERR_CONFIG,
                    "this Heddle was built without the verbs transport; build it with -DHEDDLE_VERBS=ON where "
                    "libibverbs is installed, or choose another HEDDLE_TRANSPORT");
}

}  // namespace heddle::transport::verbs
