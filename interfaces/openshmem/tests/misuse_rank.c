/* The last PE makes one mistake, which the argument names; the others wait. misuse_test.py knows
 * the expected message. */
#include <pthread.h>
#include <shmem.h>
#include <shmemx.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static long word;
static long words[100];
static uint64_t signal_word;

static long held_by_0;

static long* freed; /* on every PE: a freed block of the heap */

/* A context that this thread makes private. */
static shmem_ctx_t private_ctx;
static void* put_from_another_thread(void* unused) {
  shmem_p(private_ctx, &word, 1L, 0);
  return unused;
}
static void* quiet_from_another_thread(void* unused) {
  shmem_ctx_quiet(private_ctx);
  return unused;
}
static void in_another_thread(void* (*what)(void*)) {
  pthread_t thread;
  if (shmem_ctx_create(SHMEM_CTX_PRIVATE, &private_ctx) != 0) exit(97);
  if (pthread_create(&thread, NULL, what, NULL) != 0) exit(97);
  pthread_join(thread, NULL);
}

static void mistake_in_memory(const char* name) {
  if (strcmp(name, "misaligned-add") == 0) shmem_atomic_add((long*)((char*)words + 4), 1L, 0);
  if (strcmp(name, "misaligned-fetch") == 0) shmem_int_atomic_fetch_inc((int*)((char*)words + 2), 0);
  if (strcmp(name, "misaligned-signal") == 0) {
    shmem_putmem_signal(words, words + 4, 8, (uint64_t*)((char*)words + 44), 1, SHMEM_SIGNAL_ADD, 0);
  }
  if (strcmp(name, "misaligned-wait") == 0) shmem_long_wait_until((long*)((char*)words + 4), SHMEM_CMP_EQ, 1);
  if (strcmp(name, "freed-put") == 0) shmem_p(freed, 1L, 0);
  if (strcmp(name, "freed-get") == 0) shmem_getmem(words, freed, 64, 0);
  if (strcmp(name, "freed-add") == 0) shmem_atomic_add(freed, 1L, 0);
  if (strcmp(name, "freed-wait") == 0) shmem_long_wait_until(freed, SHMEM_CMP_NE, -1);
  if (strcmp(name, "freed-lock") == 0) shmem_set_lock(freed);
  if (strcmp(name, "freed-source") == 0) shmem_long_sum_reduce(SHMEM_TEAM_WORLD, words, freed, 4);
  if (strcmp(name, "freed-psync") == 0) shmem_barrier(0, 0, shmem_n_pes(), freed);
  if (strcmp(name, "beyond-block") == 0) shmem_long_put(freed - 8, words, 9, 0);
  if (strcmp(name, "broadcast-overlap") == 0)
    shmem_long_broadcast(SHMEM_TEAM_WORLD, words, words + 1, 2, shmem_my_pe());
  if (strcmp(name, "fcollect-overlap") == 0) shmem_long_fcollect(SHMEM_TEAM_WORLD, words, words + 3, 2);
  if (strcmp(name, "alltoall-overlap") == 0) shmem_long_alltoall(SHMEM_TEAM_WORLD, words + 1, words, 1);
  if (strcmp(name, "alltoalls-overlap") == 0) shmem_long_alltoalls(SHMEM_TEAM_WORLD, words, words + 3, 2, 1, 2);
  if (strcmp(name, "others-put") == 0) in_another_thread(put_from_another_thread);
  if (strcmp(name, "others-quiet") == 0) in_another_thread(quiet_from_another_thread);
}

