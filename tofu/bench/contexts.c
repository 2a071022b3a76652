/* Random updates by many threads over OpenSHMEM, as the paper on many threads over Tofu measured
 * it: a context each, or the default context for all.
 *
 *   heddle_tofu_contexts [THREADS [own|default [UPDATES [WORDS]]]]
 *
 * An update gets a word of a random PE's table, changes it (XOR), and puts it back, each waited
 * for. Each thread has words of its own in every table, so that no update is lost; all is done
 * twice, after which all words must be zero again. It prints millions of updates a second of all
 * PEs.
 *
 * Under `heddle run --utofu SHAPE` with HEDDLE_TRANSPORT=utofu and UTOFU_EMU_MODEL=1 the times of
 * the emulator's timing model are printed too: these are a model's estimate, and the only times
 * that say something about Tofu. */
#define _GNU_SOURCE /* RTLD_NOLOAD, pthread_barrier_t */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostThreads = 256 };

struct player {
  struct bench* bench;
  int number;
  pthread_t id;
  shmem_ctx_t context;
  uint64_t model_ns;
};

struct bench {
  int threads, own, pe, pes;
  uint64_t updates, words;
  uint64_t* table;
  pthread_barrier_t all_threads;
  struct player players[kMostThreads];
  uint64_t (*model_now)(void);
};

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static uint64_t next_random(uint64_t* state) {
  uint64_t x = *state += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

static void sweep(const struct player* player) {
  const struct bench* const bench = player->bench;
  const uint64_t players = (uint64_t)bench->pes * (uint64_t)bench->threads;
  const uint64_t own = (uint64_t)bench->pe * (uint64_t)bench->threads + (uint64_t)player->number;
  uint64_t state = own * 0xD1342543DE82EF95u;
  for (uint64_t i = 0; i < bench->updates; i++) {
    const uint64_t random = next_random(&state);
    const int pe = (int)((random >> 40) % (uint64_t)bench->pes);
    uint64_t* const word = &bench->table[random % (bench->words / players) * players + own];
    shmem_ctx_uint64_p(player->context, word, shmem_ctx_uint64_g(player->context, word, pe) ^ random, pe);
    shmem_ctx_quiet(player->context); /* the next may be of the same word */
  }
}

static void* run(void* argument) {
  struct player* const player = argument;
  struct bench* const bench = player->bench;
  player->context = SHMEM_CTX_DEFAULT;
  if (bench->own && shmem_ctx_create(SHMEM_CTX_PRIVATE, &player->context) != 0) {
    fprintf(stderr, "heddle_tofu_contexts: no context for thread %d\n", player->number);
    shmem_global_exit(1);
  }
  pthread_barrier_wait(&bench->all_threads);
  const uint64_t model = bench->model_now ? bench->model_now() : 0;
  sweep(player);
  player->model_ns = (bench->model_now ? bench->model_now() : 0) - model;
  /* the main thread looks whether anything was written */
  pthread_barrier_wait(&bench->all_threads);
  pthread_barrier_wait(&bench->all_threads);
  sweep(player);
  if (bench->own) shmem_ctx_destroy(player->context);
  return NULL;
}

static uint64_t marks(const struct bench* bench) {
  uint64_t all = 0;
  for (uint64_t i = 0; i < bench->words; i++) all += bench->table[i] != 0;
  return all;
}

static void find_model(struct bench* bench) {
  void* const library = dlopen("libtofucom.so", RTLD_NOW | RTLD_NOLOAD);
  const char* const on = getenv("UTOFU_EMU_MODEL");
  if (!library || !on || strcmp(on, "0") == 0) return;
  *(void**)&bench->model_now = dlsym(library, "utofu_emu_model_now_ns");
}

static int understand(struct bench* bench, int argc, char** argv) {
  bench->threads = argc > 1 ? atoi(argv[1]) : 1;
  bench->own = argc <= 2 || strcmp(argv[2], "own") == 0;
  bench->updates = argc > 3 ? strtoull(argv[3], NULL, 0) : 100;
  bench->words = argc > 4 ? strtoull(argv[4], NULL, 0) : 4096;
  return bench->threads >= 1 && bench->threads <= kMostThreads && bench->updates >= 1 && argc <= 5 &&
         (bench->own || strcmp(argv[2], "default") == 0) &&
         bench->words >= (uint64_t)bench->threads * (uint64_t)bench->pes;
}

static void report(const struct bench* bench, double wall_us) {
  uint64_t model_ns = 0;
  for (int i = 0; i < bench->threads; i++)
    if (bench->players[i].model_ns > model_ns) model_ns = bench->players[i].model_ns;
  const double updates = (double)bench->updates * bench->threads * bench->pes;
  printf("updates, %d PEs, %d threads, %s: %.3f M/s on the wall", bench->pes, bench->threads,
         bench->own ? "a context each" : "the default context", updates / wall_us);
  if (model_ns > 0) printf(", %.2f M/s in the model", updates / ((double)model_ns / 1e3));
  printf(": right\n");
}

int main(int argc, char** argv) {
  static struct bench bench; /* all zero */
  int provided = 0;
  if (shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) != 0 || provided != SHMEM_THREAD_MULTIPLE) return 1;
  bench.pe = shmem_my_pe();
  bench.pes = shmem_n_pes();
  if (!understand(&bench, argc, argv)) {
    fprintf(stderr,
            "heddle_tofu_contexts [THREADS [own|default [UPDATES [WORDS]]]], a word for each thread of all PEs\n");
    shmem_global_exit(2);
  }
  bench.table = shmem_calloc(bench.words, sizeof *bench.table);
  if (!bench.table) shmem_global_exit(1);
  find_model(&bench);
  pthread_barrier_init(&bench.all_threads, NULL, (unsigned)bench.threads + 1);
  for (int i = 0; i < bench.threads; i++) {
    bench.players[i].bench = &bench;
    bench.players[i].number = i;
    if (pthread_create(&bench.players[i].id, NULL, run, &bench.players[i]) != 0) shmem_global_exit(1);
  }
  pthread_barrier_wait(&bench.all_threads);
  const double began = now_us();
  pthread_barrier_wait(&bench.all_threads);
  const double wall_us = now_us() - began;
  shmem_barrier_all(); /* all updates of the first sweep are done */
  int failed = bench.updates >= 100 && marks(&bench) == 0;
  shmem_barrier_all(); /* and all have looked */
  pthread_barrier_wait(&bench.all_threads);
  for (int i = 0; i < bench.threads; i++) pthread_join(bench.players[i].id, NULL);
  shmem_barrier_all();
  failed |= marks(&bench) != 0;
  if (failed) {
    fprintf(stderr, "heddle_tofu_contexts: PE %d: %" PRIu64 " words are wrong\n", bench.pe, marks(&bench));
    shmem_global_exit(1);
  }
  if (bench.pe == 0) report(&bench, wall_us);
  shmem_free(bench.table);
  shmem_finalize();
  return 0;
}
