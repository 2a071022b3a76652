/* OpenSHMEM programs with one planted delay each. */
#include <shmem.h>

#include "plant_common.h"

static int me, size;

static void late_to_barrier(int64_t ns) {
  shmem_barrier_all();
  if (me == 2) plant_compute(ns);
  shmem_barrier_all();
  if (me == 2) plant_truth("late in a collective", 2, ns * (size - 1));
}

static void late_signal(int64_t ns) {
  uint64_t* const word = shmem_calloc(1, sizeof *word);
  shmem_barrier_all();
  if (me == 1) {
    plant_compute(ns);
    shmem_uint64_p(word, 1, 0);
    plant_truth("late sender", 1, ns);
  } else {
    shmem_uint64_wait_until(word, SHMEM_CMP_EQ, 1);
  }
  shmem_barrier_all();
  shmem_free(word);
}

/* Rank 1 computes only when rank 0 is past the barrier, whose end may need rank 1, too. */
static void locked(int64_t ns) {
  static long lock;
  static long held;
  static long begun;
  shmem_barrier_all();
  if (me == 1) {
    shmem_long_wait_until(&begun, SHMEM_CMP_EQ, 1);
    shmem_set_lock(&lock);
    shmem_long_p(&held, 1, 0);
    plant_compute(ns);
    shmem_clear_lock(&lock);
  } else {
    shmem_long_p(&begun, 1, 1);
    while (shmem_long_atomic_fetch(&held, 0) == 0) {
    }
    shmem_set_lock(&lock);
    shmem_clear_lock(&lock);
    plant_truth("lock", 1, ns);
  }
  shmem_barrier_all();
}

int main(int argc, char** argv) {
  static const plant plants[] = {
      {"late_to_barrier", 4, late_to_barrier}, {"late_signal", 2, late_signal}, {"locked", 2, locked}};
  const plant* const one = plant_chosen(argc, argv, plants, sizeof plants / sizeof *plants);
  shmem_init();
  me = shmem_my_pe();
  size = shmem_n_pes();
  one->run(plant_length(argc, argv));
  shmem_finalize();
}
