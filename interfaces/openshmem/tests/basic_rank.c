/* A first test of everything: heap, static data, put, get, atomics, signals, waits, a context,
 * realloc. */
#include <shmem.h>
#include <shmemx.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define WORDS 1000
long counter;
static long words[WORDS];
static int last[50000];
static uint64_t signal_word;
static long initialised[4] = {1, 2, 3, 4};

static void check_static_data(int me, int next, int before) {
  EXPECT(initialised[3] == 4, "%ld", initialised[3]);
  long mine[3] = {me, me + 1, me + 2};
  shmem_put(words + 5, mine, 3, next);
  shmem_int_p(&last[49999], me, next);
  shmem_barrier_all();
  EXPECT(words[5] == before && words[7] == before + 2, "%ld %ld", words[5], words[7]);
  EXPECT(last[49999] == before, "%d", last[49999]);
  long got[3] = {0, 0, 0};
  shmem_get(got, words + 5, 3, next);
  EXPECT(got[0] == me && got[2] == me + 2, "%ld %ld", got[0], got[2]);
  EXPECT(shmem_g(&initialised[1], next) == 2, "the peer's initialiser");
}

static void check_heap(int me, int n, int next, int before) {
  long* block = shmem_malloc(WORDS * sizeof *block);
  EXPECT(block != NULL, "no memory");
  for (int i = 0; i < WORDS; ++i) block[i] = -1;
  shmem_barrier_all();
  for (int i = 0; i < WORDS; ++i) words[i] = me * WORDS + i;
  shmem_putmem_nbi(block, words, WORDS * sizeof *block, next);
  shmem_barrier_all();
  for (int i = 0; i < WORDS; ++i) EXPECT(block[i] == before * WORDS + i, "block[%d] is %ld", i, block[i]);
  block = shmem_realloc(block, 3 * WORDS * sizeof *block);
  for (int i = 0; i < WORDS; ++i) EXPECT(block[i] == before * WORDS + i, "block[%d] is %ld", i, block[i]);
  block[2 * WORDS] = me;
  shmem_barrier_all();
  EXPECT(shmem_g(block + 2 * WORDS, (me + 2) % n) == (me + 2) % n, "after realloc");
  shmem_free(block);
}

static void check_atomics(int me, int n) {
  for (int i = 0; i < 100; ++i) shmem_atomic_inc(&counter, 0);
  shmem_barrier_all();
  EXPECT(shmem_atomic_fetch(&counter, 0) == 100L * n, "%ld", shmem_g(&counter, 0));
  shmem_barrier_all();
  const long old = shmem_atomic_fetch_add(&counter, 1L, 0);
  EXPECT(old >= 100L * n && old < 101L * n, "%ld", old);
  shmem_barrier_all();
  if (me == 0) EXPECT(shmem_atomic_compare_swap(&counter, 101L * n, 7L, 0) == 101L * n, "%ld", counter);
  shmem_barrier_all();
  EXPECT(shmem_atomic_swap(&counter, 7L, 0) == 7, "%ld", counter);
}

static void check_signals(int me, int n, int next, int before) {
  shmem_ctx_t ctx;
  EXPECT(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0, "no context");
  for (int i = 1; i <= 50; ++i) {
    long value = 1000L * i + me;
    shmem_put_signal(ctx, &words[me], &value, 1, &signal_word, 1, SHMEM_SIGNAL_ADD, next);
    EXPECT(shmem_signal_wait_until(&signal_word, SHMEM_CMP_GE, (uint64_t)i) >= (uint64_t)i, "%d", i);
    EXPECT(words[before] >= 1000L * i + before, "words[%d] is %ld in round %d", before, words[before], i);
  }
  shmem_ctx_quiet(ctx);
  shmem_ctx_destroy(ctx);
  shmem_barrier_all();
  EXPECT(shmem_signal_fetch(&signal_word) == 50, "of %d PEs", n);
}

/* Hints change neither what arrives nor when; sessions may be started twice and stopped twice, on
 * every context. */
static void check_sessions(int me, int next, int before) {
  static long told[2];
  shmem_ctx_t contexts[] = {SHMEM_CTX_INVALID, SHMEM_CTX_DEFAULT, SHMEM_CTX_INVALID};
  EXPECT(shmem_ctx_create(SHMEM_CTX_SERIALIZED, &contexts[2]) == 0, "no context");
  const shmemx_ctx_session_config_t config = {.total_ops = 3};
  for (int i = 0; i < 3; ++i) {
    shmemx_ctx_session_start(contexts[i], SHMEMX_CTX_SESSION_BATCH, &config, SHMEMX_CTX_SESSION_TOTAL_OPS);
    shmemx_ctx_session_start(contexts[i], 0, NULL, 0);
    if (i > 0) {
      shmem_ctx_long_put_nbi(contexts[i], &told[0], (long[]){100 * i + me}, 1, next);
      shmem_ctx_long_atomic_add(contexts[i], &told[1], 1, next);
      shmem_ctx_quiet(contexts[i]);
      shmem_sync_all();
      EXPECT(told[0] == 100 * i + before, "%ld", told[0]);
      EXPECT(told[1] == i, "%ld", told[1]);
    }
    shmemx_ctx_session_stop(contexts[i]);
    shmemx_ctx_session_stop(contexts[i]);
    shmem_sync_all();
  }
  shmem_ctx_destroy(contexts[2]);
}

int main(int argc, char** argv) {
  (void)argc;
  (void)argv;
  shmem_init();
  const int me = shmem_my_pe();
  const int n = shmem_n_pes();
  const int next = (me + 1) % n;
  const int before = (me + n - 1) % n;
  check_static_data(me, next, before);
  check_heap(me, n, next, before);
  check_atomics(me, n);
  check_sessions(me, next, before);
  check_signals(me, n, next, before);
  const char* direct = getenv("HEDDLE_SHM_DIRECT");
  const int mapped = direct == NULL || strcmp(direct, "0") != 0;
  EXPECT((shmem_ptr(words, next) != NULL) == (mapped || n == 1), "shmem_ptr of static data");
  shmem_finalize();
  EXPECT(initialised[3] == 4 && words[before] == 50000L + before, "static data survives finalize");
  if (failures == 0) printf("PE %d of %d: all is well\n", me, n);
  return failures != 0;
}
