/* Calls of MPI whose names, arguments and order calls_test.py knows, by two ranks. Also compiled
 * as a library that calls_loader.c loads, with its main under another name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void must(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "wrong: %s\n", what);
  exit(1);
}

/* Called within MPI_Comm_delete_attr. */
static int on_delete(MPI_Comm comm, int keyval, void* value, void* extra) {
  (void)comm, (void)keyval, (void)value, (void)extra;
  return MPI_Barrier(MPI_COMM_SELF);
}

static void attribute(void) {
  int keyval = 0;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &keyval, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &keyval);
  MPI_Comm_delete_attr(MPI_COMM_SELF, keyval);
  MPI_Comm_free_keyval(&keyval);
}

/* Rank 1 looks for a message a hundred times in vain, then until it is there. */
static void poll(int rank) {
  int value = 42;
  if (rank == 0) {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD);
    return;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  int flag = 0;
  value = 0;
  MPI_Irecv(&value, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, &request);
  for (int i = 0; i < 100; ++i) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
  must(!flag, "the message is there before it is sent");
  MPI_Barrier(MPI_COMM_WORLD);
  while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
  must(value == 42, "the message");
}

int main(int argc, char** argv) {
  int rank = -1;
  int values[8] = {0};
  int sum = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    MPI_Send(values, 8, MPI_INT, 1, 7, MPI_COMM_WORLD);
  } else {
    MPI_Recv(values, 8, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Sendrecv(values, 2, MPI_DOUBLE, MPI_PROC_NULL, 1, values, 3, MPI_BYTE, MPI_PROC_NULL, 2, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  must(sum == 2, "the sum");
  attribute();
  poll(rank);
  MPI_Finalize();
  printf("wrappers: %s\n", dlsym(RTLD_DEFAULT, "heddle_mpi_calls") != NULL ? "yes" : "no");
  return 0;
}
