// Other machines, through UCX: InfiniBand, RoCE, TCP, and whatever else its library reaches. See
// README.md.
#pragma once

#include "transport/transport.hpp"

namespace heddle::transport::ucx {

// CONFIG: there is no UCX library, or this one was built without it.
base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment);
// Whether its library is there; the same errors.
base::Status probe(const base::Environment& environment);

}  // namespace heddle::transport::ucx
