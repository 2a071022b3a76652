#define _POSIX_C_SOURCE 200809L /* barriers of pthread.h */
/* To be compiled with -fsanitize=thread, as tsan_user.c, beside a library that is not: two threads
 * hand memory to each other by messages, collectives, partitioned messages and completions. Each
 * is a rank of an inproc job, or they are two workers of one rank.
 *
 *   tsan_messages RANKS TRANSPORT HOW      HOW: a name in kWays
 */
#include <heddle/collectives.h>
#include <heddle/heddle.h>
#include <heddle/partitioned.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 20
#define MOST_WORDS (256 * 1024 / 8)

static int ranks;
static const char* transport;
static heddle_inproc_job job;
static heddle_context only; /* one rank: the context of both threads */
static uint64_t sources[2][MOST_WORDS];
static uint64_t targets[2][MOST_WORDS];

typedef struct side {
  heddle_context context;
  heddle_worker worker;
  uint32_t me;
  heddle_peer peer;
} side;

static void check(heddle_status status, const char* what) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s\n", what, heddle_last_error());
  exit(2);
}

static heddle_context join(const char* bootstrap, uint32_t rank) {
  heddle_context_options options;
  heddle_context context;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.bootstrap = bootstrap;
  options.transport = transport;
  options.job = job;
  options.rank = rank;
  check(heddle_context_join(&options, &context), "join");
  return context;
}

static void fill(uint64_t* words, size_t count, uint64_t round) {
  for (size_t i = 0; i < count; ++i) words[i] = round + i;
}

static void compare(const uint64_t* words, size_t count, uint64_t round) {
  for (size_t i = 0; i < count; ++i) {
    if (words[i] == round + i) continue;
    fprintf(stderr, "round %llu brought something else\n", (unsigned long long)round);
    exit(3);
  }
}

/* ---- tagged messages ------------------------------------------------------------------------- */

static void send_words(const side* s, size_t count, uint64_t round) {
  heddle_counter counter;
  heddle_completion completion;
  heddle_status status;
  memset(&completion, 0, sizeof completion);
  check(heddle_counter_create(s->context, NULL, &counter), "counter");
  completion.counter = counter;
  completion.when = HEDDLE_WHEN_REMOTE;
  fill(sources[s->me], count, round);
  status = heddle_send(s->worker, s->peer, 7, sources[s->me], 8 * count, &completion);
  check(status, "send");
  if (status == HEDDLE_POSTED) check(heddle_counter_wait(s->worker, counter, 1, HEDDLE_FOREVER), "counter_wait");
  check(heddle_counter_free(counter), "free");
}

static void receive_words(const side* s, size_t count, uint64_t round) {
  heddle_receive receive;
  const heddle_wanted wanted = {s->peer, 7, UINT64_MAX};
  memset(targets[s->me], 0, 8 * count);
  check(heddle_recv(s->worker, &wanted, targets[s->me], 8 * count, &receive, NULL), "recv");
  check(heddle_recv_wait(s->worker, &receive, HEDDLE_FOREVER), "recv_wait");
  compare(targets[s->me], count, round);
}

static void tagged_in_turn(const side* s, size_t count) {
  for (uint64_t round = 1; round <= ROUNDS; ++round) {
    if (s->me == 0) send_words(s, count, round);
    if (s->me == 1) receive_words(s, count, round);
    if (s->me == 1) send_words(s, count, round);
    if (s->me == 0) receive_words(s, count, round);
  }
}

static void tagged_short(const side* s) {
  tagged_in_turn(s, 4);
}
static void tagged_eager(const side* s) {
  tagged_in_turn(s, 500);
}
static void tagged_long(const side* s) {
  tagged_in_turn(s, MOST_WORDS);
}

/* ---- active messages ------------------------------------------------------------------------- */

static uint64_t arrived[2]; /* by handlers, which say so with release */

static void on_message(const heddle_am_arrival* message, void* arg) {
  uint64_t header[2];
  memcpy(header, message->header, sizeof header);
  (void)arg;
  memcpy(targets[header[0]], message->payload, message->payload_bytes);
  __atomic_store_n(&arrived[header[0]], header[1], __ATOMIC_RELEASE);
}

