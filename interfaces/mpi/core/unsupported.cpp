// The functions of MPI that Heddle does not have. They report this, and name what to use instead.
#include <units/unsupported.hpp>

#include <string_view>

#include "mpi/communicators/comm.hpp"
#include "mpi/core/error_codes.hpp"
#include "mpi/core/errors.hpp"

namespace heddle::mpi {
namespace {

const char* advice(std::string_view call) {
  if (call.starts_with("MPI_File_") || call.starts_with("MPI_Register_datarep")) {
    return "Heddle has no MPI-IO; use the functions of C or POSIX, or a library of files, on a file of each process or "
           "on parts "
           "of one file";
  }
  if (call.starts_with("MPI_Comm_spawn")) {
    return "Heddle does not start processes while a job runs; start all of them with the job: heddle run -n, or "
           "mpiexec";
  }
  return "Heddle does not connect jobs that run; start all processes in one job, and split MPI_COMM_WORLD";
}

}  // namespace

int unsupported(Call call, MPI_Comm comm) {
  const int code = error(MPI_ERR_UNSUPPORTED_OPERATION, "%s", advice(call));
  if (std::string_view(call).starts_with("MPI_File_")) return report_file(call, code);
  Comm* const object = comm == MPI_COMM_NULL ? nullptr : comm_of(comm);
  return object == nullptr ? report(call, code) : report(call, object, code);
}

}  // namespace heddle::mpi
