// Rank 1 is killed, after as many microseconds as the second argument says; the others, in the call
// that the first one names, get an error that says so, and go on.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static useconds_t g_life_us = 0;

static void end_here(void) {
  if (g_life_us > 0) usleep(g_life_us);
  kill(getpid(), SIGKILL);
}

// Until it says that there is one: which is never.
static int ask_for_a_message(const char* what, int source) {
  MPI_Message message = MPI_MESSAGE_NULL;
  int flag = 0;
  int code = MPI_SUCCESS;
  while (code == MPI_SUCCESS && !flag) {
    code = strcmp(what, "iprobe") == 0 ? MPI_Iprobe(source, 3, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE)
                                       : MPI_Improbe(source, 3, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
  }
  return code;
}

static int wait_for_any(const char* what) {
  static int values[2];
  MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  int flag = 0;
  int which = 0;
  int code = MPI_SUCCESS;
  for (int i = 0; i < 2; ++i) MPI_Irecv(&values[i], 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &requests[i]);
  while (code == MPI_SUCCESS && !flag && strcmp(what, "test_any_source") == 0)
    code = MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
  if (strcmp(what, "waitany") == 0) code = MPI_Waitany(2, requests, &which, MPI_STATUS_IGNORE);
  for (int i = 0; i < 2; ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&requests[i]);
    MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
  }
  return code;
}

static int call_with_the_dead(const char* what) {
  MPI_Message message = MPI_MESSAGE_NULL;
  int value = 0;
  int sum = 0;
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  if (strcmp(what, "receive") == 0) return MPI_Recv(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (strcmp(what, "any") == 0)
    return MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (strcmp(what, "probe") == 0) return MPI_Probe(1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (strcmp(what, "probe_any") == 0) return MPI_Probe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (strcmp(what, "mprobe") == 0) return MPI_Mprobe(1, 3, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
  if (strcmp(what, "iprobe") == 0) return ask_for_a_message(what, MPI_ANY_SOURCE);
  if (strcmp(what, "improbe") == 0) return ask_for_a_message(what, 1);
  if (strcmp(what, "test_any_source") == 0 || strcmp(what, "waitany") == 0) return wait_for_any(what);
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

// ---- windows of rank 0, or of the dead ----------------------------------------------------------

// A barrier comes after the dead has the lock.
static int lock_of_the_dead(MPI_Win win, int rank, int type) {
  int code = MPI_SUCCESS;
  if (rank == 1) MPI_Win_lock(type, 0, 0, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) end_here();
  code = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
  // Others share it all the same.
  if (type != MPI_LOCK_SHARED) return code;
  if (MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win) != MPI_SUCCESS) return MPI_ERR_OTHER;
  MPI_Win_unlock(0, win);
  return code;
}

static void die(int signal) {
  (void)signal;
  kill(getpid(), SIGKILL);
}

// Elements that no atomic instruction takes are changed under a guard. The dead dies when it reads
// its operand, which is in the midst of that.
static int guard_of_the_dead(MPI_Win win, int rank) {
  long double mine = 1;
  void* none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int code = MPI_SUCCESS;
  MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) {
    signal(SIGSEGV, die);
    MPI_Accumulate(none, 1, MPI_LONG_DOUBLE, 0, 0, 1, MPI_LONG_DOUBLE, MPI_SUM, win);
  }
  while (code == MPI_SUCCESS) code = MPI_Accumulate(&mine, 1, MPI_LONG_DOUBLE, 0, 0, 1, MPI_LONG_DOUBLE, MPI_SUM, win);
  return code;
}

// What is put there is complete for nobody.
static int memory_of_the_dead(MPI_Win win, int rank, const char* what) {
  const long one = 1;
  int code = MPI_SUCCESS;
  MPI_Request request = MPI_REQUEST_NULL;
  if (strcmp(what, "window_lock") != 0) MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) end_here();
  while (code == MPI_SUCCESS) {
    if (strcmp(what, "window_lock") == 0) {
      if ((code = MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win)) == MPI_SUCCESS) code = MPI_Win_unlock(1, win);
    } else if (strcmp(what, "window_request") == 0) {
      code = MPI_Rput(&one, 1, MPI_LONG, 1, 0, 1, MPI_LONG, win, &request);
      if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
      code = MPI_Put(&one, 1, MPI_LONG, 1, 0, 1, MPI_LONG, win);
      if (code == MPI_SUCCESS) code = strcmp(what, "window_all") == 0 ? MPI_Win_flush_all(win) : MPI_Win_flush(1, win);
    }
  }
  return code;
}

static int call_on_a_window(const char* what, int rank) {
  void* memory = NULL;
  MPI_Win win = MPI_WIN_NULL;
  MPI_Win_allocate(sizeof(double) << 16, sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  if (strcmp(what, "lock_exclusive") == 0) return lock_of_the_dead(win, rank, MPI_LOCK_EXCLUSIVE);
  if (strcmp(what, "lock_shared") == 0) return lock_of_the_dead(win, rank, MPI_LOCK_SHARED);
  if (strcmp(what, "guard") == 0) return guard_of_the_dead(win, rank);
  if (strncmp(what, "window", 6) == 0) return memory_of_the_dead(win, rank, what);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) end_here();
  return accumulate_to_the_dead(win);
}

static int is_of_a_window(const char* what) {
  return strcmp(what, "accumulate") == 0 || strncmp(what, "lock", 4) == 0 || strcmp(what, "guard") == 0 ||
         strncmp(what, "window", 6) == 0;
}

int main(int argc, char** argv) {
  int rank = 0;
  int code = MPI_SUCCESS;
  int class_of_error = MPI_SUCCESS;
  const char* what = argc > 1 ? argv[1] : "";
  if (argc > 2) g_life_us = (useconds_t)strtoul(argv[2], NULL, 10);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (is_of_a_window(what)) {
    code = call_on_a_window(what, rank);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) end_here();
    code = call_with_the_dead(what);
  }
  MPI_Error_class(code, &class_of_error);
  if (class_of_error == MPI_ERR_PROC_ABORTED) printf("survived\n");
  MPI_Finalize();
  return 0;
}
