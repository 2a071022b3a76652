/* The standard also allows <mpp/shmemx.h>. */
#include <shmemx.h>
