// The transport for Tofu (Fugaku, FX1000), through the uTofu library or its emulator.
#pragma once

#include "transport/transport.hpp"

namespace heddle::transport::utofu {

base::Result<std::unique_ptr<Transport>> open(bootstrap::Bootstrap& bootstrap, const base::Environment& environment);
// The value of HEDDLE_UTOFU_SINGLE_THREAD.
bool one_thread(const base::Environment& environment);

}  // namespace heddle::transport::utofu
