// A rank is killed; the others repeat a call until they get an error that says so, and go on.
//
//   mpi_death_rank CALL [VICTIM [MICROSECONDS [busy|idle]]]
//
// VICTIM (1) kills itself so many microseconds (0) after all are here, at whatever instruction.
// Before, it does its part in the call (busy), or sleeps (idle).
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static int g_victim = 1;
static long g_life_us = 0;
static int g_busy = 0;

static void die(int number) {
  (void)number;
  kill(getpid(), SIGKILL);
}

// A rank other than the victim.
static int witness(void) {
  return g_victim == 0 ? 1 : 0;
}

static void call_until_dead(const char* what);

static void end_here(const char* what) {
  const struct itimerval timer = {{0, 0}, {g_life_us / 1000000, g_life_us % 1000000}};
  if (g_life_us == 0) die(0);
  signal(SIGALRM, die);
  setitimer(ITIMER_REAL, &timer, NULL);
  if (g_busy) call_until_dead(what);
  for (;;) pause();
}

// Receives a message that a probe has found.
static int take_the_message(void) {
  int value = 0;
  return MPI_Recv(&value, 1, MPI_INT, g_victim, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// Repeats the call until it reports a message.
static int ask_for_a_message(const char* what, int source) {
  MPI_Message message = MPI_MESSAGE_NULL;
  int flag = 0;
  int value = 0;
  int code = MPI_SUCCESS;
  while (code == MPI_SUCCESS && !flag) {
    code = strcmp(what, "iprobe") == 0 ? MPI_Iprobe(source, 3, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE)
                                       : MPI_Improbe(source, 3, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
  }
  if (code != MPI_SUCCESS) return code;
  return message == MPI_MESSAGE_NULL ? take_the_message() : MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
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

static int is_of_all(const char* what) {
  static const char* const kAll[] = {"barrier",  "duplicate", "allreduce", "broadcast", "gather",
                                     "alltoall", "scan",      "split",     "persistent"};
  for (size_t i = 0; i < sizeof kAll / sizeof *kAll; ++i)
    if (strcmp(what, kAll[i]) == 0) return 1;
  return 0;
}

// A collective of all members with more data than one message holds.
static int collective_with_the_dead(const char* what) {
  enum { kBytes = 1 << 16, kMostRanks = 16 };
  static char mine[kMostRanks * kBytes];
  static char all[kMostRanks * kBytes];
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  int code = MPI_SUCCESS;
  if (strcmp(what, "broadcast") == 0) return MPI_Bcast(mine, kBytes, MPI_BYTE, g_victim, MPI_COMM_WORLD);
  if (strcmp(what, "gather") == 0)
    return MPI_Gather(mine, kBytes, MPI_BYTE, all, kBytes, MPI_BYTE, witness(), MPI_COMM_WORLD);
  if (strcmp(what, "alltoall") == 0) return MPI_Alltoall(mine, kBytes, MPI_BYTE, all, kBytes, MPI_BYTE, MPI_COMM_WORLD);
  if (strcmp(what, "scan") == 0) return MPI_Scan(mine, all, kBytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (strcmp(what, "split") == 0) {
    code = MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &made);
    return code == MPI_SUCCESS ? MPI_Comm_free(&made) : code;
  }
  code = MPI_Allgather_init(mine, kBytes, MPI_BYTE, all, kBytes, MPI_BYTE, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  while (code == MPI_SUCCESS) {
    if ((code = MPI_Start(&request)) == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  return code;
}

static int call_with_the_dead(const char* what) {
  MPI_Message message = MPI_MESSAGE_NULL;
  int value = 0;
  int sum = 0;
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  if (strcmp(what, "receive") == 0) return MPI_Recv(&value, 1, MPI_INT, g_victim, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (strcmp(what, "any") == 0)
    return MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (strcmp(what, "probe") == 0 || strcmp(what, "probe_any") == 0) {
    const int source = strcmp(what, "probe") == 0 ? g_victim : MPI_ANY_SOURCE;
    const int probed = MPI_Probe(source, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return probed == MPI_SUCCESS ? take_the_message() : probed;
  }
  if (strcmp(what, "mprobe") == 0) {
    const int probed = MPI_Mprobe(g_victim, 3, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    return probed == MPI_SUCCESS ? MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE) : probed;
  }
  if (strcmp(what, "iprobe") == 0) return ask_for_a_message(what, MPI_ANY_SOURCE);
  if (strcmp(what, "improbe") == 0) return ask_for_a_message(what, g_victim);
  if (strcmp(what, "test_any_source") == 0 || strcmp(what, "waitany") == 0) return wait_for_any(what);
  if (strcmp(what, "send") == 0) return MPI_Ssend(&value, 1, MPI_INT, g_victim, 3, MPI_COMM_WORLD);
  if (strcmp(what, "barrier") == 0) return MPI_Barrier(MPI_COMM_WORLD);
  if (strcmp(what, "duplicate") == 0) {
    const int made = MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    return made == MPI_SUCCESS ? MPI_Comm_free(&copy) : made;
  }
  if (is_of_all(what) && strcmp(what, "allreduce") != 0) return collective_with_the_dead(what);
  const int code = MPI_Iallreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
}

// Calls of which each ends the epoch that it began.
static int is_an_epoch(const char* what) {
  return strcmp(what, "window_lock") == 0 || strcmp(what, "window_fence") == 0 || strcmp(what, "window_start") == 0 ||
         strcmp(what, "window_post") == 0;
}

static int is_of_a_window(const char* what) {
  return strcmp(what, "accumulate") == 0 || strncmp(what, "lock", 4) == 0 || strcmp(what, "guard") == 0 ||
         strncmp(what, "window", 6) == 0;
}

// The victim's part: it sends to those that receive or probe, receives from those that send, and
// answers those that access its windows.
static void call_until_dead(const char* what) {
  int value = 0;
  int flag = 0;
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (;;) {
    if (is_of_all(what)) {
      call_with_the_dead(what);
    } else if (is_of_a_window(what)) {
      MPI_Iprobe(MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    } else if (strcmp(what, "send") == 0) {
      MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      for (int other = 0; other < size; ++other)
        if (other != rank) MPI_Send(&value, 1, MPI_INT, other, 3, MPI_COMM_WORLD);
    }
  }
}

// By messages that the target answers; it may do so for a while before it is dead.
static int accumulate_to_the_dead(MPI_Win win) {
  static double values[1 << 16];
  int code = MPI_SUCCESS;
  while (code == MPI_SUCCESS) {
    code = MPI_Accumulate(values, 1 << 16, MPI_DOUBLE, g_victim, 0, 1 << 16, MPI_DOUBLE, MPI_SUM, win);
    if (code == MPI_SUCCESS) code = MPI_Win_flush(g_victim, win);
  }
  return code;
}

// ---- windows of a witness, or of the dead -------------------------------------------------------

// A barrier comes after the dead has the lock.
static int lock_of_the_dead(MPI_Win win, int rank, const char* what) {
  const int type = strcmp(what, "lock_shared") == 0 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE;
  const int target = witness();
  int code = MPI_SUCCESS;
  if (rank == g_victim) MPI_Win_lock(type, target, 0, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == g_victim) end_here(what);
  code = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
  // The others share the lock nevertheless.
  if (type != MPI_LOCK_SHARED) return code;
  if (MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win) != MPI_SUCCESS) return MPI_ERR_OTHER;
  MPI_Win_unlock(target, win);
  return code;
}

// Elements that no atomic instruction can change are changed under a guard. The victim dies when it
// reads its operand, while it holds the guard.
static int guard_of_the_dead(MPI_Win win, int rank) {
  long double mine = 1;
  const int target = witness();
  void* none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int code = MPI_SUCCESS;
  MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == g_victim) {
    signal(SIGSEGV, die);
    MPI_Accumulate(none, 1, MPI_LONG_DOUBLE, target, 0, 1, MPI_LONG_DOUBLE, MPI_SUM, win);
  }
  while (code == MPI_SUCCESS)
    code = MPI_Accumulate(&mine, 1, MPI_LONG_DOUBLE, target, 0, 1, MPI_LONG_DOUBLE, MPI_SUM, win);
  return code;
}

// An epoch of the window that has the dead rank.
static int epoch_with_the_dead(MPI_Win win, const char* what) {
  const long one = 1;
  int code = MPI_SUCCESS;
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group dead = MPI_GROUP_NULL;
  if (strcmp(what, "window_fence") == 0) return MPI_Win_fence(0, win);
  if (strcmp(what, "window_lock") == 0) {
    code = MPI_Win_lock(MPI_LOCK_SHARED, g_victim, 0, win);
    return code == MPI_SUCCESS ? MPI_Win_unlock(g_victim, win) : code;
  }
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, 1, &g_victim, &dead);
  if (strcmp(what, "window_start") == 0) {
    code = MPI_Win_start(dead, 0, win);
    if (code == MPI_SUCCESS) {
      code = MPI_Put(&one, 1, MPI_LONG, g_victim, 0, 1, MPI_LONG, win);
      const int completed = MPI_Win_complete(win);
      if (code == MPI_SUCCESS) code = completed;
    }
  } else {
    code = MPI_Win_post(dead, 0, win);
    if (code == MPI_SUCCESS) code = MPI_Win_wait(win);
  }
  MPI_Group_free(&dead);
  MPI_Group_free(&world);
  return code;
}

// Puts to the dead rank complete for nobody.
static int memory_of_the_dead(MPI_Win win, int rank, const char* what) {
  const long one = 1;
  int code = MPI_SUCCESS;
  MPI_Request request = MPI_REQUEST_NULL;
  if (!is_an_epoch(what)) MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == g_victim) end_here(what);
  while (code == MPI_SUCCESS) {
    if (is_an_epoch(what)) {
      code = epoch_with_the_dead(win, what);
    } else if (strcmp(what, "window_request") == 0) {
      code = MPI_Rput(&one, 1, MPI_LONG, g_victim, 0, 1, MPI_LONG, win, &request);
      if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
      code = MPI_Put(&one, 1, MPI_LONG, g_victim, 0, 1, MPI_LONG, win);
      if (code == MPI_SUCCESS)
        code = strcmp(what, "window_all") == 0 ? MPI_Win_flush_all(win) : MPI_Win_flush(g_victim, win);
    }
  }
  return code;
}

static int call_on_a_window(const char* what, int rank, MPI_Win win) {
  if (strncmp(what, "lock", 4) == 0) return lock_of_the_dead(win, rank, what);
  if (strcmp(what, "guard") == 0) return guard_of_the_dead(win, rank);
  if (strncmp(what, "window", 6) == 0) return memory_of_the_dead(win, rank, what);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == g_victim) end_here(what);
  return accumulate_to_the_dead(win);
}

static void meet_survivors(int rank) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int other = 0; other < size; ++other)
    if (other != rank && other != g_victim)
      MPI_Sendrecv(NULL, 0, MPI_INT, other, 9, NULL, 0, MPI_INT, other, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// The survivors end their epochs and free the window. Both calls report what is not complete, and
// still do their work.
static int call_and_free_a_window(const char* what, int rank) {
  void* memory = NULL;
  MPI_Win win = MPI_WIN_NULL;
  MPI_Win_allocate(sizeof(double) << 16, sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  const int code = call_on_a_window(what, rank, win);
  if (strncmp(what, "lock", 4) != 0 && !is_an_epoch(what)) MPI_Win_unlock_all(win);
  meet_survivors(rank);
  MPI_Win_free(&win);
  if (win != MPI_WIN_NULL) fprintf(stderr, "rank %d has not freed its window\n", rank);
  return win == MPI_WIN_NULL ? code : MPI_ERR_OTHER;
}

int main(int argc, char** argv) {
  int rank = 0;
  int code = MPI_SUCCESS;
  int class_of_error = MPI_SUCCESS;
  const char* what = argc > 1 ? argv[1] : "";
  if (argc > 2) g_victim = atoi(argv[2]);
  if (argc > 3) g_life_us = atol(argv[3]);
  if (argc > 4) g_busy = strcmp(argv[4], "busy") == 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (is_of_a_window(what)) {
    code = call_and_free_a_window(what, rank);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == g_victim) end_here(what);
    while (code == MPI_SUCCESS) code = call_with_the_dead(what);
  }
  MPI_Error_class(code, &class_of_error);
  MPI_Finalize();
  if (class_of_error == MPI_ERR_PROC_ABORTED) printf("survived %d\n", rank);
  return 0;
}
