// This process's membership in the job. A process joins its launcher's job once, so it stays a
// member between finalize and a later initialize, and leaves when it exits.
#pragma once

#include <cstdint>

#include "lcw/device.hpp"

namespace heddle::for_lcw {

// Joins, or goes on as a member; then agrees with all ranks on the number of the next worker, so
// that device k has the same number everywhere, although ranks may have opened different numbers of
// devices before.
Job* join();
// Waits until all ranks are here. The job stays open until the process exits.
void suspend();

// The number of the next worker; the caller serializes.
std::uint32_t take_worker_number();

}  // namespace heddle::for_lcw
