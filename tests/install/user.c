/* An outside program in C: every rank puts its number to the next one, and says what it
 * received. */
#include <heddle/heddle.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void check(heddle_status status, const char* what) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s: %s\n", what, heddle_status_name(status), heddle_last_error());
  exit(1);
}

int main(void) {
  int major = -1;
  int minor = -1;
  int patch = -1;
  heddle_version(&major, &minor, &patch);
  heddle_context context;
  check(heddle_context_join(NULL, &context), "join");
  uint32_t rank = 0;
  uint32_t size = 0;
  check(heddle_context_rank(context, &rank), "rank");
  check(heddle_context_size(context, &size), "size");
  heddle_worker worker;
  check(heddle_worker_open(context, NULL, &worker), "worker");
  heddle_region region;
  check(heddle_region_alloc(context, sizeof(uint64_t), &region), "alloc");
  heddle_remote_region* all = calloc(size, sizeof *all);
  if (all == NULL) return 1;
  check(heddle_region_exchange(context, region, all), "exchange");

  const uint64_t mine = 100 + rank;
  const heddle_remote target = {all[(rank + 1) % size], 0};
  check(heddle_put(worker, &mine, sizeof mine, target, NULL), "put");
  check(heddle_quiet(worker), "quiet");
  check(heddle_context_barrier(context, worker, HEDDLE_FOREVER), "barrier");
  void* word = NULL;
  size_t bytes = 0;
  check(heddle_region_address(region, &word, &bytes), "address");
  printf("c %d.%d.%d rank %" PRIu32 " of %" PRIu32 " got %" PRIu64 "\n", major, minor, patch, rank, size,
         *(const uint64_t*)word);
  free(all);
  check(heddle_context_leave(context), "leave");
  return 0;
}
