/* The standard also allows <mpp/shmem.h>. */
#include <shmem.h>
