// Limits set by copying: into mapped memory, through the kernel (CMA), and in and out of a ring.
#pragma once

#include "harness/session.hpp"

namespace heddle::bench::limit {

int run_copies(harness::Session& session);

}  // namespace heddle::bench::limit
