// HEDDLE_CHECK=full: finds errors of programs that MPI libraries mostly let pass.
//
//   kinds.hpp       a message of 4-byte integers is received as 8-byte floating-point numbers
//   comparison.hpp  members of a communicator call different collectives, or with other arguments
//   buffers.hpp     the program writes to the buffer of a send that is under way
//   (collective/blocks.cpp)  blocks of one collective overlap
//   leaks.hpp       what the program has not freed when it calls MPI_Finalize
//
// The short paths of calls are closed then, so programs that are not checked pay nothing.
#pragma once

namespace heddle::mpi {

// All ranks of the job are checked. Written when the job is joined, and read by all threads.
extern bool g_checks;

// Whether the environment says so for this process. MPI_SUCCESS, or an error's class if
// HEDDLE_CHECK is none of off, on and full.
int read_checks(bool* wanted);
// Called when the job is joined. `all`: all ranks want the checks. Closes the short paths.
void begin_checks(bool all);

}  // namespace heddle::mpi
