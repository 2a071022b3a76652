/* PE 0 waits for PE 1, which is late. It must leave its core to others meanwhile, also where only a
 * store to memory ends the wait: the test counts its processor time. */
#include <shmem.h>
#include <sys/resource.h>
#include <time.h>

#include "check.h"

static const double kLate = 0.5;
static const double kMostShare = 0.2;

static long word;
static uint64_t flag;
static long lock;

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double of(struct timeval time) {
  return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static double processor_seconds(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return of(used.ru_utime) + of(used.ru_stime);
}

/* What PE 0 waits in, and what PE 1 does once it is late. */
static void word_of(int me) {
  if (me == 0) {
    shmem_long_wait_until(&word, SHMEM_CMP_EQ, 1);
  } else {
    shmem_long_p(&word, 1, 0);
  }
}
static void any_of(int me) {
  if (me == 0) {
    EXPECT(shmem_long_wait_until_any(&word, 1, NULL, SHMEM_CMP_EQ, 2) == 0, "the only word");
  } else {
    shmem_long_p(&word, 2, 0);
  }
}
static void signal_of(int me) {
  if (me == 0) {
    EXPECT(shmem_signal_wait_until(&flag, SHMEM_CMP_NE, 0) == 1, "the signal");
  } else {
    shmem_long_put_signal(&word, &word, 0, &flag, 1, SHMEM_SIGNAL_SET, 0);
  }
}
static void barrier_of(int me) {
  (void)me;
  shmem_barrier_all();
}
static void lock_of(int me) {
  if (me == 0) shmem_set_lock(&lock);
  shmem_clear_lock(&lock);
}

static void measure(const char* name, void (*meet)(int me), int me) {
  shmem_barrier_all();
  const struct timespec late = {0, (long)(kLate * 1e9)};
  if (me == 1) nanosleep(&late, NULL); /* the wait that is measured */
  const double begun = seconds();
  const double before = processor_seconds();
  meet(me);
  const double used = processor_seconds() - before;
  const double waited = seconds() - begun;
  if (me != 0) return;
  printf("%s: %.0f ms, of which %.0f ms on a core\n", name, waited * 1e3, used * 1e3);
  EXPECT(waited > kLate / 2, "%s: PE 1 was not late", name);
  EXPECT(used < kMostShare * waited, "%s: %.0f of %.0f ms on a core", name, used * 1e3, waited * 1e3);
}

int main(int argc, char** argv) {
  (void)argc;
  (void)argv;
  shmem_init();
  const int me = shmem_my_pe();
  if (shmem_n_pes() != 2) shmem_global_exit(2);
  measure("shmem_wait_until", word_of, me);
  measure("shmem_wait_until_any", any_of, me);
  measure("shmem_signal_wait_until", signal_of, me);
  measure("shmem_barrier_all", barrier_of, me);
  if (me == 1) shmem_set_lock(&lock);
  measure("shmem_set_lock", lock_of, me);
  shmem_finalize();
  return failures != 0;
}
