/* calls_loader LIBRARY: loads a library in a scope of its own, as Python loads its modules, and
 * calls its function calls_main. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  void* const library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  int (*entry)(int, char**) = NULL;
  if (library != NULL) *(void**)&entry = dlsym(library, "calls_main");
  if (entry == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  return entry(argc, argv);
}
