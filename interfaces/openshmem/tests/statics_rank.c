/* Static data of every kind, in memory that peers map: the values survive initialisation,
 * finalisation and fork. */
#include <shmem.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define BIG (64L << 20)

static int initialised = 17;
static int zero;
static const char* text = "text";           /* relocated when the program is loaded */
static int (*function)(const char*) = atoi; /* likewise */
static char big[BIG];                       /* written at two places only */
extern char** environ;                      /* copied from the C library, which uses it too */
static _Alignas(4096) int aligned = 5;
static int* heap_block;

static int in_a_function(void) {
  static int calls = 100;
  return ++calls;
}

static void check_values(const char* when) {
  EXPECT(initialised == 17, "%s: %d", when, initialised);
  EXPECT(strcmp(text, "text") == 0, "%s", when);
  EXPECT(function("42") == 42, "%s", when);
  EXPECT(aligned == 5, "%s", when);
  EXPECT(*heap_block == 1234, "%s", when);
  EXPECT(getenv("PATH") != NULL && environ != NULL, "%s", when);
}

static size_t resident_pages(const char* begin, size_t bytes) {
  static unsigned char pages[BIG / 4096 + 1];
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t first = ((size_t)begin + page - 1) / page * page;
  const size_t count = ((size_t)begin + bytes - first) / page;
  if (mincore((void*)first, count * page, pages) != 0) return 0;
  size_t resident = 0;
  for (size_t i = 0; i < count; ++i) resident += pages[i] & 1;
  return resident;
}

/* A child has its own copy, as of any memory: it sees the old values, and nobody else sees what it
 * writes. */
static void check_fork(int me) {
  zero = 5;
  const pid_t child = fork();
  if (child == 0) {
    int bad = zero != 5 || initialised != 17 || big[BIG - 1] != 3;
    zero = 6;
    initialised = 18;
    big[0] = 77;
    _exit(bad);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
  EXPECT(zero == 5 && initialised == 17 && big[0] == (char)(me + 1), "%d %d %d", zero, initialised, big[0]);
  EXPECT(system("exit 3") == 3 << 8, "system()");
}

int main(void) {
  heap_block = malloc(sizeof *heap_block);
  *heap_block = 1234;
  big[BIG - 1] = 3;
  in_a_function();
  void* brk_before = sbrk(0);
  shmem_init();
  check_values("after init");
  EXPECT(in_a_function() == 102, "the count goes on");
  EXPECT(sbrk(0) >= brk_before, "the program's heap is where it was");
  free(malloc(1 << 16));
  const int me = shmem_my_pe();
  const int n = shmem_n_pes();
  EXPECT(resident_pages(big, BIG) < 1000, "%zu pages of what was never touched", resident_pages(big, BIG));
  shmem_char_p(&big[0], (char)(me + 1), me);
  for (int pe = 0; pe < n; ++pe) shmem_char_p(&big[BIG / 2 + pe], (char)(me + 1), pe);
  shmem_barrier_all();
  EXPECT(big[BIG / 2 + me] != 0, "%d", big[BIG / 2 + me]);
  check_fork(me);
  shmem_barrier_all();
  for (int pe = 0; pe < n; ++pe) EXPECT(shmem_char_g(&big[0], pe) == pe + 1, "PE %d", pe);
  check_values("before the end");
  shmem_finalize();
  check_values("after the end");
  EXPECT(in_a_function() == 103 && big[0] == (char)(me + 1) && big[BIG - 1] == 3, "the values stay");
  initialised = 17;
  free(heap_block);
  if (failures == 0) printf("PE %d of %d: all is well\n", me, n);
  return failures != 0;
}
