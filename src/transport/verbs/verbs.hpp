// InfiniBand and RoCE, by the adapters themselves. See README.md.
#pragma once

#include "transport/transport.hpp"

namespace heddle::transport::verbs {

// CONFIG: there is no libibverbs, or no adapter with a port that is up, or this library was built
// without it.
base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment);
// Whether its library and an adapter are there; the same errors.
base::Status probe(const base::Environment& environment);

}  // namespace heddle::transport::verbs
