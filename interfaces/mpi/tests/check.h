/* Shared by test programs: an expectation that fails is printed, and ends the program with 1, and
 * so the job. */
#ifndef MPI_TESTS_CHECK_H
#define MPI_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                         \
  do {                                                                           \
    if (!(condition)) {                                                          \
      fprintf(stderr, "%s:%d: %s: is not so\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                   \
    }                                                                            \
  } while (0)

#endif
