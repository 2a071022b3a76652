// A job that a foreign launcher has started. Rank 0 hosts the broker that `heddle run` would have;
// the launcher only gives the others rank 0's contact, and ends the job if a rank aborts it. See
// docs/decisions/0031-foreign-launchers.md.
#pragma once

#include <functional>
#include <memory>

#include "base/environment.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/hosted/launcher.hpp"

namespace heddle::bootstrap::hosted {

// Opens the launcher; called on the thread that makes all its later calls too.
using OpenLauncher = std::function<base::Result<std::unique_ptr<Launcher>>()>;

// Joins; blocks until all ranks have. If rank 0 dies, every rank counts all others as failed.
// Errors: those of the launcher; BOOTSTRAP (rank 0 cannot be reached, or refuses), VERSION,
// PEER_FAILED (a rank died while the job met), SYSTEM.
base::Result<std::unique_ptr<Bootstrap>> open(const OpenLauncher& open_launcher, const base::Environment& environment);

}  // namespace heddle::bootstrap::hosted
