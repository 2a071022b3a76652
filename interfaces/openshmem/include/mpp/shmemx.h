/* The standard names shmemx.h this way too. */
#include <shmemx.h>
