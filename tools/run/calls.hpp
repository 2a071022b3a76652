// `heddle run --trace`: the libraries that show the ranks' calls of MPI and OpenSHMEM by name
// (observe/calls).
#pragma once

#include "tools/run/options.hpp"

namespace heddle::tools::run {

// The ranks load these libraries before all others, behind those that the user's LD_PRELOAD names.
// One that is not built or installed is left out. ERR_SYSTEM: LD_PRELOAD cannot name them; the
// ranks run without.
base::Status preload_calls(Options* options);

}  // namespace heddle::tools::run
