/* The program that everybody starts with, on many PEs: each PE puts a word to the next one, which
 * it has not met before, and reads the word of another by a pointer. */
#include <shmem.h>
#include <stdio.h>

static long word;
static long fetched;

static void check(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "PE %d: wrong: %s\n", shmem_my_pe(), what);
  shmem_global_exit(1);
}

int main(int argc, char** argv) {
  (void)argc;
  (void)argv;
  shmem_init();
  const int me = shmem_my_pe();
  const int n = shmem_n_pes();
  long* heap = shmem_malloc(sizeof *heap);
  *heap = 0;
  shmem_barrier_all();

  shmem_long_p(&word, me + 1, (me + 1) % n);
  shmem_long_atomic_add(heap, me + 1, (me + n - 1) % n);
  shmem_barrier_all();
  check(word == (me + n - 1) % n + 1, "the word that the PE before has put");
  check(*heap == (me + 1) % n + 1, "the word to which the next PE has added");

  /* far away: no step of a barrier leads there */
  const int far = (me + n / 2 + 3) % n;
  const long* theirs = shmem_ptr(heap, far);
  check(theirs != NULL && *theirs == (far + 1) % n + 1, "a word by its pointer");
  fetched = shmem_long_g(&word, far);
  check(fetched == (far + n - 1) % n + 1, "a word that was fetched");
  check(shmem_team_n_pes(SHMEM_TEAM_SHARED) == n, "all share memory");
  shmem_free(heap);
  shmem_finalize();
  return 0;
}
