// The objects that the program has made and not freed. MPI_Finalize reports them, in one line for
// each rank.
#pragma once

#include <cstddef>

namespace heddle::mpi {

// With checks: this process has left its communicators.
void tell_leaks();

// Objects of each unit that have handles of the program.
std::size_t live_requests();
std::size_t live_comms();
std::size_t live_windows();
std::size_t live_types();
std::size_t live_groups();
std::size_t live_ops();
std::size_t live_infos();

}  // namespace heddle::mpi
