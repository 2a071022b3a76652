/* Memory from malloc that peers on the machine reach by loads and stores. Two ranks. */
#include <heddle/heddle.h>
#include <stdio.h>
#include <stdlib.h>

static void check(heddle_status status) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", heddle_status_name(status), heddle_last_error());
  exit(1);
}

int main(void) {
  const size_t bytes = 1 << 20;
  heddle_context context;
  heddle_worker worker;
  heddle_region region;
  heddle_remote_region peers[2];
  uint32_t rank, size;
  check(heddle_context_join(NULL, &context));
  check(heddle_context_rank(context, &rank));
  check(heddle_context_size(context, &size));
  if (size != 2) {
    if (rank == 0) fprintf(stderr, "adopt: start it with two ranks: heddle run -n 2 adopt\n");
    check(heddle_context_leave(context));
    return 1;
  }
  check(heddle_worker_open(context, NULL, &worker));

  unsigned char* memory = aligned_alloc(4096, bytes); /* whole pages: all of it can be adopted */
  const heddle_region_options options = {.size = sizeof options, .adopt = 1};
  check(heddle_region_register_with(context, memory, bytes, &options, &region));
  check(heddle_region_exchange(context, region, peers)); /* of a job of two ranks */

  const heddle_remote there = {peers[1 - rank], 0};
  int mapped;
  check(heddle_remote_mapped(there, bytes, &mapped));
  const unsigned char mine = (unsigned char)(10 + rank);
  check(heddle_put(worker, &mine, 1, there, NULL));
  check(heddle_quiet(worker));
  check(heddle_context_barrier(context, worker, HEDDLE_FOREVER)); /* the peer's put is there */
  printf("rank %u: mapped %d, got %d\n", rank, mapped, memory[0]);

  check(heddle_region_release(region)); /* before the memory is freed */
  free(memory);
  check(heddle_context_leave(context));
}
