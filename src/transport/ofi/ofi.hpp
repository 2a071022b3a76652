// Other machines, through libfabric: Slingshot, EFA, Omni-Path, TCP, and whatever else it has a
// provider for. See README.md.
#pragma once

#include "transport/transport.hpp"

namespace heddle::transport::ofi {

// CONFIG: there is no libfabric, or it has no provider that serves, or this library was built
// without it.
base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment);
// Whether its library and a provider are there; the same errors.
base::Status probe(const base::Environment& environment);
// The same, and this machine has an adapter that libfabric drives and UCX does not: Slingshot, EFA,
// Omni-Path.
base::Status probe_own(const base::Environment& environment);

}  // namespace heddle::transport::ofi
