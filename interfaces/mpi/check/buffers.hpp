// The buffer of a nonblocking send must not be written to before the send is complete: what it
// holds is summed up at both ends of that time. So any memory can be checked, and a write is told
// when the send is completed.
#pragma once

#include "mpi/messages/request.hpp"

namespace heddle::mpi {

// With checks: the send begins.
void sum_up(Request& request);
// With checks: it has ended. MPI_SUCCESS, or an error's class if the buffer has changed.
int check_unchanged(const Request& request);

}  // namespace heddle::mpi
