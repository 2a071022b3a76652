// Checks of the test programs: a failed one names its place and ends the job.
#pragma once

#include <mpi.h>

#include <cstdio>
#include <cstdlib>

inline int my_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
inline int ranks() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

[[noreturn]] inline void check_failed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: rank %d: %s\n", file, line, my_rank(), what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

#define CHECK(condition)                                            \
  do {                                                              \
    if (!(condition)) check_failed(__FILE__, __LINE__, #condition); \
  } while (false)
#define MUST(call) CHECK((call) == MPI_SUCCESS)
