/* To be compiled with -fsanitize=thread, as a user's program may be, beside a library that is not:
 * two threads hand data to each other by heddle_put_signal (or a put and an atomic) and
 * heddle_signal_wait. They are ranks of an inproc job, or workers of one rank.
 *
 *   tsan_user RANKS TRANSPORT HOW      HOW: signal, atomic, or race: one thread reads once what the
 *                                      other may write
 */
#include <heddle/heddle.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 512
#define ROUNDS 20

typedef struct memory {
  uint64_t data[WORDS];
  uint64_t signal;
} memory;

static int ranks;
static const char* transport;
static const char* how;
static heddle_inproc_job job;
static heddle_context only;     /* one rank: the context of both threads */
static heddle_region own_of[2]; /* and what each of them is put to */
static uint64_t sources[2][WORDS];

static void check(heddle_status status, const char* what) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", what, heddle_last_error());
  exit(2);
}

static heddle_context join(const char* bootstrap, uint32_t rank) {
  heddle_context_options options;
  heddle_context context;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.bootstrap = bootstrap;
  options.transport = transport;
  options.job = job;
  options.rank = rank;
  check(heddle_context_join(&options, &context), "join");
  return context;
}

/* Gives the other thread's memory, and this one's. */
static heddle_remote_region meet(heddle_context context, uint32_t me, memory** mine) {
  heddle_remote_region remotes[2];
  heddle_region region = own_of[me];
  size_t bytes = 0;
  if (ranks == 2) {
    check(heddle_region_alloc(context, sizeof(memory), &region), "alloc");
    check(heddle_region_exchange(context, region, remotes), "exchange");
  } else {
    unsigned char packed[HEDDLE_PACKED_REGION_BYTES];
    bytes = sizeof packed;
    check(heddle_region_pack(own_of[1 - me], packed, &bytes), "pack");
    check(heddle_region_unpack(context, packed, bytes, &remotes[1 - me]), "unpack");
  }
  check(heddle_region_address(region, (void**)mine, &bytes), "address");
  return remotes[1 - me];
}

static void give(heddle_worker worker, heddle_remote_region there, uint32_t me, uint64_t round) {
  const heddle_remote target = {there, offsetof(memory, data)};
  const heddle_remote word = {there, offsetof(memory, signal)};
  for (uint64_t i = 0; i < WORDS; ++i) sources[me][i] = round + i;
  if (strcmp(how, "atomic") == 0) {
    check(heddle_put(worker, sources[me], sizeof sources[me], target, NULL), "put");
    check(heddle_quiet(worker), "quiet");
    check(heddle_atomic(worker, HEDDLE_ADD64, word, 1, NULL), "atomic");
  } else {
    const heddle_signal signal = {word, round, HEDDLE_SIGNAL_SET};
    check(heddle_put_signal(worker, sources[me], sizeof sources[me], target, &signal, NULL), "put_signal");
  }
}

static void take(heddle_worker worker, const memory* mine, uint64_t round) {
  check(heddle_signal_wait(worker, &mine->signal, HEDDLE_GE, round, HEDDLE_FOREVER), "signal_wait");
  for (uint64_t i = 0; i < WORDS; ++i) {
    if (mine->data[i] == round + i) continue;
    fprintf(stderr, "round %llu brought something else\n", (unsigned long long)round);
    exit(3);
  }
}

static void* side(void* number) {
  const uint32_t me = (uint32_t)(uintptr_t)number;
  const heddle_context context = ranks == 2 ? join("inproc", me) : only;
  heddle_worker worker;
  memory* mine;
  check(heddle_worker_open(context, NULL, &worker), "worker");
  const heddle_remote_region there = meet(context, me, &mine);
  for (uint64_t round = 1; round <= ROUNDS; ++round) {
    if (me == 1) take(worker, mine, round);
    give(worker, there, me, round);
    if (me == 0 && strcmp(how, "race") == 0) {
      volatile uint64_t seen = mine->data[7]; /* the answer may be on its way */
      (void)seen;
    }
    if (me == 0) take(worker, mine, round);
  }
  check(heddle_quiet(worker), "quiet");
  if (ranks == 2) check(heddle_context_leave(context), "leave");
  return NULL;
}

int main(int argc, char** argv) {
  pthread_t threads[2];
  if (argc != 4) return 2;
  ranks = atoi(argv[1]);
  transport = argv[2];
  how = argv[3];
  if (ranks == 2) {
    check(heddle_inproc_create(2, &job), "create");
  } else {
    only = join("single", 0);
    for (int i = 0; i < 2; ++i) check(heddle_region_alloc(only, sizeof(memory), &own_of[i]), "alloc");
  }
  for (uintptr_t i = 0; i < 2; ++i) {
    if (pthread_create(&threads[i], NULL, side, (void*)i) != 0) return 2;
  }
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  if (ranks == 1) check(heddle_context_leave(only), "leave");
  puts("done");
  return 0;
}
