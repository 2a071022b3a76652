/* Sessions: process sets, communicators from groups, with and without MPI_Init ("init"), one after
 * the other and together. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static int class_of(int code) {
  int class = -1;
  CHECK(MPI_Error_class(code, &class) == MPI_SUCCESS);
  return class;
}

static long number_in(MPI_Info info, const char* key) {
  char value[64] = "";
  int length = sizeof value;
  int flag = 0;
  CHECK(MPI_Info_get_string(info, key, &length, value, &flag) == MPI_SUCCESS && flag);
  return atol(value);
}

static void sets(MPI_Session session) {
  int number = 0;
  CHECK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &number) == MPI_SUCCESS && number >= 2);
  for (int i = 0; i < number; ++i) {
    int length = 0;
    CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, NULL) == MPI_SUCCESS && length > 1);
    char name[MPI_MAX_PSET_NAME_LEN];
    int room = 4;
    CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &room, name) == MPI_SUCCESS);
    CHECK(room == length && strlen(name) == 3);
    CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &room, name) == MPI_SUCCESS);
    CHECK((int)strlen(name) + 1 == length);
    MPI_Info info = MPI_INFO_NULL;
    CHECK(MPI_Session_get_pset_info(session, name, &info) == MPI_SUCCESS);
    MPI_Group group = MPI_GROUP_NULL;
    CHECK(MPI_Group_from_session_pset(session, name, &group) == MPI_SUCCESS);
    int size = 0;
    int rank = MPI_UNDEFINED;
    CHECK(MPI_Group_size(group, &size) == MPI_SUCCESS && size == number_in(info, "mpi_size"));
    CHECK(MPI_Group_rank(group, &rank) == MPI_SUCCESS && rank != MPI_UNDEFINED);
    CHECK(MPI_Group_free(&group) == MPI_SUCCESS && MPI_Info_free(&info) == MPI_SUCCESS);
  }
  int length = 0;
  CHECK(class_of(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, number, &length, NULL)) == MPI_ERR_ARG);
  MPI_Group group = MPI_GROUP_NULL;
  CHECK(class_of(MPI_Group_from_session_pset(session, "mpi://NOBODY", &group)) == MPI_ERR_ARG);
  CHECK(class_of(MPI_Group_from_session_pset(session, NULL, &group)) == MPI_ERR_ARG);
}

/* Sums the ranks of a communicator. */
static void use(MPI_Comm comm) {
  int rank = 0;
  int size = 0;
  CHECK(MPI_Comm_rank(comm, &rank) == MPI_SUCCESS && MPI_Comm_size(comm, &size) == MPI_SUCCESS);
  int sum = 0;
  CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
  CHECK(sum == size * (size - 1) / 2);
  int from = -1;
  CHECK(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 3, &from, 1, MPI_INT, (rank + size - 1) % size, 3, comm,
                     MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(from == (rank + size - 1) % size);
}

static void communicators(MPI_Session session) {
  MPI_Group world = MPI_GROUP_NULL;
  CHECK(MPI_Group_from_session_pset(session, "mpi://WORLD", &world) == MPI_SUCCESS);
  int rank = 0;
  int size = 0;
  MPI_Group_rank(world, &rank);
  MPI_Group_size(world, &size);
  MPI_Comm comm = MPI_COMM_NULL;
  CHECK(MPI_Comm_create_from_group(world, "all", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS);
  use(comm);
  /* its error handler returns */
  CHECK(class_of(MPI_Send(NULL, -1, MPI_INT, 0, 0, comm)) == MPI_ERR_COUNT);

  /* Groups that share members, used at the same time under several names. */
  int odd[3] = {1, size - 1, 2};
  MPI_Group half = MPI_GROUP_NULL;
  MPI_Comm part = MPI_COMM_NULL;
  if (size > 1) {
    if (rank % 2 == 0) odd[0] = 0;
    CHECK(MPI_Group_range_incl(world, 1, &odd, &half) == MPI_SUCCESS);
    CHECK(MPI_Comm_create_from_group(half, "parity", MPI_INFO_NULL, MPI_ERRORS_RETURN, &part) == MPI_SUCCESS);
    use(part);
    CHECK(MPI_Comm_free(&part) == MPI_SUCCESS && MPI_Group_free(&half) == MPI_SUCCESS);
  }
  CHECK(MPI_Comm_create_from_group(MPI_GROUP_EMPTY, "none", MPI_INFO_NULL, MPI_ERRORS_RETURN, &part) == MPI_SUCCESS);
  CHECK(part == MPI_COMM_NULL);
  CHECK(class_of(MPI_Comm_create_from_group(MPI_GROUP_NULL, "none", MPI_INFO_NULL, MPI_ERRORS_RETURN, &part)) ==
        MPI_ERR_GROUP);
  CHECK(class_of(MPI_Comm_create_from_group(world, NULL, MPI_INFO_NULL, MPI_ERRORS_RETURN, &part)) == MPI_ERR_ARG);
  CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS && MPI_Group_free(&world) == MPI_SUCCESS);
}

/* The even against the odd ranks. */
static void intercommunicators(MPI_Session session) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group groups[2];
  int rank = 0;
  int size = 0;
  CHECK(MPI_Group_from_session_pset(session, "mpi://WORLD", &world) == MPI_SUCCESS);
  MPI_Group_rank(world, &rank);
  MPI_Group_size(world, &size);
  if (size > 1) {
    for (int parity = 0; parity < 2; ++parity) {
      int range[3] = {parity, size - 1, 2};
      CHECK(MPI_Group_range_incl(world, 1, &range, &groups[parity]) == MPI_SUCCESS);
    }
    MPI_Comm comm = MPI_COMM_NULL;
    const int mine = rank % 2;
    int remote_size = 0;
    CHECK(MPI_Group_size(groups[1 - mine], &remote_size) == MPI_SUCCESS);
    CHECK(MPI_Intercomm_create_from_groups(groups[mine], 0, groups[1 - mine], 0, "inter", MPI_INFO_NULL,
                                           MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS);
    int inter = 0;
    int there = 0;
    CHECK(MPI_Comm_test_inter(comm, &inter) == MPI_SUCCESS && inter);
    CHECK(MPI_Comm_remote_size(comm, &there) == MPI_SUCCESS && there == remote_size);
    if (rank / 2 < there) {
      int other = -1;
      CHECK(MPI_Sendrecv(&rank, 1, MPI_INT, rank / 2, 1, &other, 1, MPI_INT, rank / 2, 1, comm, MPI_STATUS_IGNORE) ==
            MPI_SUCCESS);
      CHECK(other == (rank ^ 1));
    }
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
    for (int parity = 0; parity < 2; ++parity) CHECK(MPI_Group_free(&groups[parity]) == MPI_SUCCESS);
  }
  CHECK(MPI_Group_free(&world) == MPI_SUCCESS);
}

/* The number of a message by MPI_Bsend to the next process, received from the one before. */
static void send_buffered(MPI_Comm comm) {
  int rank = 0;
  int size = 0;
  CHECK(MPI_Comm_rank(comm, &rank) == MPI_SUCCESS && MPI_Comm_size(comm, &size) == MPI_SUCCESS);
  int from = -1;
  CHECK(MPI_Bsend(&rank, 1, MPI_INT, (rank + 1) % size, 7, comm) == MPI_SUCCESS);
  CHECK(MPI_Recv(&from, 1, MPI_INT, (rank + size - 1) % size, 7, comm, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(from == (rank + size - 1) % size);
}

/* The buffer of a session serves the communicators that are derived from it, by whatever way, and
 * no others. */
static void buffers(MPI_Session session, MPI_Session other) {
  static char room[4096 + MPI_BSEND_OVERHEAD];
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group same = MPI_GROUP_NULL;
  MPI_Group foreign = MPI_GROUP_NULL;
  MPI_Comm comms[5];
  MPI_Comm apart = MPI_COMM_NULL;
  int rank = 0;
  int value = 0;
  CHECK(MPI_Group_from_session_pset(session, "mpi://WORLD", &world) == MPI_SUCCESS);
  CHECK(MPI_Group_from_session_pset(other, "mpi://WORLD", &foreign) == MPI_SUCCESS);
  MPI_Group_rank(world, &rank);
  CHECK(MPI_Comm_create_from_group(world, "own", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comms[0]) == MPI_SUCCESS);
  CHECK(MPI_Comm_create_from_group(foreign, "other", MPI_INFO_NULL, MPI_ERRORS_RETURN, &apart) == MPI_SUCCESS);
  CHECK(class_of(MPI_Bsend(&value, 1, MPI_INT, rank, 7, comms[0])) == MPI_ERR_BUFFER);
  CHECK(MPI_Comm_dup(comms[0], &comms[1]) == MPI_SUCCESS);
  CHECK(MPI_Comm_split(comms[1], rank % 2, 0, &comms[2]) == MPI_SUCCESS);
  CHECK(MPI_Comm_group(comms[2], &same) == MPI_SUCCESS);
  CHECK(MPI_Comm_create_from_group(same, "again", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comms[3]) == MPI_SUCCESS);
  const int dims[1] = {1};
  const int periods[1] = {0};
  CHECK(MPI_Cart_create(comms[0], 1, dims, periods, 0, &comms[4]) == MPI_SUCCESS);
  void* old = NULL;
  int bytes = 0;
  for (int automatic = 0; automatic < 2; ++automatic) {
    void* const buffer = automatic ? MPI_BUFFER_AUTOMATIC : (void*)room;
    CHECK(MPI_Session_attach_buffer(session, buffer, automatic ? 0 : (int)sizeof room) == MPI_SUCCESS);
    for (int i = 0; i < 5; ++i)
      if (comms[i] != MPI_COMM_NULL) send_buffered(comms[i]);
    CHECK(class_of(MPI_Bsend(&value, 1, MPI_INT, rank, 7, apart)) == MPI_ERR_BUFFER);
    CHECK(MPI_Session_flush_buffer(session) == MPI_SUCCESS);
    CHECK(MPI_Session_detach_buffer(session, &old, &bytes) == MPI_SUCCESS && old == buffer);
    CHECK(class_of(MPI_Bsend(&value, 1, MPI_INT, rank, 7, comms[1])) == MPI_ERR_BUFFER);
  }
  for (int i = 0; i < 5; ++i)
    if (comms[i] != MPI_COMM_NULL) CHECK(MPI_Comm_free(&comms[i]) == MPI_SUCCESS);
  CHECK(MPI_Comm_free(&apart) == MPI_SUCCESS);
  CHECK(MPI_Group_free(&world) == MPI_SUCCESS && MPI_Group_free(&foreign) == MPI_SUCCESS);
  CHECK(MPI_Group_free(&same) == MPI_SUCCESS);
}

static void level_is(MPI_Info asked, const char* wanted) {
  MPI_Session session = MPI_SESSION_NULL;
  MPI_Info info = MPI_INFO_NULL;
  char level[64] = "";
  int length = sizeof level;
  int flag = 0;
  CHECK(MPI_Session_init(asked, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS);
  CHECK(MPI_Session_get_info(session, &info) == MPI_SUCCESS);
  CHECK(MPI_Info_get_string(info, "thread_level", &length, level, &flag) == MPI_SUCCESS && flag);
  CHECK(strcmp(level, wanted) == 0);
  CHECK(MPI_Info_free(&info) == MPI_SUCCESS && MPI_Session_finalize(&session) == MPI_SUCCESS);
}

/* A session that asks for no level has the job's; one that asks has no more than it asked for. */
static void levels(int argc, char** argv) {
  int provided = -1;
  MPI_Info asked = MPI_INFO_NULL;
  CHECK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided) == MPI_SUCCESS);
  CHECK(provided == MPI_THREAD_MULTIPLE);
  level_is(MPI_INFO_NULL, "MPI_THREAD_MULTIPLE");
  CHECK(MPI_Info_create(&asked) == MPI_SUCCESS);
  level_is(asked, "MPI_THREAD_MULTIPLE");
  CHECK(MPI_Info_set(asked, "thread_level", "MPI_THREAD_SERIALIZED") == MPI_SUCCESS);
  level_is(asked, "MPI_THREAD_SERIALIZED");
  CHECK(MPI_Info_free(&asked) == MPI_SUCCESS);
  CHECK(MPI_Finalize() == MPI_SUCCESS);
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "levels") == 0) {
    levels(argc, argv);
    return 0;
  }
  const int with_init = argc > 1 && strcmp(argv[1], "init") == 0;
  for (int i = 0; i < 3; ++i) {
    if (with_init && i == 1) CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
    MPI_Session session = MPI_SESSION_NULL;
    MPI_Session second = MPI_SESSION_NULL;
    CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS);
    CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &second) == MPI_SUCCESS && session != second);
    sets(session);
    communicators(session);
    buffers(session, second);
    CHECK(MPI_Session_finalize(&second) == MPI_SUCCESS);
    intercommunicators(session);
    CHECK(MPI_Session_finalize(&session) == MPI_SUCCESS && session == MPI_SESSION_NULL);
  }
  if (with_init) CHECK(MPI_Finalize() == MPI_SUCCESS);
  return 0;
}
