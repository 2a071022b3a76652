// Only one process is a rank. A child of a rank inherits the launcher's variables, and without the
// mark would join and wait for the others for ever.
#pragma once

#include <string>

#include "base/error.hpp"

namespace heddle::bootstrap::pmix {

// Marks this process as the rank, as long as it lives: by a local socket whose name says which rank
// of which job, so that the mark ends with the process. Never waits. STATE: another process has the
// mark. Another user's socket of that name is no mark.
base::Status mark_process(const std::string& name_space, const std::string& rank);

}  // namespace heddle::bootstrap::pmix
