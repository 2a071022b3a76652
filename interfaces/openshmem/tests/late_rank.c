/* PEs that are met at the first access, when something hinders this. An error that passes must not
 * count as memory that cannot be mapped. Without a boot id, no PE stands for another. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

static long word;

static void check(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "PE %d: wrong: %s\n", shmem_my_pe(), what);
  shmem_global_exit(1);
}

/* A descriptor for each PE that has been met, and others. */
static int descriptors(void) {
  int count = 0;
  DIR* all = opendir("/proc/self/fd");
  check(all != NULL, "the descriptors can be counted");
  while (readdir(all) != NULL) ++count;
  closedir(all);
  return count;
}

/* For a while there is no room for the descriptors of PEs that are met. */
static void out_of_descriptors(int me, int n) {
  const int far = (me + n / 2 + 3) % n;
  const int farther = (far + 1) % n;
  struct rlimit before;
  check(getrlimit(RLIMIT_NOFILE, &before) == 0, "getrlimit");
  struct rlimit none = before;
  none.rlim_cur = 0;
  check(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
  check(shmem_ptr(&word, far) == NULL, "no pointer without a descriptor");
  check(shmem_ptr(&word, farther) == NULL, "no pointer without a descriptor, another");
  check(setrlimit(RLIMIT_NOFILE, &before) == 0, "setrlimit back");
  check(shmem_long_g(&word, farther) == farther + 1, "a get when there is room again");
  const long* there = shmem_ptr(&word, far);
  check(there != NULL && *there == far + 1, "the pointer when there is room again");
  there = shmem_ptr(&word, farther);
  check(there != NULL && *there == farther + 1, "the other pointer");
}

/* Before shmem_init: this process finds an empty file. False: it may not do that. */
static int hide_boot_id(void) {
  return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
         mount("/dev/null", "/proc/sys/kernel/random/boot_id", NULL, MS_BIND, NULL) == 0;
}

int main(int argc, char** argv) {
  const int hidden = argc > 1 && strcmp(argv[1], "hidden") == 0;
  if (hidden && !hide_boot_id()) {
    fprintf(stderr, "may not mount\n");
    return 0;
  }
  shmem_init();
  const int me = shmem_my_pe();
  const int n = shmem_n_pes();
  word = me + 1;
  shmem_barrier_all();
  if (hidden) {
    check(descriptors() >= n - 1, "each has been met");
    check(shmem_team_n_pes(SHMEM_TEAM_SHARED) == n, "all share memory");
  } else {
    check(descriptors() < n - 1, "few have been met");
    out_of_descriptors(me, n);
  }
  shmem_barrier_all();
  shmem_finalize();
  return 0;
}
