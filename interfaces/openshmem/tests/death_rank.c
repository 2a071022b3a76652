/* A PE for tests/system/kill_storm.py: one PE dies, and no survivor goes on waiting.
 *
 *   shmem_death_rank CALL VICTIM MICROSECONDS busy|idle PE|all single|multiple
 *
 * So many microseconds after all are here, at whatever instruction, PE VICTIM kills itself. Before,
 * it does its part in the call (busy), or sleeps (idle). PE, or all survivors, repeat the call
 * until the job ends; the others sleep. */
#include <shmem.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { kMost = 8, kLarge = 4096 };

static int me, n, victim;
static long words[2];
static uint64_t flag;
static long lock;
static long counter;
static long source[kMost * kLarge], dest[kMost * kLarge];
static long psync[SHMEM_SYNC_SIZE];

static void die(int number) {
  (void)number;
  kill(getpid(), SIGKILL);
}

static void die_after(long microseconds) {
  struct itimerval timer = {{0, 0}, {microseconds / 1000000, microseconds % 1000000}};
  signal(SIGALRM, die);
  if (microseconds == 0) die(0);
  setitimer(ITIMER_REAL, &timer, NULL);
}

static void sleep_on(void) {
  for (;;) pause();
}

/* ---- words that the victim writes; each survivor waits for the next number ------------------- */

static void write_words(void) {
  for (uint64_t number = 1;; ++number) {
    for (int pe = 0; pe < n; ++pe) {
      if (pe == me) continue;
      shmem_long_p(&words[0], (long)number, pe);
      shmem_long_put_signal(&words[1], &words[0], 0, &flag, number, SHMEM_SIGNAL_SET, pe);
      shmem_long_p(&words[1], (long)number, pe);
    }
    shmem_quiet();
  }
}

static void await_words(const char* call) {
  size_t indices[2];
  for (long next = 1;; ++next) {
    const long values[2] = {next, next};
    if (!strcmp(call, "wait_until")) shmem_long_wait_until(&words[0], SHMEM_CMP_GE, next);
    if (!strcmp(call, "wait_until_all")) shmem_long_wait_until_all(words, 2, NULL, SHMEM_CMP_GE, next);
    if (!strcmp(call, "wait_until_any")) shmem_long_wait_until_any(words, 2, NULL, SHMEM_CMP_GE, next);
    if (!strcmp(call, "wait_until_some")) shmem_long_wait_until_some(words, 2, indices, NULL, SHMEM_CMP_GE, next);
    if (!strcmp(call, "wait_until_all_vector")) shmem_long_wait_until_all_vector(words, 2, NULL, SHMEM_CMP_GE, values);
    if (!strcmp(call, "wait_until_any_vector")) shmem_long_wait_until_any_vector(words, 2, NULL, SHMEM_CMP_GE, values);
    if (!strcmp(call, "signal_wait_until")) shmem_signal_wait_until(&flag, SHMEM_CMP_GE, (uint64_t)next);
    while (!strcmp(call, "test") && !shmem_long_test(&words[0], SHMEM_CMP_GE, next)) continue;
    while (!strcmp(call, "test_all") && !shmem_long_test_all(words, 2, NULL, SHMEM_CMP_GE, next)) continue;
    while (!strcmp(call, "test_any") && shmem_long_test_any(words, 2, NULL, SHMEM_CMP_GE, next) == SIZE_MAX) continue;
    while (!strcmp(call, "test_some") && shmem_long_test_some(words, 2, indices, NULL, SHMEM_CMP_GE, next) == 0)
      continue;
    while (!strcmp(call, "signal_fetch") && shmem_signal_fetch(&flag) < (uint64_t)next) continue;
  }
}

/* ---- locks: the victim holds it, or all want it ---------------------------------------------- */

static void take_locks(const char* call) {
  for (;;) {
    if (!strcmp(call, "test_lock") || !strcmp(call, "test_lock_contended")) {
      while (shmem_test_lock(&lock) != 0) continue;
    } else {
      shmem_set_lock(&lock);
    }
    shmem_clear_lock(&lock);
    /* A PE that died without the lock blocks nobody. */
    if (shmem_long_test(&words[0], SHMEM_CMP_EQ, 1)) shmem_global_exit(3);
  }
}

/* ---- what all call --------------------------------------------------------------------------- */

