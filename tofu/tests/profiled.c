/* A program under the profiling tool counting.c: its puts are counted and executed. */
#include <stdint.h>
#include <stdio.h>
#include <utofu.h>

#include "counting.h"

#define CHECK(what)                                                    \
  do {                                                                 \
    if (!(what)) {                                                     \
      (void)fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what); \
      return 1;                                                        \
    }                                                                  \
  } while (0)

int main(void) {
  enum { kPuts = 10 };
  static uint64_t words[2 * kPuts];
  utofu_vcq_hdl_t handle = 0;
  utofu_vcq_id_t id = 0;
  utofu_stadd_t stadd = 0;
  struct utofu_mrq_notice notice;
  CHECK(utofu_create_vcq(0, 0, &handle) == UTOFU_SUCCESS);
  CHECK(utofu_query_vcq_id(handle, &id) == UTOFU_SUCCESS);
  CHECK(utofu_reg_mem(handle, words, sizeof words, 0, &stadd) == UTOFU_SUCCESS);
  for (unsigned i = 0; i < kPuts; ++i) {
    words[i] = i + 1;
    CHECK(utofu_put(handle, id, stadd + 8UL * i, stadd + 8UL * (kPuts + i), 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                    NULL) == UTOFU_SUCCESS);
    int status;
    while ((status = utofu_poll_mrq(handle, 0, &notice)) == UTOFU_ERR_NOT_FOUND) {
    }
    CHECK(status == UTOFU_SUCCESS);
    CHECK(words[kPuts + i] == i + 1);
  }
  CHECK(counted_puts() == kPuts);
  CHECK(utofu_dereg_mem(handle, stadd, 0) == UTOFU_SUCCESS);
  CHECK(utofu_free_vcq(handle) == UTOFU_SUCCESS);
  return 0;
}
