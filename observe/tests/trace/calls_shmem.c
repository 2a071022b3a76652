/* Calls of OpenSHMEM whose names, arguments and order calls_test.py knows, by two PEs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <shmem.h>
#include <stdio.h>

static long word;
static long counter;
static float number;
static int source[4] = {1, 2, 3, 4};
static int dest[4];

int main(void) {
  shmem_init();
  const int other = 1 - shmem_my_pe();
  shmem_float_p(&number, 1.5f, other);
  shmem_int_put(dest, source, 4, other);
  shmem_fence();
  shmem_long_p(&word, -3, other);
  while (!shmem_long_test(&word, SHMEM_CMP_EQ, -3)) continue;
  shmem_long_wait_until(&word, SHMEM_CMP_LE, -3);
  shmem_ctx_long_atomic_add(SHMEM_CTX_DEFAULT, &counter, 5, other);
  shmem_barrier_all();
  const int good = counter == 5 && number == 1.5f && dest[3] == 4;
  shmem_int_sum_reduce(SHMEM_TEAM_WORLD, dest, source, 4);
  shmem_finalize();
  printf("wrappers: %s\n", dlsym(RTLD_DEFAULT, "heddle_shmem_calls") != NULL ? "yes" : "no");
  return good ? 0 : 1;
}
