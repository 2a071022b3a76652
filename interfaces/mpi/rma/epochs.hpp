// What the calls that begin and end epochs share.
#pragma once

#include "mpi/rma/win.hpp"

namespace heddle::mpi {

// What the calls allocate memory for; see guarded().
inline constexpr const char* kForEpoch = "what the epoch needs";

// `given`: the call's argument assert; `allowed`: the bits that it takes.
int check_assertion(int given, int allowed);

}  // namespace heddle::mpi
