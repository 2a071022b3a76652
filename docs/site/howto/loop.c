/* A loop that sleeps in poll until a message comes. Rank 0 sends to rank 1. Two ranks. */
#include <heddle/heddle.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

static int finished;

static void check(heddle_status status) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", heddle_status_name(status), heddle_last_error());
  exit(1);
}

static void arrived(const heddle_am_arrival* message, void* arg) {
  (void)arg;
  printf("rank 1 got %.*s\n", (int)message->payload_bytes, (const char*)message->payload);
  finished = 1;
}

int main(void) {
  heddle_context context;
  heddle_worker worker;
  uint32_t rank, size;
  check(heddle_context_join(NULL, &context));
  check(heddle_context_rank(context, &rank));
  check(heddle_context_size(context, &size));
  if (size != 2) {
    if (rank == 0) fprintf(stderr, "loop: start it with two ranks: heddle run -n 2 loop\n");
    check(heddle_context_leave(context));
    return 1;
  }
  check(heddle_worker_open(context, NULL, &worker));
  check(heddle_am_register(context, 7, arrived, NULL));
  check(heddle_context_barrier(context, worker, HEDDLE_FOREVER)); /* the handler is there */

  if (rank == 0) {
    const heddle_am_message message = {.handler = 7, .payload = "a message", .payload_bytes = 9};
    check(heddle_am(worker, (heddle_peer){1, 0}, &message, NULL));
    check(heddle_quiet(worker));
  } else {
    int descriptor;
    check(heddle_worker_descriptor(worker, &descriptor));
    struct pollfd one = {descriptor, POLLIN, 0}; /* beside your program's own */
    while (!finished) {
      const int events = heddle_worker_progress(worker);
      if (events < 0) return 1;
      if (events == 0 && heddle_worker_arm(worker) == HEDDLE_DONE && !finished) poll(&one, 1, -1);
    }
  }
  check(heddle_context_leave(context));
}
