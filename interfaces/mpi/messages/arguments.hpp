// Checks of the arguments of sends and receives. The caller has a communicator that exists.
#pragma once

#include "mpi/communicators/comm.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

// The data of a message. The type is not held.
struct Data {
  void* buffer = nullptr;
  MPI_Count count = 0;
  Type* type = nullptr;
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(count * type->size); }
};

// Checks buffer, count and type.
int read_data(const void* buffer, MPI_Count count, MPI_Datatype datatype, Data* data);
// A rank to which messages go, or MPI_PROC_NULL.
int check_target(const Comm& comm, int rank, const char* argument);
// The same; MPI_ANY_SOURCE is valid too.
int check_source(const Comm& comm, int rank);
int check_tag(int tag);
// A tag, or MPI_ANY_TAG.
int check_wanted_tag(int tag);

}  // namespace heddle::mpi
