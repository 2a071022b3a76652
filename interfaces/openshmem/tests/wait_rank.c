/* A PE for tests/system/wait_storm.py: many threads in every kind of wait of OpenSHMEM, whose
 * answers come from PEs that are stopped for a while or share the core.
 *
 *   shmem_wait_rank ROUNDS SEED THREADS one|own polls|waits
 *
 * Thread t of each PE exchanges with thread t of the others, ROUNDS times, in a way that the seed
 * decides for all PEs alike; on the default context (one) or a context of its own; in loops of
 * tests, too, or only in calls that wait. Every kMeetEach rounds all meet. At the end each PE knows
 * what its memory must hold. "done PE ROUNDS": of all its threads. */
#include <pthread.h>
#include <shmem.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { kMostThreads = 16, kMostPes = 8, kShortWords = 32, kPutWords = 256, kLocks = 3, kMeetEach = 16 };

/* Numbers that look random and are the same in all PEs that begin with the same seed: what they do,
 * and the contents of what they send. */
static uint64_t mixed(uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

typedef struct drawn {
  uint64_t state;
} drawn;

/* Of one thread's round: thread t of all ranks draws the same. */
static drawn drawn_for(uint64_t seed, uint64_t thread, uint64_t round) {
  const drawn begun = {mixed(mixed(seed * 1000 + thread) + round)};
  return begun;
}

static uint64_t drawn_below(drawn* of, uint64_t bound) {
  of->state = mixed(of->state);
  return (of->state >> 8) % bound;
}

/* Word i of what a thread sends to its partner in a round. */
static uint64_t drawn_word(uint64_t thread, uint64_t round, uint64_t from, uint64_t i) {
  return mixed(mixed(round * 64 + thread) + (from << 32) + i);
}

/* What a PE's memory has for each of its threads and each other PE. */
struct slot {
  uint64_t signal;
  uint64_t taken; /* the last signal of mine that was taken there */
  uint64_t signalled[kShortWords];
  uint64_t put[kPutWords];
};
/* Of each of its threads. */
struct words {
  uint64_t sum;
  uint64_t called[kMostPes]; /* how often that PE has called all */
};

static struct slot* slots; /* on the heap; the rest is static data */
static struct words of_threads[kMostThreads];
static uint64_t total;
static uint64_t gathered; /* arrivals of threads of this PE where they meet */
static uint64_t reduced[2];
static long locks[kLocks];
static uint64_t guarded[kLocks][2]; /* on PE 0; must be equal */

static uint64_t rounds;
static uint64_t seed;
static int threads;
static int own_contexts;
static int polls;
static int me;
static int n;

struct thread {
  pthread_t handle;
  int number;
  shmem_ctx_t ctx;
  uint64_t round;
  uint64_t rounds_done;
  int to;
  int from;
  uint64_t sent[kMostPes];
  uint64_t taken[kMostPes];
  uint64_t calls;
  uint64_t gathers;
  uint64_t added;
  uint64_t last_total;
  uint64_t expected_sum;
  uint64_t locked[kLocks];
  uint64_t data[kPutWords];
  uint64_t other[kPutWords];
};
static struct thread all[kMostThreads];

static struct slot* slot_of(const struct thread* self, int pe) {
  return &slots[self->number * n + pe];
}

static void fill(struct thread* self, size_t count) {
  for (size_t i = 0; i < count; ++i) self->data[i] = drawn_word((uint64_t)self->number, self->round, (uint64_t)me, i);
}
static void compare(const struct thread* self, const uint64_t* words, size_t count, int from) {
  for (size_t i = 0; i < count; ++i)
    EXPECT(words[i] == drawn_word((uint64_t)self->number, self->round, (uint64_t)from, i),
           "thread %d, round %llu, word %zu from PE %d", self->number, (unsigned long long)self->round, i, from);
}

/* Waits in this thread's own ways for a word that grows. */
static void await_word(uint64_t* word, uint64_t least, uint64_t way) {
  switch (way % (polls ? 4 : 3)) {
    case 0:
      shmem_uint64_wait_until(word, SHMEM_CMP_GE, least);
      break;
    case 1:
      EXPECT(shmem_uint64_wait_until_any(word, 1, NULL, SHMEM_CMP_GE, least) == 0, "the only word");
      break;
    case 2:
      EXPECT(shmem_signal_wait_until(word, SHMEM_CMP_GE, least) >= least, "a signal");
      break;
    default:
      while (!shmem_uint64_test(word, SHMEM_CMP_GE, least)) {
      }
      break;
  }
}

static void put_and_signal(struct thread* self, drawn* random) {
  const size_t count = 1 + drawn_below(random, kShortWords);
  const uint64_t way = drawn_below(random, 4);
  struct slot* const mine = slot_of(self, me);
  fill(self, count);
  const uint64_t sent = ++self->sent[self->to];
  if (drawn_below(random, 2) == 0) {
    shmem_ctx_putmem_signal(self->ctx, mine->signalled, self->data, count * sizeof(uint64_t), &mine->signal, 1,
                            SHMEM_SIGNAL_ADD, self->to);
  } else {
    shmem_ctx_putmem_signal_nbi(self->ctx, mine->signalled, self->data, count * sizeof(uint64_t), &mine->signal, sent,
                                SHMEM_SIGNAL_SET, self->to);
  }
  struct slot* const theirs = slot_of(self, self->from);
  const uint64_t taken = ++self->taken[self->from];
  await_word(&theirs->signal, taken, way);
  EXPECT(shmem_signal_fetch(&theirs->signal) == taken, "a signal more than was sent");
  compare(self, theirs->signalled, count, self->from);
  shmem_ctx_uint64_atomic_set(self->ctx, &mine->taken, taken, self->from);
  await_word(&slot_of(self, self->to)->taken, sent, way + 1);
  shmem_ctx_quiet(self->ctx);
}

/* Each calls all, and waits for the call of each. */
static void call_all(struct thread* self, drawn* random) {
  struct words* const words = &of_threads[self->number];
  const uint64_t calls = ++self->calls;
  size_t indices[kMostPes];
  for (int pe = 0; pe < n; ++pe) shmem_ctx_uint64_p(self->ctx, &words->called[me], calls, pe);
  shmem_ctx_quiet(self->ctx);
  int status[kMostPes] = {0}; /* not 0: this one is not waited for any more */
  const size_t count = (size_t)n;
  switch (drawn_below(random, polls ? 4 : 3)) {
    case 0:
      shmem_uint64_wait_until_all(words->called, count, NULL, SHMEM_CMP_GE, calls);
      break;
    case 1:
      for (int pe = 0; pe < n; ++pe) {
        const size_t which = shmem_uint64_wait_until_any(words->called, count, status, SHMEM_CMP_GE, calls);
        EXPECT(which < count, "one of %d", n);
        if (which < count) status[which] = 1;
      }
      break;
    case 2:
      for (size_t found = 0; found < count;) {
        const size_t more = shmem_uint64_wait_until_some(words->called, count, indices, status, SHMEM_CMP_GE, calls);
        for (size_t i = 0; i < more; ++i) status[indices[i]] = 1;
        EXPECT(more > 0, "some");
        if (more == 0) return;
        found += more;
      }
      break;
    default:
      while (!shmem_uint64_test_all(words->called, count, NULL, SHMEM_CMP_GE, calls)) {
      }
      break;
  }
  for (int pe = 0; pe < n; ++pe) EXPECT(words->called[pe] >= calls, "PE %d has called", pe);
}

static void add(struct thread* self, drawn* random) {
  const uint64_t addend = 1 + drawn_below(random, 1000);
  const uint64_t before = shmem_ctx_uint64_atomic_fetch_add(self->ctx, &total, 1, 0);
  EXPECT(before >= self->last_total, "a word that only grows");
  self->last_total = before + 1;
  ++self->added;
  self->expected_sum += addend;
  uint64_t* const sum = &of_threads[self->number].sum;
  if (drawn_below(random, 2) == 0) {
    shmem_ctx_uint64_atomic_fetch_add(self->ctx, sum, addend, self->to);
  } else {
    shmem_ctx_uint64_atomic_add(self->ctx, sum, addend, self->to);
    shmem_ctx_quiet(self->ctx);
  }
}

static void put_and_get(struct thread* self, drawn* random) {
  const size_t count = 1 + drawn_below(random, kPutWords);
  uint64_t* const there = slot_of(self, me)->put;
  fill(self, count);
  if (drawn_below(random, 2) == 0) {
    shmem_ctx_uint64_put(self->ctx, there, self->data, count, self->to);
  } else {
    shmem_ctx_uint64_put_nbi(self->ctx, there, self->data, count, self->to);
  }
  shmem_ctx_quiet(self->ctx);
  shmem_ctx_uint64_get(self->ctx, self->other, there, count, self->to);
  compare(self, self->other, count, me);
}

static void lock(struct thread* self, drawn* random) {
  const uint64_t which = drawn_below(random, kLocks);
  if (polls && drawn_below(random, 4) == 0) {
    while (shmem_test_lock(&locks[which]) != 0) {
    }
  } else {
    shmem_set_lock(&locks[which]);
  }
  const uint64_t first = shmem_uint64_g(&guarded[which][0], 0);
  const uint64_t second = shmem_uint64_g(&guarded[which][1], 0);
  EXPECT(first == second, "the lock does not exclude: %llu %llu", (unsigned long long)first,
         (unsigned long long)second);
  shmem_uint64_p(&guarded[which][0], first + 1, 0);
  shmem_uint64_p(&guarded[which][1], second + 1, 0);
  shmem_clear_lock(&locks[which]); /* which completes them */
  ++self->locked[which];
}

static void gather(struct thread* self) {
  const uint64_t here = ++self->gathers * (uint64_t)threads;
  shmem_uint64_atomic_add(&gathered, 1, me);
  shmem_uint64_wait_until(&gathered, SHMEM_CMP_GE, here);
}
static void meet(struct thread* self) {
  gather(self);
  if (self->number == 0) {
    shmem_barrier_all();
    reduced[0] = (uint64_t)me + self->round;
    shmem_uint64_sum_reduce(SHMEM_TEAM_WORLD, &reduced[1], &reduced[0], 1);
    const uint64_t size = (uint64_t)n;
    EXPECT(reduced[1] == size * (size - 1) / 2 + size * self->round, "a reduction");
    shmem_team_sync(SHMEM_TEAM_WORLD);
  }
  gather(self);
}

static void* run(void* arg) {
  struct thread* const self = arg;
  self->ctx = SHMEM_CTX_DEFAULT;
  if (own_contexts) EXPECT(shmem_ctx_create(SHMEM_CTX_PRIVATE, &self->ctx) == 0, "a context");
  for (self->round = 1; self->round <= rounds; ++self->round) {
    drawn random = drawn_for(seed, (uint64_t)self->number, self->round);
    const int distance = 1 + (int)drawn_below(&random, (uint64_t)n - 1);
    self->to = (me + distance) % n;
    self->from = (me + n - distance) % n;
    static void (*const kKinds[])(struct thread*, drawn*) = {put_and_signal, call_all, add,
                                                             put_and_get,    lock,     put_and_signal};
    kKinds[drawn_below(&random, sizeof kKinds / sizeof *kKinds)](self, &random);
    ++self->rounds_done;
    if (self->round % kMeetEach == 0) meet(self);
  }
  meet(self);
  if (own_contexts) shmem_ctx_destroy(self->ctx);
  return NULL;
}

static void check_memory(void) {
  uint64_t added = 0;
  uint64_t locked[kLocks] = {0};
  for (int t = 0; t < threads; ++t) {
    EXPECT(of_threads[t].sum == all[t].expected_sum, "what was added to thread %d's word", t);
    added += all[t].added;
    for (int i = 0; i < kLocks; ++i) locked[i] += all[t].locked[i];
  }
  if (me != 0) return;
  EXPECT(total == added * (uint64_t)n, "how often anybody has added: %llu", (unsigned long long)total);
  for (int i = 0; i < kLocks; ++i) EXPECT(guarded[i][0] == locked[i] * (uint64_t)n, "how often lock %d was taken", i);
}

int main(int argc, char** argv) {
  int provided = 0;
  if (argc != 6) {
    fputs("usage: shmem_wait_rank ROUNDS SEED THREADS one|own polls|waits\n", stderr);
    return 2;
  }
  rounds = strtoull(argv[1], NULL, 10);
  seed = strtoull(argv[2], NULL, 10);
  threads = atoi(argv[3]);
  own_contexts = strcmp(argv[4], "own") == 0;
  polls = strcmp(argv[5], "polls") == 0;
  shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
  me = shmem_my_pe();
  n = shmem_n_pes();
  if (n < 2 || n > kMostPes || threads < 1 || threads > kMostThreads) shmem_global_exit(2);
  slots = shmem_calloc((size_t)(threads * n), sizeof *slots);
  EXPECT(slots != NULL, "memory");
  for (int t = 0; t < threads; ++t) all[t].number = t;
  shmem_barrier_all();
  for (int t = 1; t < threads; ++t) EXPECT(pthread_create(&all[t].handle, NULL, run, &all[t]) == 0, "thread %d", t);
  run(&all[0]);
  for (int t = 1; t < threads; ++t) pthread_join(all[t].handle, NULL);
  check_memory();
  uint64_t done = 0;
  for (int t = 0; t < threads; ++t) done += all[t].rounds_done;
  shmem_finalize();
  printf("done %d %llu\n", me, (unsigned long long)done);
  return failures != 0;
}
