/* The number of calls of utofu_put that the profiling tool counting.c has seen. */
#ifndef UTOFU_TESTS_COUNTING_H
#define UTOFU_TESTS_COUNTING_H

#pragma GCC visibility push(default)
unsigned long counted_puts(void);
#pragma GCC visibility pop

#endif
