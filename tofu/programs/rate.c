/* The number of small operations that many threads complete in a second: thread t of a rank works
 * on memory of thread t of its partner, with up to 32 operations in flight. If there are more
 * threads than VCQs, adjacent threads share one, under the library's lock (THREAD_SAFE) or a mutex
 * of the program. All results are checked.
 *
 *   rate put|get|add [THREADS [VCQS [BYTES [OPERATIONS [library|mutex]]]]]
 *
 * prints millions of operations a second of one rank, in wall-clock time and, if it is switched on,
 * in the model's time. */
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "meet.h"

enum { kMostThreads = 256, kWindow = 32 };
enum kind { kPut, kGet, kAdd };

struct queue {
  utofu_vcq_hdl_t vcq;
  pthread_mutex_t mutex;
};

struct worker {
  struct rate* rate;
  int number;
  pthread_t thread;
  struct queue* queue;
  utofu_vcq_id_t partner;
  utofu_stadd_t theirs;
  uint64_t* memory; /* kWindow slots that the partner works on, then kWindow of this thread */
  utofu_stadd_t stadd;
  uint64_t posted;
  atomic_uint_fast64_t done; /* incremented by the thread of the VCQ that polls the completion */
  uint64_t model_ns;
};

struct rate {
  struct meeting meeting;
  enum kind kind;
  int threads, vcqs, own_lock;
  size_t bytes;
  uint64_t operations;
  pthread_barrier_t all_threads;
  struct queue queues[kMostThreads];
  struct worker workers[kMostThreads];
};

struct card {
  utofu_vcq_id_t vcq;
  utofu_stadd_t stadd;
};

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void lock(const struct worker* worker) {
  if (worker->rate->own_lock) pthread_mutex_lock(&worker->queue->mutex);
}
static void unlock(const struct worker* worker) {
  if (worker->rate->own_lock) pthread_mutex_unlock(&worker->queue->mutex);
}

static uint64_t* slot_of(const struct worker* worker, uint64_t serial, int own) {
  return worker->memory + (serial % kWindow + (own ? kWindow : 0)) * (worker->rate->bytes / sizeof(uint64_t));
}
static size_t offset_of(const struct worker* worker, uint64_t serial) {
  return serial % kWindow * worker->rate->bytes;
}

/* Word i of operation `serial` of a thread. */
static uint64_t content(int rank, int thread, uint64_t serial, size_t i) {
  return ((uint64_t)(rank + 1) << 56) ^ ((uint64_t)(thread + 1) << 44) ^ (serial << 8) ^ i;
}

static void check_got(const struct worker* worker, uint64_t serial) {
  const struct rate* const rate = worker->rate;
  const uint64_t* const got = slot_of(worker, serial, 1);
  for (size_t i = 0; i < rate->bytes / sizeof(uint64_t); i++)
    if (got[i] != content(rate->meeting.rank ^ 1, worker->number, serial % kWindow, i))
      wrong(&rate->meeting, "thread %d got something else in operation %" PRIu64, worker->number, serial);
}

/* Polls one completion, of any thread. Puts are complete when they have left (TCQ), the others when
 * the answer has arrived. */
static void collect(struct worker* worker) {
  struct rate* const rate = worker->rate;
  void* cbdata = NULL;
  struct utofu_mrq_notice notice;
  lock(worker);
  const int code = rate->kind == kPut ? utofu_poll_tcq(worker->queue->vcq, 0, &cbdata)
                                      : utofu_poll_mrq(worker->queue->vcq, 0, &notice);
  unlock(worker);
  if (code == UTOFU_ERR_NOT_FOUND) {
    give_way();
    return;
  }
  must(&rate->meeting, code, "poll");
  struct worker* const whose = rate->kind == kPut ? cbdata : &rate->workers[notice.edata];
  atomic_fetch_add(&whose->done, 1);
}

/* Polling the queue of commands makes room in it, even if no command asked for a TCQ notice. */
static void make_room(struct worker* worker) {
  if (worker->rate->kind == kPut) return; /* collect() polls it */
  void* cbdata;
  lock(worker);
  const int code = utofu_poll_tcq(worker->queue->vcq, 0, &cbdata);
  unlock(worker);
  if (code != UTOFU_ERR_NOT_FOUND) must(&worker->rate->meeting, code, "utofu_poll_tcq");
}