static void active(const side* s, uint32_t handler, size_t count) {
  for (uint64_t round = 1; round <= ROUNDS; ++round) {
    for (uint32_t turn = 0; turn < 2; ++turn) {
      if (turn == s->me) {
        const uint64_t header[2] = {1 - s->me, round};
        const heddle_am_message message = {handler, sizeof header, header, sources[s->me], 8 * count};
        fill(sources[s->me], count, round);
        check(heddle_am(s->worker, s->peer, &message, NULL), "am");
        check(heddle_quiet(s->worker), "quiet");
      } else {
        while (__atomic_load_n(&arrived[s->me], __ATOMIC_ACQUIRE) < round) {
          if (handler >= HEDDLE_AM_USER) check(heddle_run_tasks(s->worker, 10, 0), "run_tasks");
          check(heddle_worker_progress(s->worker), "progress");
        }
        compare(targets[s->me], count, round);
      }
    }
  }
}

static void active_short(const side* s) {
  active(s, 1, 2);
}
static void active_eager(const side* s) {
  active(s, 1, 400);
}
static void active_long(const side* s) {
  active(s, 1, 8192);
}
static void active_user(const side* s) {
  active(s, HEDDLE_AM_USER, 400);
}

/* ---- completions by callback, and waits of one thread for what another one posted ------------ */

static uint64_t ended[2];

static void on_end(void* arg, heddle_status status) {
  check(status, "completion");
  __atomic_fetch_add((uint64_t*)arg, 1, __ATOMIC_RELEASE);
}

static void callbacks(const side* s) {
  const heddle_completion completion = {on_end, &ended[s->me], {0}, HEDDLE_WHEN_REMOTE};
  uint64_t sent = 0;
  for (uint64_t round = 1; round <= ROUNDS; ++round) {
    for (uint32_t turn = 0; turn < 2; ++turn) {
      if (turn != s->me) {
        receive_words(s, 500, round);
        continue;
      }
      fill(sources[s->me], 500, round);
      const heddle_status status = heddle_send(s->worker, s->peer, 7, sources[s->me], 8 * 500, &completion);
      check(status, "send");
      if (status == HEDDLE_POSTED) ++sent;
      while (__atomic_load_n(&ended[s->me], __ATOMIC_ACQUIRE) < sent)
        check(heddle_worker_progress(s->worker), "progress");
    }
  }
}

/* ---- lists of the context: both threads change them, ordered by their lock alone ------------- */

static uint64_t freed[2]; /* relaxed: says when, and orders nothing */

static void objects(const side* s) {
  for (uint64_t round = 1; round <= ROUNDS; ++round) {
    for (uint32_t turn = 0; turn < 2; ++turn) {
      heddle_counter counter;
      check(heddle_counter_create(s->context, NULL, &counter), "counter");
      if (turn != s->me) {
        while (__atomic_load_n(&freed[1 - s->me], __ATOMIC_RELAXED) < round) sched_yield();
        check(heddle_counter_free(counter), "free");
        send_words(s, 4, round);
        continue;
      }
      heddle_receive receive;
      const heddle_wanted wanted = {s->peer, 7, UINT64_MAX};
      heddle_completion completion;
      memset(&completion, 0, sizeof completion);
      completion.counter = counter;
      check(heddle_recv(s->worker, &wanted, targets[s->me], 8 * 4, &receive, &completion), "recv");
      /* The receive names it, so the context keeps it in a list. */
      check(heddle_counter_free(counter), "free");
      __atomic_store_n(&freed[s->me], round, __ATOMIC_RELAXED);
      check(heddle_recv_wait(s->worker, &receive, HEDDLE_FOREVER), "recv_wait");
      compare(targets[s->me], 4, round);
    }
  }
}

/* ---- puts, gets and atomics between regions that peers map ----------------------------------- */

static void one_sided(const side* s) {
  heddle_region region;
  heddle_remote_region remotes[2];
  void* memory = NULL;
  size_t bytes = 0;
  static uint64_t old[2];
  if (ranks != 2) return;
  check(heddle_region_alloc(s->context, 8 * 1024, &region), "alloc");
  check(heddle_region_exchange(s->context, region, remotes), "exchange");
  check(heddle_region_address(region, &memory, &bytes), "address");
  for (uint64_t round = 1; round <= ROUNDS; ++round) {
    const heddle_remote there = {remotes[s->peer.rank], 64};
    const heddle_remote word = {remotes[s->peer.rank], 0};
    fill(sources[s->me], 500, round);
    check(heddle_put(s->worker, sources[s->me], 8 * 500, there, NULL), "put");
    check(heddle_quiet(s->worker), "quiet");
    check(heddle_context_barrier(s->context, s->worker, HEDDLE_FOREVER), "barrier");
    compare((const uint64_t*)memory + 8, 500, round);
    check(heddle_get_wait(s->worker, targets[s->me], 8 * 500, there), "get");
    compare(targets[s->me], 500, round);
    check(heddle_atomic(s->worker, HEDDLE_ADD64, word, 1, NULL), "atomic");
    check(heddle_quiet(s->worker), "quiet");
    check(heddle_context_barrier(s->context, s->worker, HEDDLE_FOREVER), "barrier");
    old[s->me] = *(const uint64_t*)memory;
    if (old[s->me] != round) exit(3);
    check(heddle_context_barrier(s->context, s->worker, HEDDLE_FOREVER), "barrier");
  }
}

