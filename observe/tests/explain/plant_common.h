/* What the programs of planted delays share: options, computing for a known time, and the truth as
 * one line of JSON. C11, also for C++. */
#ifndef HEDDLE_TESTS_PLANT_COMMON_H
#define HEDDLE_TESTS_PLANT_COMMON_H

#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PLANT_MS INT64_C(1000000)

static inline int64_t plant_clock(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static inline int64_t plant_now(void) {
  return plant_clock(CLOCK_MONOTONIC);
}

/* Computes for this time by the wall clock, however busy the machine is: a delay of that length. */
static inline void plant_compute(int64_t ns) {
  const int64_t end = plant_now() + ns;
  while (plant_now() < end) {
  }
}

/* Does this amount of work: it takes longer if the thread has no core. Returns the time that it
 * took. */
static inline int64_t plant_work(int64_t ns) {
  const int64_t begin = plant_now();
  const int64_t end = plant_clock(CLOCK_THREAD_CPUTIME_ID) + ns;
  while (plant_clock(CLOCK_THREAD_CPUTIME_ID) < end) {
  }
  return plant_now() - begin;
}

/* A process that wants the calling thread's core for itself, until plant_release. */
static inline pid_t plant_rival(void) {
  const int core = sched_getcpu();
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) {
  }
}

static inline void plant_release(pid_t rival) {
  kill(rival, SIGKILL);
}

/* The cause that heddle explain must put first, its rank, and its length for all waiting ranks
 * together. rank < 0: no particular rank. */
static inline void plant_truth(const char* cause, int rank, int64_t ns) {
  printf("truth {\"cause\": \"%s\", \"rank\": %d, \"ns\": %" PRId64 "}\n", cause, rank, ns);
  fflush(stdout);
}

/* --plant NAME; --list prints the names, each with its number of ranks. */
typedef struct plant {
  const char* name;
  int ranks;
  void (*run)(int64_t ns);
} plant;

static inline const plant* plant_chosen(int argc, char** argv, const plant* plants, int count) {
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    for (int i = 0; i < count; ++i) printf("%s %d\n", plants[i].name, plants[i].ranks);
    exit(0);
  }
  for (int i = 0; argc >= 3 && i < count; ++i) {
    if (strcmp(argv[1], "--plant") == 0 && strcmp(argv[2], plants[i].name) == 0) return &plants[i];
  }
  fprintf(stderr, "usage: --list, or --plant NAME [MILLISECONDS]\n");
  exit(2);
}

static inline int64_t plant_length(int argc, char** argv) {
  return (argc > 3 ? strtoll(argv[3], NULL, 10) : 150) * PLANT_MS;
}

#endif
