/* misuse_rank MISUSE: errors that HEDDLE_CHECK=full finds. If the program can go on, it gets an
 * error, which this program expects. Otherwise the job ends with a line that the test expects. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

static int rank, size;

static int class_of(int code) {
  int class_of_code = MPI_SUCCESS;
  MPI_Error_class(code, &class_of_code);
  return class_of_code;
}

/* Rank 1 receives integers as other elements. Kinds that fit are not reported. */
static void kinds(void) {
  int integers[8] = {1, 2, 3, 4}; /* room for two vectors, too */
  unsigned naturals[4] = {0};
  double numbers[4] = {0};
  char bytes[16] = "";
  MPI_Status status;
  MPI_Datatype pairs, mixed;
  const int lengths[2] = {1, 1};
  const MPI_Aint offsets[2] = {0, 4};
  const MPI_Datatype parts[2] = {MPI_INT, MPI_FLOAT};
  MPI_Type_vector(2, 1, 2, MPI_INT, &pairs);
  MPI_Type_commit(&pairs);
  MPI_Type_create_struct(2, lengths, offsets, parts, &mixed);
  MPI_Type_commit(&mixed);
  if (rank == 0) {
    for (int i = 0; i < 6; ++i) MPI_Send(integers, 4, MPI_INT, 1, i, MPI_COMM_WORLD);
    MPI_Send(bytes, 7, MPI_BYTE, 1, 6, MPI_COMM_WORLD);
    MPI_Bsend(integers, 1, MPI_INT, MPI_PROC_NULL, 7, MPI_COMM_WORLD);
  } else if (rank == 1) {
    MPI_Request request;
    CHECK(class_of(MPI_Recv(numbers, 4, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD, &status)) == MPI_ERR_TYPE);
    CHECK(MPI_Recv(naturals, 4, MPI_UNSIGNED, 0, 1, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
    CHECK(naturals[3] == 4 && status.MPI_TAG == 1 && status.MPI_SOURCE == 0);
    CHECK(MPI_Recv(bytes, 16, MPI_BYTE, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
    CHECK(MPI_Recv(integers, 2, pairs, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
    CHECK(status.MPI_TAG == 3);
    MPI_Irecv(numbers, 4, MPI_FLOAT, 0, 4, MPI_COMM_WORLD, &request);
    CHECK(class_of(MPI_Wait(&request, &status)) == MPI_ERR_TYPE);
    CHECK(MPI_Recv(numbers, 2, mixed, 0, 5, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
    CHECK(class_of(MPI_Recv(integers, 4, MPI_INT, 0, 6, MPI_COMM_WORLD, &status)) == MPI_ERR_TYPE);
  }
  MPI_Type_free(&pairs);
  MPI_Type_free(&mixed);
}

/* Rank 0 writes to the buffer of a send that is under way. */
static void buffer(void) {
  static double data[1 << 17];
  MPI_Request request;
  int token = 0;
  if (rank == 0) {
    MPI_Issend(data, 1 << 17, MPI_DOUBLE, 1, 3, MPI_COMM_WORLD, &request);
    data[77] = 1;
    MPI_Send(&token, 1, MPI_INT, 1, 4, MPI_COMM_WORLD);
    CHECK(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPI_ERR_BUFFER);
    MPI_Issend(data, 1 << 17, MPI_DOUBLE, 1, 3, MPI_COMM_WORLD, &request);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  } else if (rank == 1) {
    MPI_Recv(&token, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(data, 1 << 17, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(data, 1 << 17, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

/* Rank 1 makes a different call. */
static void collective(const char* misuse) {
  const int other = rank == 1;
  int values[8] = {0};
  int results[8] = {0};
  MPI_Request request;
  if (strcmp(misuse, "function") == 0) {
    if (other)
      MPI_Bcast(values, 1, MPI_INT, 0, MPI_COMM_WORLD);
    else
      MPI_Allreduce(values, results, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  } else if (strcmp(misuse, "root") == 0) {
    MPI_Bcast(values, 1, MPI_INT, other, MPI_COMM_WORLD);
  } else if (strcmp(misuse, "operator") == 0) {
    MPI_Allreduce(values, results, 1, MPI_INT, other ? MPI_MAX : MPI_SUM, MPI_COMM_WORLD);
  } else if (strcmp(misuse, "length") == 0) {
    MPI_Bcast(values, other ? 4 : 8, MPI_INT, 0, MPI_COMM_WORLD);
  } else if (strcmp(misuse, "type") == 0) {
    MPI_Allgather(values, 1, other ? MPI_FLOAT : MPI_INT, results, 1, other ? MPI_FLOAT : MPI_INT, MPI_COMM_WORLD);
  } else {
    const int code =
        other ? MPI_Ibarrier(MPI_COMM_WORLD, &request) : MPI_Ibcast(values, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
    /* If the call itself fails, another rank ends the job. */
    if (code == MPI_SUCCESS) MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

static void leak(void) {
  static int value;
  MPI_Comm comm;
  MPI_Datatype type;
  MPI_Group group;
  MPI_Request request;
  MPI_Info info;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Type_contiguous(3, MPI_INT, &type);
  MPI_Comm_group(MPI_COMM_WORLD, &group);
  MPI_Info_create(&info);
  MPI_Recv_init(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &request);
}

/* All receive everything at one place, and then into what they send. */
static void overlap(void) {
  int sent[8];
  int got[8];
  int counts[8];
  int places[8];
  int apart[8];
  int bytes[8];
  MPI_Datatype types[8];
  MPI_Request request;
  for (int i = 0; i < 8; ++i) {
    sent[i] = 10 * rank + i;
    got[i] = -1;
    counts[i] = 1;
    places[i] = 0;
    apart[i] = i;
    bytes[i] = i * (int)sizeof(int);
    types[i] = MPI_INT;
  }
  const int last = 10 * (size - 1);
  CHECK(MPI_Ialltoallw(sent, counts, bytes, types, got, counts, places, types, MPI_COMM_WORLD, &request) ==
        MPI_SUCCESS);
  CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(got[0] == last + rank && got[1] == -1);
  CHECK(MPI_Alltoallv(sent, counts, apart, MPI_INT, got, counts, places, MPI_INT, MPI_COMM_WORLD) == MPI_SUCCESS);
  CHECK(got[0] == last + rank && got[1] == -1);
  CHECK(MPI_Allgatherv(sent, 1, MPI_INT, got, counts, places, MPI_INT, MPI_COMM_WORLD) == MPI_SUCCESS);
  CHECK(got[0] == last && got[1] == -1);
  CHECK(MPI_Gatherv(sent, 1, MPI_INT, got + 1, counts, places, MPI_INT, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
  CHECK(got[1] == (rank == 0 ? last : -1));
  /* Over the last element that is sent. */
  CHECK(MPI_Alltoallv(sent, counts, apart, MPI_INT, sent + size - 1, counts, apart, MPI_INT, MPI_COMM_WORLD) ==
        MPI_SUCCESS);
  for (int i = 0; i < size; ++i) CHECK(sent[size - 1 + i] == 10 * i + rank);
  static int large[4096]; /* more than goes by memory of the library's */
  for (int i = 0; i < 4096; ++i) large[i] = rank * 10000 + i;
  CHECK(MPI_Alltoall(large, 1000, MPI_INT, large + 500, 1000, MPI_INT, MPI_COMM_WORLD) == MPI_SUCCESS);
  for (int i = 0; i < size * 1000; ++i) CHECK(large[500 + i] == i / 1000 * 10000 + rank * 1000 + i % 1000);
}

/* An error of the engine, at all ranks; and one without a communicator. Both end the job. */
static void engine_text(void) {
  int values[32] = {0};
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Request request;
  MPI_Iallreduce(values, values + 4, 8, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
}
static void no_object(void) {
  MPI_Datatype type;
  MPI_Type_contiguous(-1, MPI_INT, &type);
}

static void take_last(void* in, void* inout, int* count, MPI_Datatype* type) {
  if (*type == MPI_INT) memcpy(inout, in, sizeof(int) * (size_t)*count);
}

/* Uses everything, and frees it. */
static void nothing(void) {
  MPI_Comm comm;
  MPI_Win win;
  MPI_Info info;
  MPI_Group group;
  MPI_Op op;
  int value = rank;
  int sum = 0;
  int* memory = NULL;
  MPI_Info_create(&info);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &comm);
  MPI_Comm_group(comm, &group);
  MPI_Win_allocate(sizeof(int), sizeof(int), info, MPI_COMM_WORLD, &memory, &win);
  MPI_Op_create(take_last, 1, &op);
  MPI_Allreduce(&value, &sum, 1, MPI_INT, op, comm);
  MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sum == size * (size - 1) / 2);
  MPI_Reduce(&value, &sum, 1, MPI_INT, MPI_SUM, 0, comm);
  /* Empty messages fit everything. */
  if (rank == 0) MPI_Send(NULL, 0, MPI_INT, 1, 8, MPI_COMM_WORLD);
  double number = 0;
  if (rank == 1) CHECK(MPI_Recv(&number, 1, MPI_DOUBLE, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(MPI_Bcast(&number, 0, rank == 0 ? MPI_INT : MPI_DOUBLE, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
  /* A communicator that is freed while an operation of it is under way. */
  MPI_Comm inter;
  MPI_Comm again;
  MPI_Request request;
  MPI_Intercomm_create(comm, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &inter);
  MPI_Comm_idup(inter, &again, &request);
  MPI_Comm_free(&inter);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_free(&again);
  MPI_Op_free(&op);
  MPI_Win_free(&win);
  MPI_Group_free(&group);
  MPI_Comm_free(&comm);
  MPI_Info_free(&info);
}

int main(int argc, char** argv) {
  const char* const misuse = argc > 1 ? argv[1] : "";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (strcmp(misuse, "kinds") == 0)
    kinds();
  else if (strcmp(misuse, "buffer") == 0)
    buffer();
  else if (strcmp(misuse, "leak") == 0)
    leak();
  else if (strcmp(misuse, "nothing") == 0)
    nothing();
  else if (strcmp(misuse, "overlap") == 0)
    overlap();
  else if (strcmp(misuse, "engine") == 0)
    engine_text();
  else if (strcmp(misuse, "object") == 0)
    no_object();
  else
    collective(misuse);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  if (rank == 0) printf("ended\n");
  return 0;
}
