// The shm transport: processes of one machine through shared memory.
#pragma once

#include <memory>

#include "transport/transport.hpp"

namespace heddle::transport::shm {

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment);

}  // namespace heddle::transport::shm
