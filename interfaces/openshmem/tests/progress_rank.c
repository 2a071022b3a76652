/* The last PE only spins: in its own loop on memory, in shmem_test, in an atomic fetch on itself,
 * in shmem_signal_fetch. Meanwhile the others complete puts, gets, atomics and signals to it, and
 * release it only afterwards. */
#include <sched.h>
#include <shmem.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define BYTES (1 << 20)

static long counter;
static long go;
static uint64_t signal_word;
static char block[BYTES];

static void work(int me, int victim, int round) {
  static char source[BYTES];
  static char copy[BYTES];
  const size_t share = BYTES / 16;
  memset(source, 'a' + (me + round) % 20, share);
  shmem_putmem(block + (size_t)me * share, source, share, victim);
  shmem_quiet();
  shmem_getmem(copy, block + (size_t)me * share, share, victim);
  EXPECT(memcmp(source, copy, share) == 0, "round %d", round);
  for (int i = 0; i < 20; ++i) shmem_atomic_inc(&counter, victim);
  EXPECT(shmem_atomic_fetch_add(&counter, 0L, victim) >= 20, "round %d", round);
  shmem_putmem_signal(block + (size_t)me * share, source, share, &signal_word, 1, SHMEM_SIGNAL_ADD, victim);
  shmem_quiet();
}

static void spin(int me, int round) {
  switch (round) {
    case 0:
      while (__atomic_load_n(&go, __ATOMIC_ACQUIRE) != round + 1) sched_yield();
      break;
    case 1:
      while (!shmem_test(&go, SHMEM_CMP_EQ, (long)round + 1)) sched_yield();
      break;
    case 2:
      while (shmem_atomic_fetch(&go, me) != round + 1) sched_yield();
      break;
    default:
      while (shmem_signal_fetch(&signal_word) < (uint64_t)(round + 1) * (uint64_t)(shmem_n_pes() - 1)) sched_yield();
      while (shmem_g(&go, me) != round + 1) sched_yield();
  }
}

int main(int argc, char** argv) {
  (void)argc;
  (void)argv;
  shmem_init();
  const int me = shmem_my_pe();
  const int n = shmem_n_pes();
  const int victim = n - 1;
  for (int round = 0; round < 4; ++round) {
    if (me == victim) {
      spin(me, round);
      EXPECT(counter == 20L * (n - 1) * (round + 1), "%ld in round %d", counter, round);
      EXPECT(signal_word == (uint64_t)(n - 1) * (uint64_t)(round + 1), "round %d", round);
    } else {
      work(me, victim, round);
      /* PE 0 counts the others; the last of them releases it. */
      if (shmem_atomic_fetch_inc(&counter, 0) == (long)(n - 1) * (round + 1) - 1) shmem_p(&go, (long)round + 1, victim);
    }
    shmem_barrier_all();
  }
  shmem_finalize();
  if (failures == 0) printf("PE %d of %d: all is well\n", me, n);
  return failures != 0;
}