/* ---- collectives ----------------------------------------------------------------------------- */

static void collectives(const side* s) {
  heddle_team team;
  if (ranks != 2) return;
  check(heddle_team_world(s->context, &team), "team");
  for (uint64_t round = 1; round <= ROUNDS; ++round) {
    for (size_t count = 1; count <= 64 * 1024 / 8; count *= 16) {
      fill(sources[s->me], count, round);
      check(heddle_allgather(team, sources[s->me], targets[s->me], 8 * count), "allgather");
      for (size_t from = 0; from < 2; ++from) compare(targets[s->me] + from * count, count, round);
      check(heddle_broadcast(team, sources[s->me], 8 * count, 0), "broadcast");
      compare(sources[s->me], count, round);
      check(heddle_alltoall(team, sources[s->me], targets[s->me], 4 * count), "alltoall");
      check(heddle_barrier(team), "barrier");
    }
  }
  check(heddle_team_free(team), "free");
}

typedef struct way {
  const char* name;
  void (*run)(const side*);
} way;
static const way kWays[] = {
    {"tagged_short", tagged_short}, {"tagged_eager", tagged_eager}, {"tagged_long", tagged_long},
    {"active_short", active_short}, {"active_eager", active_eager}, {"active_long", active_long},
    {"active_user", active_user},   {"callbacks", callbacks},       {"objects", objects},
    {"one_sided", one_sided},       {"collectives", collectives}};
static const way* chosen;

static pthread_barrier_t both;

static void* run(void* number) {
  side s;
  s.me = (uint32_t)(uintptr_t)number;
  s.context = ranks == 2 ? join("inproc", s.me) : only;
  if (ranks == 2) {
    check(heddle_am_register(s.context, 1, on_message, NULL), "register");
    check(heddle_am_register(s.context, HEDDLE_AM_USER, on_message, NULL), "register");
  }
  if (ranks == 1) pthread_barrier_wait(&both);
  check(heddle_worker_open(s.context, NULL, &s.worker), "worker");
  uint32_t index = 0;
  check(heddle_worker_index(s.worker, &index), "index");
  static uint32_t indices[2];
  if (ranks == 1) {
    indices[s.me] = index;
    pthread_barrier_wait(&both);
    s.peer.rank = 0;
    s.peer.worker = indices[1 - s.me];
  } else {
    s.peer.rank = 1 - s.me;
    s.peer.worker = 0;
  }
  chosen->run(&s);
  check(heddle_quiet(s.worker), "quiet");
  if (ranks == 1) pthread_barrier_wait(&both);
  if (ranks == 2) check(heddle_context_leave(s.context), "leave");
  return NULL;
}

int main(int argc, char** argv) {
  pthread_t threads[2];
  if (argc != 4) return 2;
  ranks = atoi(argv[1]);
  transport = argv[2];
  for (size_t i = 0; i < sizeof kWays / sizeof kWays[0]; ++i) {
    if (strcmp(kWays[i].name, argv[3]) == 0) chosen = &kWays[i];
  }
  if (chosen == NULL) return 2;
  pthread_barrier_init(&both, NULL, 2);
  if (ranks == 2) {
    check(heddle_inproc_create(2, &job), "create");
  } else {
    only = join("single", 0);
    check(heddle_am_register(only, 1, on_message, NULL), "register");
    check(heddle_am_register(only, HEDDLE_AM_USER, on_message, NULL), "register");
  }
  for (uintptr_t i = 0; i < 2; ++i) {
    if (pthread_create(&threads[i], NULL, run, (void*)i) != 0) return 2;
  }
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  if (ranks == 1) check(heddle_context_leave(only), "leave");
  puts("done");
  return 0;
}
