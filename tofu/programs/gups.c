/* Random updates of words in the whole job (GUPS): each thread of each process updates (XOR) random
 * words of random processes' tables. It does the same sequence twice, so that all tables must be
 * zero in the end.
 *
 *   gups [THREADS [VCQS [UPDATES [WORDS [atomic|get-put]]]]]
 *
 * threads, VCQs, updates a thread (each done twice), words of a table, and the method: by atomic
 * operations, up to 32 in flight; or by a get and a put that are waited for, like the benchmark in
 * papers. That benchmark loses updates, since two threads may read the same value. Here each thread
 * has its own words in every table, so that no update is lost.
 *
 * prints millions of updates a second of all processes, in wall-clock time and, if it is switched
 * on, in the timing model. */
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "meet.h"

enum { kMostThreads = 256, kWindow = 32, kWordsOfLine = 32 };

struct thread {
  struct gups* gups;
  int number;
  int queue;
  pthread_t id;
  uint64_t posted;
  atomic_uint_fast64_t done; /* incremented by the thread of the VCQ that polls the completion */
  uint64_t model_ns;
  utofu_stadd_t landing_stadd;
};

struct card {
  utofu_vcq_id_t vcq;
  utofu_stadd_t table; /* its address for this VCQ */
};

struct gups {
  struct meeting meeting;
  int threads, vcqs;
  int by_get_and_put;
  uint64_t updates, words;
  uint64_t* table;
  utofu_vcq_hdl_t queues[kMostThreads];
  uint64_t* landings;                        /* destinations of gets: a line for each thread */
  utofu_stadd_t registered[kMostThreads][2]; /* the table, the landings */
  struct card* cards;                        /* by process and VCQ */
  pthread_barrier_t all_threads;
  struct thread workers[kMostThreads];
};

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static uint64_t next_random(uint64_t* state) {
  uint64_t x = *state += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

static void collect(struct thread* thread) {
  struct gups* const gups = thread->gups;
  struct utofu_mrq_notice notice;
  void* cbdata;
  /* makes room in the queue of commands */
  const int sent = utofu_poll_tcq(gups->queues[thread->queue], 0, &cbdata);
  if (sent != UTOFU_ERR_NOT_FOUND) must(&gups->meeting, sent, "utofu_poll_tcq");
  const int code = utofu_poll_mrq(gups->queues[thread->queue], 0, &notice);
  if (code == UTOFU_ERR_NOT_FOUND) {
    give_way();
    return;
  }
  must(&gups->meeting, code, "utofu_poll_mrq");
  atomic_fetch_add(&gups->workers[notice.edata].done, 1);
}

static void finish(struct thread* thread) {
  while (thread->posted != atomic_load(&thread->done)) collect(thread);
}

static void get_and_put(struct thread* thread, const struct card* card, uint64_t random) {
  struct gups* const gups = thread->gups;
  const struct meeting* const meeting = &gups->meeting;
  const utofu_vcq_hdl_t vcq = gups->queues[thread->queue];
  const uint64_t players = (uint64_t)meeting->size * (uint64_t)gups->threads;
  const uint64_t own = (uint64_t)meeting->rank * (uint64_t)gups->threads + (uint64_t)thread->number;
  const utofu_stadd_t word = card->table + (random % (gups->words / players) * players + own) * sizeof(uint64_t);
  const uint64_t* const landing = gups->landings + (size_t)thread->number * kWordsOfLine;
  int code;
  while ((code = utofu_get(vcq, card->vcq, thread->landing_stadd, word, sizeof(uint64_t), (uint64_t)thread->number,
                           UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL)) == UTOFU_ERR_BUSY)
    collect(thread);
  must(meeting, code, "utofu_get");
  thread->posted++;
  finish(thread);
  while ((code = utofu_put_piggyback8(vcq, card->vcq, peek(landing) ^ random, word, sizeof(uint64_t),
                                      (uint64_t)thread->number, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL)) ==
         UTOFU_ERR_BUSY)
    collect(thread);
  must(meeting, code, "utofu_put_piggyback8");
  thread->posted++;
  finish(thread); /* the next update may be of the same word */
}

static void update(struct thread* thread, uint64_t random) {
  struct gups* const gups = thread->gups;
  const size_t process = (random >> 40) % (uint64_t)gups->meeting.size;
  const struct card* const card = &gups->cards[process * (size_t)gups->vcqs + (size_t)thread->queue];
  if (gups->by_get_and_put) {
    get_and_put(thread, card, random);
    return;
  }
  const utofu_stadd_t word = card->table + random % gups->words * sizeof(uint64_t);
  while (thread->posted - atomic_load(&thread->done) >= kWindow) collect(thread);
  int code;
  while ((code = utofu_armw8(gups->queues[thread->queue], card->vcq, UTOFU_ARMW_OP_XOR, random, word,
                             (uint64_t)thread->number, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL)) == UTOFU_ERR_BUSY)
    collect(thread);
  must(&gups->meeting, code, "utofu_armw8");
  thread->posted++;
}

static void sweep(struct thread* thread) {
  uint64_t state = (uint64_t)thread->gups->meeting.rank * kMostThreads + (uint64_t)thread->number;
  for (uint64_t i = 0; i < thread->gups->updates; i++) update(thread, next_random(&state));
  finish(thread);
}

static uint64_t marks(const struct gups* gups) {
  uint64_t all = 0;
  for (uint64_t i = 0; i < gups->words; i++) all += gups->table[i] != 0;
  return all;
}

static void* run(void* argument) {
  struct thread* const thread = argument;
  struct gups* const gups = thread->gups;
  pthread_barrier_wait(&gups->all_threads);
  const uint64_t model = model_now_ns();
  sweep(thread);
  thread->model_ns = model_now_ns() - model;
  pthread_barrier_wait(&gups->all_threads); /* the main thread checks for writes */
  pthread_barrier_wait(&gups->all_threads);
  sweep(thread);
  return NULL;
}

static void join(struct gups* gups) {
  struct meeting* const meeting = &gups->meeting;
  meet_begin(meeting);
  gups->table = get_memory(meeting, gups->words * sizeof(uint64_t));
  gups->landings = get_memory(meeting, (size_t)gups->threads * kWordsOfLine * sizeof(uint64_t));
  const unsigned long shared = gups->vcqs < gups->threads ? UTOFU_VCQ_FLAG_THREAD_SAFE : 0;
  struct card* const mine = calloc((size_t)gups->vcqs, sizeof *mine);
  gups->cards = calloc((size_t)gups->vcqs * (size_t)meeting->size, sizeof *mine);
  for (int i = 0; i < gups->vcqs; i++) {
    gups->queues[i] = open_vcq(meeting, (size_t)i, UTOFU_VCQ_FLAG_EXCLUSIVE | shared);
    gups->registered[i][0] = register_memory(meeting, gups->queues[i], gups->table, gups->words * sizeof(uint64_t));
    gups->registered[i][1] = register_memory(meeting, gups->queues[i], gups->landings,
                                             (size_t)gups->threads * kWordsOfLine * sizeof(uint64_t));
    mine[i] = (struct card){id_of(meeting, gups->queues[i]), gups->registered[i][0]};
  }
  meet_all(meeting, mine, (size_t)gups->vcqs * sizeof *mine, gups->cards);
  for (int i = 0; i < gups->vcqs * meeting->size; i++) gups->cards[i].vcq = reach(meeting, gups->cards[i].vcq);
  free(mine);
  for (int i = 0; i < gups->threads; i++) {
    gups->workers[i].gups = gups;
    gups->workers[i].number = i;
    gups->workers[i].queue = i * gups->vcqs / gups->threads;
    gups->workers[i].landing_stadd =
        gups->registered[gups->workers[i].queue][1] + (size_t)i * kWordsOfLine * sizeof(uint64_t);
  }
}

int main(int argc, char** argv) {
  static struct gups gups; /* all zero */
  static const char kUsage[] = "gups [THREADS [VCQS [UPDATES [WORDS [atomic|get-put]]]]]";
  if (argc > 6) misused(kUsage);
  gups.threads = argc > 1 ? (int)whole_number(argv[1], 1, kMostThreads, kUsage) : 1;
  gups.vcqs = argc > 2 ? (int)whole_number(argv[2], 1, (uint64_t)gups.threads, kUsage) : gups.threads;
  gups.updates = argc > 3 ? whole_number(argv[3], 0, kMostRounds, kUsage) : 1000;
  gups.words = argc > 4 ? whole_number(argv[4], 1, kMostRounds, kUsage) : 4096;
  gups.by_get_and_put = argc > 5 && strcmp(argv[5], "get-put") == 0;
  if (argc > 5 && !gups.by_get_and_put && strcmp(argv[5], "atomic") != 0) misused(kUsage);
  join(&gups);
  if (gups.by_get_and_put && gups.words < (uint64_t)gups.meeting.size * (uint64_t)gups.threads)
    wrong(&gups.meeting, "%" PRIu64 " words are fewer than there are threads", gups.words);
  pthread_barrier_init(&gups.all_threads, NULL, (unsigned)gups.threads + 1);
  for (int i = 0; i < gups.threads; i++)
    if (pthread_create(&gups.workers[i].id, NULL, run, &gups.workers[i]) != 0)
      wrong(&gups.meeting, "no thread number %d", i);
  pthread_barrier_wait(&gups.all_threads);
  const double begin = now_us();
  pthread_barrier_wait(&gups.all_threads);
  const double wall_us = now_us() - begin;
  meet_everybody(&gups.meeting); /* all updates of the first sweep are complete */
  if (gups.updates >= 100 && marks(&gups) == 0) wrong(&gups.meeting, "no update has come");
  meet_everybody(&gups.meeting); /* all processes have checked */
  pthread_barrier_wait(&gups.all_threads);
  uint64_t model_ns = 0;
  for (int i = 0; i < gups.threads; i++) {
    pthread_join(gups.workers[i].id, NULL);
    if (gups.workers[i].model_ns > model_ns) model_ns = gups.workers[i].model_ns;
  }
  meet_everybody(&gups.meeting);
  if (marks(&gups) != 0) wrong(&gups.meeting, "%" PRIu64 " words are wrong: updates were lost", marks(&gups));
  const double updates = (double)gups.updates * gups.threads * gups.meeting.size;
  if (gups.meeting.rank == 0) {
    printf("gups%s: %d processes, %d threads on %d VCQs each: %.3f M/s on the wall",
           gups.by_get_and_put ? " by get and put" : "", gups.meeting.size, gups.threads, gups.vcqs, updates / wall_us);
    if (model_ns > 0) printf(", %.2f M/s in the model", updates / ((double)model_ns / 1e3));
    printf(": right\n");
  }
  for (int i = 0; i < gups.vcqs; i++) close_vcq(&gups.meeting, gups.queues[i], gups.registered[i], 2);
  return 0;
}
