/* Calls MPI where no library has it, since it takes the wrapper for it: there is nothing to pass
 * the call on to. */
#include <dlfcn.h>

int main(void) {
  int (*barrier)(void*) = 0;
  *(void**)&barrier = dlsym(RTLD_DEFAULT, "MPI_Barrier");
  return barrier == 0 ? 3 : barrier(0);
}
