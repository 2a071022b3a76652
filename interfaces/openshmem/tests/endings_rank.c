/* The ways in which a program may end. The first argument names one. */
#include <shmem.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static long from_left = -1;

static int expected_left = -1;

static void tell_the_right(void) {
  const int me = shmem_my_pe();
  const int n = shmem_n_pes();
  shmem_long_p(&from_left, me, (me + 1) % n);
  expected_left = (me + n - 1) % n;
}

/* Registered before shmem's own handler, so it runs after that one: everything put before the end
 * has arrived. */
static int is_child;
static void check_arrival(void) {
  /* memory that only other threads of the PE could reach looks like a leak in the child */
  if (is_child) _exit(0);
  if (expected_left >= 0 && from_left != expected_left) _exit(9);
}

static int is(const char* way, const char* name) {
  return strcmp(way, name) == 0;
}

/* The last PE dies. The others wait for it. Or one of them waits for words of the other, which do
 * come, until it learns of the death. */
static void live_with_the_dead(const char* what, int me, int n) {
  static long lock;
  static long rounds;
  static long pid, passed;
  if (me == n - 1) {
    shmem_set_lock(&lock);
    for (int pe = 0; pe < n; ++pe) shmem_long_p(&pid, getpid(), pe);
  }
  shmem_barrier_all();
  while (me == n - 1) pause();
  /* when both have left the barrier */
  if (me == 1) {
    shmem_long_p(&passed, 1, 0);
    shmem_quiet();
  } else {
    shmem_long_wait_until(&passed, SHMEM_CMP_EQ, 1);
    kill((pid_t)pid, SIGKILL);
  }
  if (is(what, "-word")) shmem_long_wait_until(&from_left, SHMEM_CMP_EQ, 7);
  while (is(what, "-test") && !shmem_long_test(&from_left, SHMEM_CMP_EQ, 7)) continue;
  if (is(what, "-lock")) shmem_set_lock(&lock);
  while (is(what, "-test-lock") && shmem_test_lock(&lock)) continue;
  if (is(what, "-barrier")) shmem_barrier_all();
  for (long round = 1; is(what, "-of-another") && round <= 100; ++round) {
    if (me == 0) {
      usleep(5000);
      shmem_long_p(&rounds, round, 1);
    } else {
      shmem_long_wait_until(&rounds, SHMEM_CMP_GE, round);
    }
  }
  if (me == 1) shmem_global_exit(0);
  for (;;) pause();
}

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "";
  atexit(check_arrival);
  if (is(way, "start_pes")) {
    start_pes(0);
  } else {
    shmem_init();
  }
  const int me = shmem_my_pe();
  const int n = shmem_n_pes();

  if (is(way, "nested")) { /* each finalize but the last is a barrier */
    shmem_init();
    tell_the_right();
    shmem_finalize();
    EXPECT(from_left == expected_left, "%ld, not %d", from_left, expected_left);
    shmem_barrier_all();
    shmem_finalize();
    return failures != 0;
  }
  if (is(way, "failure")) {
    if (me == n - 1) exit(3);
    shmem_barrier_all();
    return 0;
  }
  if (is(way, "vanish")) { /* ends without exit() */
    if (me == n - 1) _exit(0);
    shmem_barrier_all();
    return 0;
  }
  if (is(way, "mistake")) {
    if (me == n - 1) shmem_long_p(&from_left, 1, n);
    shmem_barrier_all();
    return 0;
  }
  if (strncmp(way, "death", 5) == 0) live_with_the_dead(way + 5, me, n);
  if (is(way, "hang")) {
    if (me == 1) shmem_long_wait_until(&from_left, SHMEM_CMP_EQ, 7);
    if (me == 2) {
      static long lock;
      shmem_set_lock(&lock);
      shmem_set_lock(&lock);
    }
    shmem_barrier_all();
  }
  if (is(way, "child")) { /* the child is not a PE, and ends before its parent */
    const pid_t child = fork();
    if (child == 0) {
      is_child = 1;
      exit(0);
    }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
  }
  tell_the_right();
  if (is(way, "finalize") || is(way, "child")) shmem_finalize();
  if (is(way, "exit")) exit(failures != 0);
  return failures != 0;
}
