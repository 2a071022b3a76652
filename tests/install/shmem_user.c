/* Each PE puts its number into the static data of the next. Compiles as C11 and as C++. */
#include <shmem.h>
#include <stdio.h>

static long from_before = -1;

int main(void) {
  shmem_init();
  const int me = shmem_my_pe();
  const int n = shmem_n_pes();
  shmem_p(&from_before, 100L + me, (me + 1) % n);
  shmem_barrier_all();
#ifdef __cplusplus
  const char* language = "c++";
#else
  const char* language = "c";
#endif
  printf("%s PE %d of %d got %ld\n", language, me, n, from_before);
  shmem_finalize();
  return 0;
}
