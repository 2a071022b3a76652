/* A rank for gdb_test.py, with debugging information: rank 1 waits for tag 7, while rank 0 has sent
 * tag 8 and waits in a barrier. The variables that gdb has to show have names that begin with
 * shown_. */
#include <heddle/collectives.h>
#include <heddle/heddle.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

heddle_context shown_context;
heddle_worker shown_worker;
heddle_worker shown_closed;
heddle_worker shown_none;
heddle_worker shown_wrong;
heddle_region shown_region;
heddle_remote_region shown_remote;
heddle_remote shown_byte;
heddle_counter shown_counter;
heddle_team shown_team;
heddle_peer shown_peer = {3, 2};
heddle_wanted shown_wanted = {{0, 0}, 7, UINT64_MAX};
heddle_receive shown_receive;

static void check(heddle_status status, const char* what) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", what, heddle_last_error());
  exit(2);
}

static uint32_t prepare(void) {
  heddle_remote_region remotes[2];
  uint32_t rank = 0;
  check(heddle_context_join(NULL, &shown_context), "join");
  check(heddle_context_rank(shown_context, &rank), "rank");
  check(heddle_worker_open(shown_context, NULL, &shown_worker), "worker");
  check(heddle_worker_open(shown_context, NULL, &shown_closed), "worker");
  check(heddle_worker_close(shown_closed), "close");
  check(heddle_region_alloc(shown_context, 4096, &shown_region), "region");
  check(heddle_region_exchange(shown_context, shown_region, remotes), "exchange");
  check(heddle_counter_create(shown_context, NULL, &shown_counter), "counter");
  check(heddle_team_world(shown_context, &shown_team), "team");
  shown_remote = remotes[0];
  shown_byte.region = remotes[0];
  shown_byte.offset = 72;
  shown_wrong.id = shown_context.id;
  return rank;
}

int main(void) {
  static heddle_receive others;
  static uint64_t words[2];
  static const heddle_wanted masked = {{HEDDLE_ANY, HEDDLE_ANY}, 0x500, 0xff00};
  const heddle_completion matched = {NULL, NULL, {0}, HEDDLE_WHEN_MATCHED};
  heddle_completion completion = matched;
  alarm(120); /* what is never asked to end ends all the same */
  if (prepare() == 0) {
    const heddle_peer peer = {1, 0};
    for (int i = 0; i < 2; ++i) check(heddle_send(shown_worker, peer, 8, words, sizeof words[0], NULL), "send");
    completion.counter = shown_counter;
    check(heddle_send(shown_worker, peer, 9, words, sizeof words[0], &completion), "synchronous send");
  } else {
    check(heddle_recv(shown_worker, &masked, &words[0], sizeof words[0], &others, NULL), "recv");
    check(heddle_recv(shown_worker, &shown_wanted, &words[1], sizeof words[1], &shown_receive, NULL), "recv");
  }
  uint32_t rank = 0;
  check(heddle_context_rank(shown_context, &rank), "rank");
  printf("rank %u pid %d\n", rank, (int)getpid());
  fflush(stdout);
  if (rank == 1) check(heddle_recv_wait(shown_worker, &shown_receive, HEDDLE_FOREVER), "recv_wait");
  check(heddle_context_barrier(shown_context, shown_worker, HEDDLE_FOREVER), "barrier");
  check(heddle_context_leave(shown_context), "leave");
  return 0;
}