static void mistake(const char* name) {
  long local = 1;
  const int n = shmem_n_pes();
  shmem_ctx_t ctx = SHMEM_CTX_INVALID;
  if (strcmp(name, "pe") == 0) shmem_p(&word, 1L, n);
  if (strcmp(name, "negative-pe") == 0) shmem_putmem(&word, &local, sizeof local, -1);
  if (strcmp(name, "fetch-pe") == 0) shmem_atomic_fetch_add(&word, 1L, n + 5);
  if (strcmp(name, "nothing-to-pe") == 0) shmem_putmem(&word, &local, 0, n);
  if (strcmp(name, "stack") == 0) shmem_p(&local, 1L, 0);
  if (strcmp(name, "get-stack") == 0) shmem_getmem(&word, &local, sizeof local, 0);
  if (strcmp(name, "null") == 0) shmem_p((long*)NULL, 1L, 0);
  if (strcmp(name, "atomic-stack") == 0) shmem_atomic_inc(&local, 0);
  if (strcmp(name, "beyond") == 0) shmem_putmem(&word, words, (size_t)1 << 40, 0);
  if (strcmp(name, "too-many") == 0) shmem_long_put(&word, words, SIZE_MAX / 2, 0);
  if (strcmp(name, "stride") == 0) shmem_long_iput(words, words + 4, 0, 1, 2, 0);
  if (strcmp(name, "block-stride") == 0) shmemx_long_ibput(words, words + 4, 1, 2, 2, 2, 0);
  if (strcmp(name, "huge-stride") == 0) shmem_long_iput(words, words + 4, PTRDIFF_MAX / 16, 1, 100, 0);
  if (strcmp(name, "sig-op") == 0) shmem_putmem_signal(&word, &local, sizeof local, &signal_word, 1, 9, 0);
  if (strcmp(name, "sig-addr") == 0) {
    uint64_t mine = 0;
    shmem_putmem_signal(&word, &local, sizeof local, &mine, 1, SHMEM_SIGNAL_SET, 0);
  }
  if (strcmp(name, "cmp") == 0) shmem_wait_until(&word, 6, 1L);
  if (strcmp(name, "ivar") == 0) shmem_test(&local, SHMEM_CMP_EQ, 1L);
  if (strcmp(name, "ivars") == 0) shmem_long_wait_until_any(&local, 1, NULL, SHMEM_CMP_EQ, 1);
  if (strcmp(name, "invalid-ctx") == 0) shmem_p(ctx, &word, 1L, 0);
  if (strcmp(name, "destroyed-ctx") == 0) {
    shmem_ctx_create(0, &ctx);
    shmem_ctx_destroy(ctx);
    shmem_p(ctx, &word, 1L, 0);
  }
  if (strcmp(name, "destroyed-twice") == 0) {
    shmem_ctx_create(0, &ctx);
    shmem_ctx_destroy(ctx);
    shmem_ctx_destroy(ctx);
  }
  if (strcmp(name, "destroy-default") == 0) shmem_ctx_destroy(SHMEM_CTX_DEFAULT);
  shmem_team_t team = SHMEM_TEAM_INVALID;
  if (strcmp(name, "no-team") == 0) shmem_broadcast(team, words, words + 4, 1, 0);
  if (strcmp(name, "wild-team") == 0) shmem_team_sync((shmem_team_t)(uintptr_t)0x70007);
  if (strcmp(name, "destroy-world") == 0) shmem_team_destroy(SHMEM_TEAM_WORLD);
  if (strcmp(name, "root") == 0) shmem_long_broadcast(SHMEM_TEAM_WORLD, words, words + 4, 1, n);
  if (strcmp(name, "collective-dest") == 0) shmem_sum_reduce(SHMEM_TEAM_WORLD, &local, words, 1);
  if (strcmp(name, "collective-source") == 0) shmem_alltoall(SHMEM_TEAM_WORLD, words, &local, 1);
  if (strcmp(name, "overlap") == 0) shmem_max_reduce(SHMEM_TEAM_WORLD, words, words + 1, 2);
  if (strcmp(name, "alltoalls-stride") == 0) shmem_alltoalls(SHMEM_TEAM_WORLD, words, words + 4, 1, 0, 1);
  if (strcmp(name, "active-set") == 0) shmem_barrier(0, 1, n, words);
  if (strcmp(name, "active-set-alone") == 0) shmem_barrier(0, 0, n - 1, words);
  if (strcmp(name, "psync") == 0) shmem_sync(0, 0, n, &local);
  if (strcmp(name, "lock") == 0) shmem_set_lock(&local);
  if (strcmp(name, "lock-not-set") == 0) shmem_clear_lock(&word);
  if (strcmp(name, "lock-of-another") == 0) shmem_clear_lock(&held_by_0);
  if (strcmp(name, "null-source") == 0) shmem_long_put(words, NULL, 3, 0);
  if (strcmp(name, "null-source-nbi") == 0) shmem_putmem_nbi(words, NULL, 24, 0);
  if (strcmp(name, "null-source-stride") == 0) shmem_long_iput(words, NULL, 1, 2, 3, 0);
  if (strcmp(name, "null-source-signal") == 0) {
    shmem_long_put_signal(words, NULL, 3, &signal_word, 1, SHMEM_SIGNAL_SET, 0);
  }
  if (strcmp(name, "null-dest") == 0) shmem_long_get(NULL, words, 3, 0);
  if (strcmp(name, "null-dest-nbi") == 0) shmem_getmem_nbi(NULL, words, 24, 0);
  if (strcmp(name, "null-dest-stride") == 0) shmem_long_iget(NULL, words, 2, 1, 3, 0);
  if (strcmp(name, "null-element") == 0) shmem_long_put(words, NULL, 1, 0);
  if (strcmp(name, "free-stack") == 0) shmem_free(&local);
  if (strcmp(name, "alignment") == 0) shmem_align(24, 8);
  if (strcmp(name, "thread-level") == 0) {
    int provided;
    shmem_init_thread(7, &provided);
  }
  if (strcmp(name, "global-exit-3") == 0) shmem_global_exit(3);
  if (strcmp(name, "global-exit-0") == 0) {
    printf("flushed at the end");
    shmem_global_exit(0);
  }
}

