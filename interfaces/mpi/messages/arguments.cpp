#include "mpi/messages/arguments.hpp"

namespace heddle::mpi {

int read_data(const void* buffer, MPI_Count count, MPI_Datatype datatype, Data* data) {
  if (count < 0) return error(MPI_ERR_COUNT, "count %lld is negative", static_cast<long long>(count));
  Type* type = nullptr;
  if (const int code = committed_type(datatype, "datatype", &type); code != MPI_SUCCESS) return code;
  MPI_Count bytes = 0;
  if (__builtin_mul_overflow(count, type->size, &bytes)) {
    return error(MPI_ERR_COUNT, "count %lld of a type of %lld bytes exceeds 63 bits", static_cast<long long>(count),
                 static_cast<long long>(type->size));
  }
  // MPI_BOTTOM goes with a type of absolute addresses
  if (buffer == nullptr && bytes > 0 && type->true_lb == 0 && type->predefined)
    return error(MPI_ERR_BUFFER, "the buffer is null, and count is %lld", static_cast<long long>(count));
  *data = {const_cast<void*>(buffer), count, type};
  return MPI_SUCCESS;
}

int check_target(const Comm& comm, int rank, const char* argument) {
  if ((rank >= 0 && rank < comm.remote_size()) || rank == MPI_PROC_NULL) return MPI_SUCCESS;
  return error(MPI_ERR_RANK, "%s %d: the communicator has ranks 0-%d", argument, rank, comm.remote_size() - 1);
}

int check_source(const Comm& comm, int rank) {
  return rank == MPI_ANY_SOURCE ? MPI_SUCCESS : check_target(comm, rank, "source");
}

int check_tag(int tag) {
  if (tag >= 0 && tag <= kTagUb) return MPI_SUCCESS;
  return error(MPI_ERR_TAG, "tag %d: tags are 0-%d (MPI_TAG_UB)", tag, kTagUb);
}

int check_wanted_tag(int tag) {
  return tag == MPI_ANY_TAG ? MPI_SUCCESS : check_tag(tag);
}

}  // namespace heddle::mpi