static int post(struct worker* worker, uint64_t serial) {
  const struct rate* const rate = worker->rate;
  const utofu_vcq_hdl_t vcq = worker->queue->vcq;
  const utofu_stadd_t own = worker->stadd + kWindow * rate->bytes + offset_of(worker, serial);
  const utofu_stadd_t theirs = worker->theirs + offset_of(worker, serial);
  const uint64_t edata = (uint64_t)worker->number;
  const unsigned long put_flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
  const unsigned long flags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
  if (rate->kind == kGet) return utofu_get(vcq, worker->partner, own, theirs, rate->bytes, edata, flags, NULL);
  if (rate->kind == kAdd)
    return utofu_armw8(vcq, worker->partner, UTOFU_ARMW_OP_ADD, 1, worker->theirs, edata, flags, NULL);
  if (rate->bytes <= 32)
    return utofu_put_piggyback(vcq, worker->partner, slot_of(worker, serial, 1), theirs, rate->bytes, edata, put_flags,
                               worker);
  return utofu_put(vcq, worker->partner, own, theirs, rate->bytes, edata, put_flags, worker);
}

static void work(struct worker* worker) {
  const struct rate* const rate = worker->rate;
  const uint64_t begin = model_now_ns();
  for (uint64_t serial = 0; serial < rate->operations; serial++) {
    while (worker->posted - atomic_load(&worker->done) >= kWindow) collect(worker);
    if (rate->kind == kGet && serial >= kWindow && serial % kWindow == 0) {
      while (worker->posted != atomic_load(&worker->done)) collect(worker);
      for (uint64_t i = 0; i < kWindow; i++) check_got(worker, i);
    }
    if (rate->kind == kPut)
      for (size_t i = 0; i < rate->bytes / sizeof(uint64_t); i++)
        slot_of(worker, serial, 1)[i] = content(rate->meeting.rank, worker->number, serial, i);
    for (;;) {
      lock(worker);
      const int code = post(worker, serial);
      unlock(worker);
      if (code == UTOFU_SUCCESS) break;
      if (code != UTOFU_ERR_BUSY) must(&rate->meeting, code, "post");
      make_room(worker);
      collect(worker);
    }
    worker->posted++;
  }
  while (worker->posted != atomic_load(&worker->done)) collect(worker);
  worker->model_ns = model_now_ns() - begin;
}

/* Waits for data in flight: the last put of each slot. */
static void check_theirs(const struct worker* worker) {
  const struct rate* const rate = worker->rate;
  if (rate->kind == kAdd && peek(worker->memory) != rate->operations)
    wrong(&rate->meeting, "thread %d counts %" PRIu64, worker->number, peek(worker->memory));
  if (rate->kind != kPut) return;
  const uint64_t first = rate->operations > kWindow ? rate->operations - kWindow : 0;
  for (uint64_t serial = first; serial < rate->operations; serial++)
    for (size_t i = 0; i < rate->bytes / sizeof(uint64_t); i++)
      while (peek(&slot_of(worker, serial, 0)[i]) != content(rate->meeting.rank ^ 1, worker->number, serial, i))
        give_way();
}

static void* run(void* argument) {
  struct worker* const worker = argument;
  pthread_barrier_wait(&worker->rate->all_threads);
  work(worker);
  pthread_barrier_wait(&worker->rate->all_threads);
  return NULL;
}