/* Cases in which all PEs make the same calls. True: `name` is one of them. */
static int together(const char* name) {
  if (strcmp(name, "freed-twice") == 0) {
    void* block = shmem_malloc(8);
    shmem_free(block);
    shmem_free(block);
  } else if (strcmp(name, "realloc-freed") == 0) {
    void* block = shmem_malloc(8);
    shmem_free(block);
    shmem_realloc(block, 16);
  } else if (strcmp(name, "after-finalize") == 0) {
    shmem_finalize();
    shmem_p(&word, 1L, 0);
  } else if (strcmp(name, "quiet-after-finalize") == 0) {
    shmem_finalize();
    shmem_quiet();
  } else if (strcmp(name, "init-after-finalize") == 0) {
    shmem_finalize();
    shmem_init();
  } else if (strcmp(name, "collect-overlap") == 0) {
    shmem_long_collect(SHMEM_TEAM_WORLD, words, words + 2, 2);
  } else if (strcmp(name, "freed-collect") == 0) {
    shmem_long_collect(SHMEM_TEAM_WORLD, words, freed, 2);
  } else if (strcmp(name, "destroyed-team") == 0) {
    shmem_team_t team;
    shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, shmem_n_pes(), NULL, 0, &team);
    shmem_team_destroy(team);
    shmem_team_sync(team);
  } else if (strcmp(name, "exhausted") == 0) {
    EXPECT(shmem_malloc((size_t)100 << 20) == NULL, "more than there is");
    EXPECT(shmem_malloc((size_t)1 << 20) != NULL, "the heap is whole");
    EXPECT(shmem_calloc(SIZE_MAX / 2, 16) == NULL, "more than can be counted");
    EXPECT(shmem_align(64, SIZE_MAX) == NULL, "more than can be counted");
    shmem_finalize();
    exit(failures != 0);
  } else if (strcmp(name, "looks-like-a-mistake") == 0) {
    /* Interleaved elements, reallocated memory, a block up to its end, a broadcast in place. */
    long* block = shmem_malloc(9 * sizeof(long));
    EXPECT(block != NULL, "a new block");
    shmem_long_alltoalls(SHMEM_TEAM_WORLD, words, words + 1, 2, 2, 2);
    shmem_long_alltoalls(SHMEM_TEAM_WORLD, words, words + 1, 3, 1, 1);
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, block, block + 6, 3);
    shmem_long_p(block + 8, 1, 0);
    shmem_long_broadcast(SHMEM_TEAM_WORLD, block, block, 9, 0);
    shmem_long_put(block, words, 9, shmem_my_pe());
    /* The same call under another name, values that may differ, empty transfers from null. */
    if (shmem_my_pe() == 0) {
      shmem_sync_all();
    } else {
      shmem_team_sync(SHMEM_TEAM_WORLD);
    }
    shmem_long_collect(SHMEM_TEAM_WORLD, words, words + 50, shmem_my_pe() == 0 ? 0 : 5);
    shmem_long_put(words, NULL, 0, 0);
    shmem_long_get(NULL, words, 0, 0);
    shmem_long_put_signal(words, NULL, 0, &signal_word, 1, SHMEM_SIGNAL_SET, 0);
    /* One lock for each PE, one that two PEs want, and one for test_lock. */
    static long locks[3];
    shmem_set_lock(&locks[shmem_my_pe()]);
    shmem_set_lock(&locks[2]);
    shmem_clear_lock(&locks[2]);
    shmem_clear_lock(&locks[shmem_my_pe()]);
    if (shmem_test_lock(&locks[2]) == 0) shmem_clear_lock(&locks[2]);
    EXPECT(shmem_ptr(block, shmem_my_pe()) != NULL, "mapped whatever is checked");
    shmem_finalize();
    exit(failures != 0);
  } else if (strcmp(name, "invalid-is-nothing") == 0) {
    shmem_ctx_quiet(SHMEM_CTX_INVALID);
    shmem_ctx_fence(SHMEM_CTX_INVALID);
    shmem_ctx_destroy(SHMEM_CTX_INVALID);
    shmem_free(NULL);
    EXPECT(shmem_malloc(0) == NULL, "of nothing");
    EXPECT(shmem_malloc_with_hints(8, ~0L) != NULL, "hints that nobody knows");
    shmem_pcontrol(2);
    shmem_pcontrol(3, "for a tool", 1.5);
    shmem_set_cache_inv();
    shmem_clear_cache_inv();
    shmem_udcflush();
    shmem_set_cache_line_inv(&word);
    shmem_clear_cache_line_inv(&word);
    shmem_udcflush_line(&word);
    shmem_ctx_t ctx = SHMEM_CTX_DEFAULT;
    EXPECT(shmem_ctx_create(1L << 20, &ctx) != 0 && ctx == SHMEM_CTX_INVALID, "an unknown option");
    EXPECT(shmem_pe_accessible(shmem_n_pes()) == 0 && shmem_pe_accessible(-1) == 0, "no such PE");
    EXPECT(shmem_addr_accessible(&ctx, 0) == 0 && shmem_addr_accessible(&word, 0) == 1, "addresses");
    EXPECT(shmem_ptr(&ctx, 0) == NULL && shmem_ptr(&word, shmem_n_pes()) == NULL, "no pointer");
    shmem_finalize();
    exit(failures != 0);
  } else {
    return 0;
  }
  return 1;
}

