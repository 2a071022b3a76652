/* The standard names shmem.h this way too. */
#include <shmem.h>