static void call_all(const char* call) {
  for (int round = 0;; ++round) {
    if (!strcmp(call, "barrier_all")) shmem_barrier_all();
    if (!strcmp(call, "sync_all")) shmem_sync_all();
    if (!strcmp(call, "team_sync")) shmem_team_sync(SHMEM_TEAM_WORLD);
    if (!strcmp(call, "barrier")) shmem_barrier(0, 0, n, psync);
    if (!strcmp(call, "broadcast")) shmem_long_broadcast(SHMEM_TEAM_WORLD, dest, source, 4, round % n);
    if (!strcmp(call, "broadcast_large")) shmem_long_broadcast(SHMEM_TEAM_WORLD, dest, source, kLarge, round % n);
    if (!strcmp(call, "collect")) shmem_long_collect(SHMEM_TEAM_WORLD, dest, source, (size_t)me + 1);
    if (!strcmp(call, "fcollect")) shmem_long_fcollect(SHMEM_TEAM_WORLD, dest, source, kLarge);
    if (!strcmp(call, "alltoall")) shmem_long_alltoall(SHMEM_TEAM_WORLD, dest, source, 16);
    if (!strcmp(call, "reduce")) shmem_long_sum_reduce(SHMEM_TEAM_WORLD, dest, source, 1);
    if (!strcmp(call, "reduce_large")) shmem_long_sum_reduce(SHMEM_TEAM_WORLD, dest, source, kLarge);
    if (!strcmp(call, "malloc")) shmem_free(shmem_malloc(64));
    if (!strcmp(call, "split")) {
      shmem_team_t team;
      if (shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) == 0) shmem_team_destroy(team);
    }
  }
}

/* ---- towards the victim; by messages, since what is mapped stays ----------------------------- */

static void access_the_victim(const char* call) {
  for (;;) {
    if (!strcmp(call, "put")) shmem_long_put(dest, source, kLarge, victim);
    if (!strcmp(call, "put")) shmem_quiet();
    if (!strcmp(call, "put_nbi")) shmem_long_put_nbi(dest, source, 8, victim);
    if (!strcmp(call, "put_nbi")) shmem_quiet();
    if (!strcmp(call, "put_signal"))
      shmem_long_put_signal(dest, source, kLarge, &flag, 1, SHMEM_SIGNAL_ADD, victim), shmem_quiet();
    if (!strcmp(call, "get")) shmem_long_get(dest, source, kLarge, victim);
    if (!strcmp(call, "get_short")) (void)shmem_long_g(source, victim);
    if (!strcmp(call, "iget")) shmem_long_iget(dest, source, 2, 2, 100, victim);
    if (!strcmp(call, "fetch_add")) (void)shmem_long_atomic_fetch_add(&counter, 1, victim);
    if (!strcmp(call, "compare_swap")) (void)shmem_long_atomic_compare_swap(&counter, 0, 1, victim);
    if (!strcmp(call, "add")) shmem_long_atomic_add(&counter, 1, victim), shmem_quiet();
  }
}

static int is_of(const char* call, const char* const* names) {
  while (*names != NULL && strcmp(call, *names) != 0) ++names;
  return *names != NULL;
}
static const char* const kWords[] = {"wait_until",
                                     "wait_until_all",
                                     "wait_until_any",
                                     "wait_until_some",
                                     "wait_until_all_vector",
                                     "wait_until_any_vector",
                                     "signal_wait_until",
                                     "test",
                                     "test_all",
                                     "test_any",
                                     "test_some",
                                     "signal_fetch",
                                     NULL};
static const char* const kLocks[] = {"set_lock", "test_lock", "set_lock_contended", "test_lock_contended", NULL};
static const char* const kCollectives[] = {"barrier_all",     "sync_all", "team_sync", "barrier",  "broadcast",
                                           "broadcast_large", "collect",  "fcollect",  "alltoall", "reduce",
                                           "reduce_large",    "malloc",   "split",     NULL};

static void victims_part(const char* call) {
  if (is_of(call, kWords)) write_words();
  if (is_of(call, kCollectives)) call_all(call);
  if (strstr(call, "_contended") != NULL) take_locks(call);
  for (;;) shmem_quiet();
}

static void survivors_part(const char* call) {
  if (is_of(call, kWords)) await_words(call);
  if (is_of(call, kCollectives)) call_all(call);
  if (is_of(call, kLocks)) take_locks(call);
  access_the_victim(call);
}

int main(int argc, char** argv) {
  int provided = 0;
  if (argc != 7) return 2;
  const char* call = argv[1];
  victim = atoi(argv[2]);
  shmem_init_thread(strcmp(argv[6], "multiple") == 0 ? SHMEM_THREAD_MULTIPLE : SHMEM_THREAD_SINGLE, &provided);
  me = shmem_my_pe();
  n = shmem_n_pes();
  if (n > kMost) shmem_global_exit(2);
  if (me == victim && is_of(call, kLocks) && strstr(call, "_contended") == NULL) shmem_set_lock(&lock);
  shmem_barrier_all();
  if (me == victim) {
    die_after(atol(argv[3]));
    if (strcmp(argv[4], "busy") == 0) victims_part(call);
    sleep_on();
  }
  if (strcmp(argv[5], "all") != 0 && atoi(argv[5]) != me) sleep_on();
  survivors_part(call);
  return 0;
}
