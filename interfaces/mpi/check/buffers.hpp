// The buffer of a nonblocking send must not be written to before the send is complete. So a
// checksum of its contents is taken when the send begins and when it ends. This works for any
// memory. A write is reported when the send is completed.
#pragma once

#include "mpi/messages/request.hpp"

namespace heddle::mpi {

// With checks: the send begins.
void sum_up(Request& request);
// With checks: it has ended. MPI_SUCCESS, or an error's class if the buffer has changed.
int check_unchanged(const Request& request);

}  // namespace heddle::mpi
