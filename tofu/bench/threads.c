/* Many threads on one worker or on one each, as the papers on Tofu measured it: rank 0's thread t
 * plays with rank 1's.
 *
 *   heddle_tofu_threads pingpong|put|get [THREADS [WORKERS [BYTES [ROUNDS
 *   [shared|delegate|offload|mutex [EVERY]]]]]]
 *
 * pingpong: puts into the partner's memory, whose last word the partner polls; half a round trip.
 * put, get: rounds without waiting, then a flush, and one after EVERY so many, too; millions a
 * second of one rank, from 1 KiB on also what that is in GB/s. Neighbouring threads share a worker
 * if there are more threads, in the mode named. All arriving data is checked.
 *
 * Under `heddle run --utofu 2x1x1x1x1x1 -n 2` with UTOFU_EMU_MODEL=1 the times of the emulator's
 * timing model are printed too: these are a model's estimate, and the only times that say something
 * about Tofu. */
#define _GNU_SOURCE /* RTLD_NOLOAD, pthread_barrier_t */
#include <dlfcn.h>
#include <heddle/heddle.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostThreads = 256, kSlots = 16 };
enum kind { kPingpong, kPut, kGet };

struct thread {
  struct bench* bench;
  int number;
  pthread_t id;
  heddle_worker worker;
  pthread_mutex_t* lock; /* null: none */
  uint64_t* source;      /* memory of the program: kSlots messages */
  uint64_t model_ns;
  double wall_us;
};

struct bench {
  heddle_context context;
  uint32_t rank;
  enum kind kind;
  int threads, workers;
  size_t words;
  uint64_t rounds, every;
  heddle_sharing sharing;
  int locked;       /* mode mutex: one lock around each call of an exclusive worker */
  uint64_t* memory; /* kSlots messages a thread, which the partner writes or reads */
  heddle_remote_region theirs;
  pthread_barrier_t all_threads;
  heddle_worker open[kMostThreads];
  pthread_mutex_t locks[kMostThreads]; /* of the workers */
  struct thread players[kMostThreads];
  uint64_t (*model_now)(void);
  void (*model_saw)(const volatile void*);
};

static void check(heddle_status status, const char* what) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s: %s\n", what, heddle_status_name(status), heddle_last_error());
  exit(1);
}

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void take_turn(const struct thread* thread) {
  if (thread->lock != NULL) pthread_mutex_lock(thread->lock);
}

static void end_turn(const struct thread* thread) {
  if (thread->lock != NULL) pthread_mutex_unlock(thread->lock);
}

static uint64_t model_now(const struct bench* bench) {
  return bench->model_now ? bench->model_now() : 0;
}

static size_t offset_of(const struct thread* thread, uint64_t serial) {
  return ((size_t)thread->number * kSlots + serial % kSlots) * thread->bench->words * sizeof(uint64_t);
}

static uint64_t word_of(uint32_t rank, int thread, uint64_t serial, size_t i) {
  return ((uint64_t)(rank + 1) << 56) ^ ((uint64_t)(thread + 1) << 44) ^ (serial << 8) ^ i;
}

/* The last word tells which message it is: no other holds it. */
static void fill(const struct thread* thread, uint64_t serial) {
  uint64_t* const words = thread->source + serial % kSlots * thread->bench->words;
  for (size_t i = 0; i < thread->bench->words; i++) words[i] = word_of(thread->bench->rank, thread->number, serial, i);
}

static void put(struct thread* thread, uint64_t serial) {
  const struct bench* const bench = thread->bench;
  const heddle_remote target = {bench->theirs, offset_of(thread, serial)};
  take_turn(thread);
  check(heddle_put(thread->worker, thread->source + serial % kSlots * bench->words, bench->words * sizeof(uint64_t),
                   target, NULL),
        "heddle_put");
  end_turn(thread);
}

static void await(struct thread* thread, uint64_t serial) {
  struct bench* const bench = thread->bench;
  const uint64_t* const words = bench->memory + offset_of(thread, serial) / sizeof(uint64_t);
  for (size_t i = bench->words; i-- > 0;) {
    const uint64_t wanted = word_of(bench->rank ^ 1, thread->number, serial, i);
    while (__atomic_load_n(&words[i], __ATOMIC_ACQUIRE) != wanted) {
      take_turn(thread);
      const int moved = heddle_worker_progress(thread->worker);
      end_turn(thread);
      if (moved < 0) check((heddle_status)moved, "heddle_worker_progress");
      sched_yield();
    }
  }
  if (bench->model_saw) bench->model_saw(&words[bench->words - 1]);
}

