/* Threads produce a vector: each computes parts of it and marks them ready. The parts are sent one
 * by one to the next rank in a ring (a job of one rank sends to itself). The receiver adds up each
 * part when it has arrived. */
#include <heddle/heddle.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kThreads = 3, kSent = 12, kReceived = 8, kNumbers = 24 * 100, kSteps = 20 };

static void check(heddle_status status, const char* what) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s: %s\n", what, heddle_status_name(status), heddle_last_error());
  exit(1);
}

/* Shared by the threads of one step. */
typedef struct Step {
  heddle_partitioned send;
  double* vector;
  double factor;
  atomic_uint next; /* the part that the next thread takes */
} Step;

static void* make_parts(void* argument) {
  Step* step = argument;
  const uint32_t length = kNumbers / kSent;
  for (;;) {
    const uint32_t part = atomic_fetch_add(&step->next, 1);
    if (part >= kSent) return NULL;
    for (uint32_t i = part * length; i < (part + 1) * length; i++) step->vector[i] = step->factor * i;
    check(heddle_pready(step->send, part), "pready");
  }
}

/* The sum of the received vector, part by part. */
static double add_parts(heddle_partitioned receive, const double* vector) {
  const uint32_t length = kNumbers / kReceived;
  double sum = 0;
  for (uint32_t part = 0; part < kReceived; part++) {
    heddle_status status = HEDDLE_AGAIN;
    while (status == HEDDLE_AGAIN) {
      status = heddle_parrived(receive, part); /* makes progress */
      check(status, "parrived");
      if (status == HEDDLE_AGAIN) sched_yield();
    }
    for (uint32_t i = part * length; i < (part + 1) * length; i++) sum += vector[i];
  }
  return sum;
}

int main(void) {
  heddle_context context;
  check(heddle_context_join(NULL, &context), "join");
  uint32_t rank = 0;
  uint32_t size = 0;
  check(heddle_context_rank(context, &rank), "rank");
  check(heddle_context_size(context, &size), "size");
  const heddle_worker_options options = {.size = sizeof options, .sharing = HEDDLE_SHARING_DELEGATE};
  heddle_worker worker;
  check(heddle_worker_open(context, &options, &worker), "worker");

  static double out[kNumbers];
  heddle_region region; /* memory that peers on this machine store into */
  void* in = NULL;
  check(heddle_region_alloc(context, kNumbers * sizeof(double), &region), "alloc");
  check(heddle_region_address(region, &in, NULL), "address");
  heddle_partitioned send;
  heddle_partitioned receive;
  check(heddle_psend_init(worker, out, kSent, sizeof out / kSent, (heddle_peer){(rank + 1) % size, 0}, 1, &send),
        "send");
  check(heddle_precv_init(worker, in, kReceived, sizeof out / kReceived, (heddle_peer){(rank + size - 1) % size, 0}, 1,
                          &receive),
        "receive");

  for (uint32_t i = 1; i <= kSteps; i++) {
    check(heddle_partitioned_start(receive), "start");
    check(heddle_partitioned_start(send), "start");
    Step step = {.send = send, .vector = out, .factor = i};
    pthread_t threads[kThreads];
    for (int t = 0; t < kThreads; t++) {
      if (pthread_create(&threads[t], NULL, make_parts, &step) != 0) return 1;
    }
    const double sum = add_parts(receive, in);
    for (int t = 0; t < kThreads; t++) pthread_join(threads[t], NULL);
    check(heddle_partitioned_wait(receive, HEDDLE_FOREVER), "wait");
    check(heddle_partitioned_wait(send, HEDDLE_FOREVER), "wait");
    if (sum != i * (kNumbers - 1.0) * kNumbers / 2) {
      fprintf(stderr, "step %u: a sum of %f\n", i, sum);
      return 1;
    }
  }
  printf("rank %u got %d vectors in %d parts\n", rank, kSteps, kReceived);
  check(heddle_partitioned_free(send), "free");
  check(heddle_partitioned_free(receive), "free");
  check(heddle_context_leave(context), "leave");
  return 0;
}
