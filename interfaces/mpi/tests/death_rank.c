// Rank 1 is killed; the others, in the call that the argument names, get an error that says so, and
// go on.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int call_with_the_dead(const char* what) {
  int value = 0;
  int sum = 0;
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  if (strcmp(what, "receive") == 0) return MPI_Recv(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (strcmp(what, "any") == 0)
    return MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (strcmp(what, "send") == 0) return MPI_Ssend(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
  if (strcmp(what, "barrier") == 0) return MPI_Barrier(MPI_COMM_WORLD);
  if (strcmp(what, "duplicate") == 0) return MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  const int code = MPI_Iallreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
}

// By messages that the target answers; it may do so for a while before it is dead.
static int accumulate_to_the_dead(MPI_Win win) {
  static double values[1 << 16];
  int code = MPI_SUCCESS;
  while (code == MPI_SUCCESS) {
    code = MPI_Accumulate(values, 1 << 16, MPI_DOUBLE, 1, 0, 1 << 16, MPI_DOUBLE, MPI_SUM, win);
    if (code == MPI_SUCCESS) code = MPI_Win_flush(1, win);
  }
  return code;
}

int main(int argc, char** argv) {
  int rank = 0;
  int class_of_error = MPI_SUCCESS;
  void* memory = NULL;
  MPI_Win win = MPI_WIN_NULL;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int accumulates = argc > 1 && strcmp(argv[1], "accumulate") == 0;
  if (accumulates) {
    MPI_Win_allocate(sizeof(double) << 16, sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) kill(getpid(), SIGKILL);
  const int code = accumulates ? accumulate_to_the_dead(win) : call_with_the_dead(argc > 1 ? argv[1] : "");
  MPI_Error_class(code, &class_of_error);
  if (class_of_error == MPI_ERR_PROC_ABORTED) printf("survived\n");
  MPI_Finalize();
  return 0;
}
