// Requests: the short paths, which the C functions contain. Calls that they do not take go on in
// messages/.
#pragma once

#include <units/requests.hpp>
#include "mpi/messages/request.hpp"

namespace heddle::mpi {

int wait_any_kind(Call call, MPI_Request* request, MPI_Status* status);

inline int wait(Call call, MPI_Request* request, MPI_Status* status) {
  if (request != nullptr && *request == handle_of(&g_sent) && status == MPI_STATUS_IGNORE) [[likely]] {
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
  }
  return wait_any_kind(call, request, status);
}

}  // namespace heddle::mpi
