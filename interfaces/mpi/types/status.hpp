// The library's own data in a status, beside the standard's fields.
#pragma once

#include <cstring>

#include "mpi/core/arguments.hpp"

namespace heddle::mpi {

// MPI_internal[0] and [1]: the number of bytes received; [2]: whether it was cancelled.
[[nodiscard]] inline MPI_Count bytes_of(const MPI_Status& status) {
  MPI_Count bytes = 0;
  std::memcpy(&bytes, status.MPI_internal, sizeof bytes);
  return bytes;
}
inline void set_bytes(MPI_Status* status, MPI_Count bytes) {
  std::memcpy(status->MPI_internal, &bytes, sizeof bytes);
}
[[nodiscard]] inline bool is_cancelled(const MPI_Status& status) {
  return status.MPI_internal[2] != 0;
}
inline void set_cancelled(MPI_Status* status, bool cancelled) {
  status->MPI_internal[2] = cancelled ? 1 : 0;
}

}  // namespace heddle::mpi