static void join(struct rate* rate) {
  struct meeting* const meeting = &rate->meeting;
  meet_begin(meeting);
  if (meeting->size % 2 != 0) wrong(meeting, "every rank needs a partner: an even number of processes");
  const int shared = rate->vcqs < rate->threads;
  const unsigned long flags = UTOFU_VCQ_FLAG_EXCLUSIVE | (shared && !rate->own_lock ? UTOFU_VCQ_FLAG_THREAD_SAFE : 0);
  for (int i = 0; i < rate->vcqs; i++) {
    rate->queues[i].vcq = open_vcq(meeting, (size_t)i, flags);
    pthread_mutex_init(&rate->queues[i].mutex, NULL);
  }
  struct card mine[kMostThreads] = {{0, 0}};
  struct card* const all = calloc((size_t)meeting->size, sizeof mine);
  for (int i = 0; i < rate->threads; i++) {
    struct worker* const worker = &rate->workers[i];
    worker->rate = rate;
    worker->number = i;
    worker->queue = &rate->queues[i * rate->vcqs / rate->threads];
    worker->memory = get_memory(meeting, 2 * kWindow * rate->bytes);
    worker->stadd = register_memory(meeting, worker->queue->vcq, worker->memory, 2 * kWindow * rate->bytes);
    for (uint64_t slot = 0; slot < kWindow && rate->kind == kGet; slot++)
      for (size_t word = 0; word < rate->bytes / sizeof(uint64_t); word++)
        slot_of(worker, slot, 0)[word] = content(meeting->rank, i, slot, word);
    mine[i].vcq = id_of(meeting, worker->queue->vcq);
    mine[i].stadd = worker->stadd;
  }
  meet_all(meeting, mine, sizeof mine, all);
  for (int i = 0; i < rate->threads; i++) {
    const struct card* const partner = &all[(meeting->rank ^ 1) * kMostThreads + i];
    rate->workers[i].partner = reach(meeting, partner->vcq);
    rate->workers[i].theirs = partner->stadd;
  }
  free(all);
}

static void understand(struct rate* rate, int argc, char** argv) {
  static const char kUsage[] = "rate put|get|add [THREADS [VCQS [BYTES [OPERATIONS [library|mutex]]]]]";
  static const char* const kKinds[] = {"put", "get", "add"};
  int kind = 0;
  while (kind < 3 && (argc < 2 || strcmp(argv[1], kKinds[kind]) != 0)) kind++;
  rate->kind = (enum kind)kind;
  if (kind == 3 || argc > 7) misused(kUsage);
  rate->threads = argc > 2 ? (int)whole_number(argv[2], 1, kMostThreads, kUsage) : 1;
  rate->vcqs = argc > 3 ? (int)whole_number(argv[3], 1, (uint64_t)rate->threads, kUsage) : rate->threads;
  rate->bytes = (argc > 4 ? whole_number(argv[4], 8, kMostPutBytes, kUsage) : 8) / sizeof(uint64_t) * sizeof(uint64_t);
  rate->operations = argc > 5 ? whole_number(argv[5], 1, kMostRounds, kUsage) : 1000;
  rate->own_lock = argc > 6 && strcmp(argv[6], "mutex") == 0;
  if (argc > 6 && !rate->own_lock && strcmp(argv[6], "library") != 0) misused(kUsage);
}

int main(int argc, char** argv) {
  static struct rate rate; /* all zero */
  understand(&rate, argc, argv);
  join(&rate);
  pthread_barrier_init(&rate.all_threads, NULL, (unsigned)rate.threads + 1);
  for (int i = 0; i < rate.threads; i++)
    if (pthread_create(&rate.workers[i].thread, NULL, run, &rate.workers[i]) != 0)
      wrong(&rate.meeting, "no thread number %d", i);
  pthread_barrier_wait(&rate.all_threads);
  const double begin = now_us();
  pthread_barrier_wait(&rate.all_threads);
  const double wall_us = now_us() - begin;
  uint64_t model_ns = 0;
  for (int i = 0; i < rate.threads; i++) {
    pthread_join(rate.workers[i].thread, NULL);
    if (rate.workers[i].model_ns > model_ns) model_ns = rate.workers[i].model_ns;
  }
  meet_everybody(&rate.meeting);
  for (int i = 0; i < rate.threads; i++) check_theirs(&rate.workers[i]);
  meet_everybody(&rate.meeting);
  const double operations = (double)rate.operations * rate.threads;
  if (rate.meeting.rank == 0) {
    printf("rate: %s, %zu bytes, %d threads on %d VCQs%s: %.3f M/s on the wall", argv[1], rate.bytes, rate.threads,
           rate.vcqs, rate.own_lock ? " with a mutex" : "", operations / wall_us);
    if (model_ns > 0) printf(", %.2f M/s in the model", operations / ((double)model_ns / 1e3));
    printf(": right\n");
  }
  for (int i = 0; i < rate.threads; i++)
    must(&rate.meeting, utofu_dereg_mem(rate.workers[i].queue->vcq, rate.workers[i].stadd, 0), "utofu_dereg_mem");
  for (int i = 0; i < rate.vcqs; i++) close_vcq(&rate.meeting, rate.queues[i].vcq, NULL, 0);
  return 0;
}
