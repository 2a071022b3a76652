// Dynamic windows: memory that its owner attaches and detaches. Another rank asks the owner where
// an address lies, and keeps the answer until the owner's version shows that something was
// detached.
#pragma once

#include "mpi/rma/win.hpp"

namespace heddle::mpi {

// Finds out whether the rank has detached memory since the last call, and if so forgets what was
// known of its memory. Called before the addresses of an operation are resolved.
int refresh_known(Win& win, int rank);
// Finds where the memory at an address lies. *bytes: before the call, the number of bytes wanted;
// after it, how many of them the attached piece has, at least one. The rest may be in the next
// piece.
int resolve(Win& win, int rank, std::uint64_t address, std::uint64_t* bytes, heddle_remote* place);
// This rank has attached the bytes, in one piece or in several side by side.
bool is_attached(Win& win, std::uint64_t address, std::uint64_t bytes);
// When the window is freed.
void detach_all(Win& win);

}  // namespace heddle::mpi
