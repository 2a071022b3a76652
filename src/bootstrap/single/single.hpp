// The job of one: a process that no launcher has started.
#pragma once

#include "bootstrap/bootstrap.hpp"

namespace heddle::bootstrap::single {

// Errors: SYSTEM (no random numbers).
base::Result<std::unique_ptr<Bootstrap>> open();

}  // namespace heddle::bootstrap::single
