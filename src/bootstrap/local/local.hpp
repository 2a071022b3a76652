// The rank's side of `heddle run`: a job of processes on one machine, brought together by their
// launcher.
//
// The launcher gives each process one end of a socket pair (HEDDLE_LOCAL_FD) with its rank and the
// size of the job (HEDDLE_LOCAL_RANK, HEDDLE_LOCAL_SIZE); nothing has a name in a file system.
// frame.hpp says what passes over it.
#pragma once

#include "bootstrap/bootstrap.hpp"

namespace heddle::bootstrap::local {

inline constexpr const char* kFdVariable = "HEDDLE_LOCAL_FD";
inline constexpr const char* kRankVariable = "HEDDLE_LOCAL_RANK";
inline constexpr const char* kSizeVariable = "HEDDLE_LOCAL_SIZE";

// True if any of the three variables is set: then this process is meant to be a rank, and open()
// says what is wrong.
bool started_by_launcher();

// Joins; blocks until the launcher has answered. Once per process, whatever the outcome.
// A rank whose launcher goes away is ended: it prints one line and exits. Errors: CONFIG (variables
// missing or not numbers), BOOTSTRAP (the descriptor is not the launcher's, the process has joined
// before, the launcher closed the connection), STATE (another living process that has the same
// descriptor has joined with it, and goes on undisturbed), VERSION, SYSTEM.
base::Result<std::unique_ptr<Bootstrap>> open();

}  // namespace heddle::bootstrap::local
