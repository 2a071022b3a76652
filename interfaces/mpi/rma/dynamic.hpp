// Dynamic windows: memory that its owner attaches and detaches. Another rank asks the owner where
// an address lies, and keeps the answer until the owner's version shows that something was
// detached.
#pragma once

#include "mpi/rma/win.hpp"

namespace heddle::mpi {

// Asks for what has changed at the rank since the last time: before the addresses of an operation
// are resolved.
int refresh_known(Win& win, int rank);
// Where the memory at an address lies. *bytes: those that are wanted, and then as many of them as
// the attached piece has; the rest may be in the next one, one at least.
int resolve(Win& win, int rank, std::uint64_t address, std::uint64_t* bytes, heddle_remote* place);
// This rank has attached the bytes, in one piece or in several side by side.
bool is_attached(Win& win, std::uint64_t address, std::uint64_t bytes);
// When the window is freed.
void detach_all(Win& win);

}  // namespace heddle::mpi