static void play(struct thread* thread) {
  struct bench* const bench = thread->bench;
  for (uint64_t round = 1; round <= bench->rounds; round++) {
    if (bench->rank == 1) await(thread, round);
    fill(thread, round); /* its last use was kSlots round trips ago */
    put(thread, round);
    if (bench->rank == 0) await(thread, round);
  }
}

static void quiet(struct thread* thread) {
  take_turn(thread);
  check(heddle_quiet(thread->worker), "heddle_quiet");
  end_turn(thread);
}

static void stream(struct thread* thread) {
  struct bench* const bench = thread->bench;
  for (uint64_t round = 1; round <= bench->rounds; round++) {
    if (bench->every != 0 && round % bench->every == 0) quiet(thread);
    if (bench->kind == kPut) {
      put(thread, round);
      continue;
    }
    const heddle_remote source = {bench->theirs, offset_of(thread, round)};
    take_turn(thread);
    check(heddle_get(thread->worker, thread->source + round % kSlots * bench->words, bench->words * sizeof(uint64_t),
                     source, NULL),
          "heddle_get");
    end_turn(thread);
  }
}

static void check_stream(const struct thread* thread) {
  const struct bench* const bench = thread->bench;
  const uint64_t* const words =
      bench->kind == kGet ? thread->source : bench->memory + offset_of(thread, 0) / sizeof(uint64_t);
  for (uint64_t slot = 0; slot < kSlots && slot < bench->rounds; slot++)
    for (size_t i = 0; i < bench->words; i++)
      if (words[(slot + 1) % kSlots * bench->words + i] !=
          word_of(bench->rank ^ 1, thread->number, (slot + 1) % kSlots, i)) {
        fprintf(stderr, "thread %d: message %" PRIu64 " is wrong in word %zu\n", thread->number, slot, i);
        exit(1);
      }
}

static void* run(void* argument) {
  struct thread* const thread = argument;
  struct bench* const bench = thread->bench;
  pthread_barrier_wait(&bench->all_threads);
  const double wall = now_us();
  const uint64_t model = model_now(bench);
  if (bench->kind == kPingpong) {
    play(thread);
  } else {
    stream(thread);
    quiet(thread);
  }
  thread->wall_us = now_us() - wall;
  thread->model_ns = model_now(bench) - model;
  pthread_barrier_wait(&bench->all_threads);
  return NULL;
}

