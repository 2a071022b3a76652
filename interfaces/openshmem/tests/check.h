/* Shared by the test programs: a failed expectation is printed and counted; the program then exits
 * with 1. */
#ifndef SHMEM_TESTS_CHECK_H
#define SHMEM_TESTS_CHECK_H

#include <stdio.h>

static int failures;

#define EXPECT(condition, ...)                                          \
  do {                                                                  \
    if (!(condition)) {                                                 \
      if (failures++ < 20) {                                            \
        fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
        fprintf(stderr, __VA_ARGS__);                                   \
        fputc('\n', stderr);                                            \
      }                                                                 \
    }                                                                   \
  } while (0)

#endif