/* Calls of all PEs, with other arguments on the last PE. */
static void unalike_in_heap(const char* name, int odd) {
  void* blocks[2] = {shmem_malloc(8), shmem_malloc(8)};
  if (strcmp(name, "malloc-sizes") == 0) shmem_malloc(odd ? 100 : 200);
  if (strcmp(name, "calloc-counts") == 0) shmem_calloc(odd ? 3 : 4, 8);
  if (strcmp(name, "align-sizes") == 0) shmem_align(64, odd ? 64 : 65);
  if (strcmp(name, "align-alignments") == 0) shmem_align(odd ? 128 : 64, 8);
  if (strcmp(name, "realloc-sizes") == 0) shmem_realloc(blocks[0], odd ? 17 : 16);
  if (strcmp(name, "other-block") == 0) shmem_free(blocks[odd]);
  if (strcmp(name, "malloc-or-free") == 0) {
    if (odd) shmem_free(blocks[0]);
    if (!odd) shmem_malloc(8);
  }
  shmem_free(blocks[0]);
  shmem_free(blocks[1]);
}
static void unalike_values(const char* name, int odd) {
  const shmem_team_t world = SHMEM_TEAM_WORLD;
  shmem_team_t teams[2];
  if (strcmp(name, "roots") == 0) shmem_long_broadcast(world, words, words + 50, 4, odd);
  if (strcmp(name, "lengths") == 0) shmem_long_broadcast(world, words, words + 50, odd ? 3 : 4, 0);
  if (strcmp(name, "no-length") == 0) shmem_long_fcollect(world, words, words + 50, odd ? 0 : 4);
  if (strcmp(name, "alltoall-lengths") == 0) shmem_long_alltoall(world, words, words + 50, odd ? 3 : 4);
  if (strcmp(name, "strides") == 0) shmem_long_alltoalls(world, words, words + 50, 1, odd ? 2 : 1, 2);
  if (strcmp(name, "reduce-lengths") == 0) shmem_long_sum_reduce(world, words, words + 50, odd ? 3 : 2);
  if (strcmp(name, "scan-lengths") == 0) shmemx_long_sum_inscan(world, words, words + 50, odd ? 3 : 2);
  if (strcmp(name, "splits") == 0) shmem_team_split_strided(world, 0, 1, odd ? 1 : 2, NULL, 0, teams);
  if (strcmp(name, "ranges") == 0) shmem_team_split_2d(world, odd ? 1 : 2, NULL, 0, teams, NULL, 0, teams + 1);
}
static void unalike_calls(const char* name, int odd) {
  const shmem_team_t world = SHMEM_TEAM_WORLD;
  if (strcmp(name, "types") == 0) {
    if (odd) shmem_int_sum_reduce(world, (int*)words, (int*)(words + 50), 2);
    if (!odd) shmem_long_sum_reduce(world, words, words + 50, 2);
  }
  if (strcmp(name, "operations") == 0) {
    if (odd) shmem_long_max_reduce(world, words, words + 50, 2);
    if (!odd) shmem_long_sum_reduce(world, words, words + 50, 2);
  }
  if (strcmp(name, "collect-or-barrier") == 0) {
    if (odd) shmem_barrier_all();
    if (!odd) shmem_long_collect(world, words, words + 50, 2);
  }
  if (strcmp(name, "sync-or-barrier") == 0) {
    if (odd) shmem_sync_all();
    if (!odd) shmem_barrier_all();
  }
  if (strcmp(name, "finalize-or-barrier") == 0) {
    if (odd) shmem_finalize();
    if (!odd) shmem_barrier_all();
  }
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  if (strcmp(name, "before-init") == 0) return shmem_my_pe();
  if (strcmp(name, "put-before-init") == 0) shmem_p(&word, 1L, 0);
  if (strcmp(name, "quiet-before-init") == 0) shmem_quiet();
  if (strcmp(name, "cache-before-init") == 0) shmem_udcflush();
  if (strcmp(name, "malloc-before-init") == 0) return shmem_malloc(8) != NULL;
  const char* rank = getenv("HEDDLE_LOCAL_RANK");
  if (strcmp(name, "sizes-differ") == 0 && rank != NULL) {
    setenv("SHMEM_SYMMETRIC_SIZE", rank[0] == '0' ? "8M" : "9M", 1);
  }
  int provided;
  shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
  long* kept = shmem_malloc(8 * sizeof(long));
  freed = shmem_malloc(8 * sizeof(long));
  shmem_free(freed);
  EXPECT(freed == kept + 8, "the allocator has lain two blocks apart that it has room for side by side");
  if (together(name)) return 0;
  unalike_in_heap(name, shmem_my_pe() == shmem_n_pes() - 1);
  unalike_values(name, shmem_my_pe() == shmem_n_pes() - 1);
  unalike_calls(name, shmem_my_pe() == shmem_n_pes() - 1);
  if (shmem_my_pe() == 0) shmem_set_lock(&held_by_0);
  shmem_barrier_all();
  if (shmem_my_pe() == shmem_n_pes() - 1) {
    mistake(name);
    mistake_in_memory(name);
    fprintf(stderr, "the mistake %s went by unnoticed\n", name);
    shmem_global_exit(99);
  }
  shmem_barrier_all();
  shmem_barrier_all();
  return 98;
}