static void find_model(struct bench* bench) {
  void* const library = dlopen("libtofucom.so", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return;
  const char* const on = getenv("UTOFU_EMU_MODEL");
  if (!on || strcmp(on, "0") == 0) return;
  *(void**)&bench->model_now = dlsym(library, "utofu_emu_model_now_ns");
  *(void**)&bench->model_saw = dlsym(library, "utofu_emu_model_saw");
}

static void join(struct bench* bench) {
  check(heddle_context_join(NULL, &bench->context), "heddle_context_join");
  uint32_t size = 0;
  check(heddle_context_rank(bench->context, &bench->rank), "rank");
  check(heddle_context_size(bench->context, &size), "size");
  if (size != 2) {
    fprintf(stderr, "heddle_tofu_threads: 2 ranks play, not %" PRIu32 "; start with heddle run -n 2\n", size);
    exit(2);
  }
  heddle_worker_options options = {.size = sizeof options, .sharing = HEDDLE_SHARING_EXCLUSIVE};
  if (bench->workers < bench->threads) options.sharing = bench->sharing;
  for (int i = 0; i < bench->workers; i++) {
    check(heddle_worker_open(bench->context, &options, &bench->open[i]), "heddle_worker_open");
    pthread_mutex_init(&bench->locks[i], NULL);
  }
  const size_t message = bench->words * sizeof(uint64_t);
  heddle_region region;
  check(heddle_region_alloc(bench->context, (size_t)bench->threads * kSlots * message, &region), "heddle_region_alloc");
  void* address = NULL;
  check(heddle_region_address(region, &address, NULL), "heddle_region_address");
  bench->memory = address;
  for (int i = 0; i < bench->threads; i++) {
    struct thread* const thread = &bench->players[i];
    thread->bench = bench;
    thread->number = i;
    thread->worker = bench->open[i * bench->workers / bench->threads];
    if (bench->locked && bench->workers < bench->threads)
      thread->lock = &bench->locks[i * bench->workers / bench->threads];
    thread->source = calloc(kSlots, message);
    if (!thread->source) exit(1);
    for (uint64_t slot = 0; slot < kSlots; slot++) {
      uint64_t* const words = bench->kind == kGet ? bench->memory + offset_of(thread, slot) / sizeof(uint64_t)
                                                  : thread->source + slot * bench->words;
      for (size_t word = 0; word < bench->words && bench->kind != kPingpong; word++)
        words[word] = word_of(bench->rank, i, slot, word);
    }
  }
  heddle_remote_region all[2];
  check(heddle_region_exchange(bench->context, region, all), "heddle_region_exchange");
  bench->theirs = all[bench->rank ^ 1];
  find_model(bench);
}

static void report(const struct bench* bench) {
  static const char* const kNames[] = {"pingpong", "put", "get"};
  double wall = 0;
  double model = 0;
  for (int i = 0; i < bench->threads; i++) {
    const struct thread* const thread = &bench->players[i];
    if (thread->wall_us > wall) wall = thread->wall_us;
    if ((double)thread->model_ns / 1e3 > model) model = (double)thread->model_ns / 1e3;
  }
  const double rounds = (double)bench->rounds;
  printf("%s, %zu bytes, %d threads on %d workers: ", kNames[bench->kind], bench->words * sizeof(uint64_t),
         bench->threads, bench->workers);
  if (bench->kind == kPingpong) {
    printf("%.2f us on the wall", wall / rounds / 2);
    if (model > 0) printf(", %.2f us in the model", model / rounds / 2);
  } else {
    printf("%.3f M/s on the wall", rounds * bench->threads / wall);
    const double bytes = rounds * bench->threads * (double)(bench->words * sizeof(uint64_t));
    if (model > 0) {
      printf(", %.2f M/s", rounds * bench->threads / model);
      if (bench->words * sizeof(uint64_t) >= 1024) printf(" = %.2f GB/s", bytes / model / 1e3);
      printf(" in the model");
    }
  }
  printf(": right\n");
}

static int understand(struct bench* bench, int argc, char** argv) {
  static const struct {
    const char* name;
    heddle_sharing sharing;
  } kModes[] = {{"shared", HEDDLE_SHARING_SHARED},
                {"delegate", HEDDLE_SHARING_DELEGATE},
                {"offload", HEDDLE_SHARING_OFFLOAD},
                {"mutex", HEDDLE_SHARING_EXCLUSIVE}};
  static const char* const kKinds[] = {"pingpong", "put", "get"};
  int kind = 0;
  while (kind < 3 && (argc < 2 || strcmp(argv[1], kKinds[kind]) != 0)) kind++;
  bench->kind = (enum kind)kind;
  bench->threads = argc > 2 ? atoi(argv[2]) : 1;
  bench->workers = argc > 3 ? atoi(argv[3]) : bench->threads;
  bench->words = (argc > 4 ? strtoull(argv[4], NULL, 0) : 8) / sizeof(uint64_t);
  bench->rounds = argc > 5 ? strtoull(argv[5], NULL, 0) : 100;
  bench->every = argc > 7 ? strtoull(argv[7], NULL, 0) : 0;
  bench->sharing = argc > 6 ? HEDDLE_SHARING_DEFAULT : HEDDLE_SHARING_SHARED;
  for (size_t i = 0; argc > 6 && i < sizeof kModes / sizeof kModes[0]; i++)
    if (strcmp(argv[6], kModes[i].name) == 0) bench->sharing = kModes[i].sharing;
  bench->locked = bench->sharing == HEDDLE_SHARING_EXCLUSIVE;
  return kind < 3 && bench->threads >= 1 && bench->threads <= kMostThreads && bench->workers >= 1 &&
         bench->workers <= bench->threads && bench->words >= 1 && bench->rounds >= 1 &&
         bench->sharing != HEDDLE_SHARING_DEFAULT && argc <= 8;
}

int main(int argc, char** argv) {
  static struct bench bench; /* all zero */
  if (!understand(&bench, argc, argv)) {
    fprintf(stderr,
            "heddle_tofu_threads pingpong|put|get [THREADS [WORKERS [BYTES [ROUNDS [shared|delegate|offload|mutex "
            "[EVERY]]]]]]\n");
    return 2;
  }
  join(&bench);
  pthread_barrier_init(&bench.all_threads, NULL, (unsigned)bench.threads);
  for (int i = 1; i < bench.threads; i++)
    if (pthread_create(&bench.players[i].id, NULL, run, &bench.players[i]) != 0) return 1;
  run(&bench.players[0]);
  for (int i = 1; i < bench.threads; i++) pthread_join(bench.players[i].id, NULL);
  check(heddle_context_barrier(bench.context, bench.open[0], HEDDLE_FOREVER), "heddle_context_barrier");
  if (bench.kind != kPingpong)
    for (int i = 0; i < bench.threads; i++) check_stream(&bench.players[i]);
  if (bench.rank == 0) report(&bench);
  check(heddle_context_barrier(bench.context, bench.open[0], HEDDLE_FOREVER), "heddle_context_barrier");
  for (int i = 0; i < bench.threads; i++) free(bench.players[i].source);
  check(heddle_context_leave(bench.context), "heddle_context_leave");
  return 0;
}
