/* hang_pe --class NAME --seed S: an OpenSHMEM program that communicates correctly for a while,
 * until one planted fault makes it hang. Options as of hang_rank. */
#include <shmem.h>
#include <signal.h>

#include "hang_common.h"

enum { MOST_STEPS = 64, MOST = 4096, NUMBERS = 300 };
enum { PUT, GET, ADD, SIGNAL, FLAG, LOCKED, REDUCE, BROADCAST, BARRIER, SYNC, HALVES, STEP_KINDS };

static const hang_class classes[] = {
    {"lock_holder_waits", 2}, {"lock_kept", 2},          {"lock_order", 2}, {"wait_until", 2},
    {"missing_signal", 2},    {"skipped_collective", 2}, {"computes", 2},   {"stopped", 2},
};

typedef struct step {
  uint32_t kind, distance, from, count;
} step;

typedef struct script {
  const char* name;
  uint32_t ranks;
  step steps[MOST_STEPS];
  uint32_t step_count;
  uint32_t culprit, victim, variant;
  uint32_t op;   /* BARRIER, SYNC, REDUCE */
  uint32_t meet; /* such an operation */
  uint32_t chain[HANG_MOST_RANKS], chain_length;
  int burns;
  hang_truth truth;
} script;

/* Each step has its own, so that PEs need not run in step. */
static long flags[MOST_STEPS + 8][4];
static uint64_t signals[MOST_STEPS + 8];
static long counters[MOST_STEPS + 8];
static long data[MOST], landing[MOST];
static long locks[2];
static long guarded;

static int me, size;
static uint32_t now; /* the step */
static shmem_team_t halves;

static int is(const script* s, const char* name) {
  return strcmp(s->name, name) == 0;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static uint32_t draw_op(hang_random* random) {
  static const uint32_t ops[] = {BARRIER, SYNC, REDUCE};
  return ops[hang_below(random, 3)];
}

static const char* name_of(uint32_t op) {
  return op == BARRIER ? "barrier" : op == SYNC ? "sync" : "reduc";
}

static void plan_silence(script* s) {
  const char* const waits[] = {name_of(s->op), "wait|until", "lock"};
  hang_words(&s->truth, waits[s->variant], name_of(s->meet), HANG_NO_MORE);
  if (is(s, "computes")) {
    hang_words(&s->truth, HANG_OWN_CODE, HANG_NO_MORE);
  } else {
    hang_words(&s->truth, HANG_STOPPED, HANG_NO_MORE);
  }
}

static void plan_locks(script* s) {
  hang_words(&s->truth, "lock", HANG_NO_MORE);
  if (is(s, "lock_holder_waits")) hang_words(&s->truth, "wait|until", HANG_NO_MORE);
  if (is(s, "lock_kept")) hang_words(&s->truth, name_of(s->meet), HANG_NO_MORE);
}

static void plan_fault(script* s) {
  if (is(s, "lock_order")) {
    hang_blame(&s->truth, s->culprit < s->victim ? s->culprit : s->victim);
    hang_blame(&s->truth, s->culprit < s->victim ? s->victim : s->culprit);
    plan_locks(s);
    return;
  }
  hang_blame(&s->truth, s->culprit);
  if (is(s, "lock_holder_waits") || is(s, "lock_kept")) {
    plan_locks(s);
  } else if (is(s, "wait_until")) {
    hang_accept(&s->truth, s->victim); /* the job does not show which PE should have set it */
    hang_words(&s->truth, "wait|until", HANG_NO_MORE);
  } else if (is(s, "missing_signal")) {
    hang_accept(&s->truth, s->victim);
    hang_words(&s->truth, "signal", HANG_NO_MORE);
  } else if (is(s, "skipped_collective")) {
    if (s->ranks == 2) hang_accept(&s->truth, s->victim);
    hang_words(&s->truth, name_of(s->op), HANG_NO_MORE);
    hang_words(&s->truth, "wait|until", HANG_NO_MORE);
  } else {
    plan_silence(s);
  }
}

static void draw(script* s, const hang_options* options, uint32_t ranks) {
  hang_random random = hang_seeded(options->chosen->name, options->seed, 2);
  memset(s, 0, sizeof *s);
  s->name = options->chosen->name;
  s->ranks = ranks;
  s->step_count = hang_between(&random, 5, 50);
  for (uint32_t i = 0; i < s->step_count; ++i) {
    s->steps[i].kind = hang_below(&random, STEP_KINDS);
    s->steps[i].distance = hang_between(&random, 1, ranks - 1);
    s->steps[i].from = hang_below(&random, ranks);
    s->steps[i].count = hang_between(&random, 1, NUMBERS);
  }
  s->culprit = hang_below(&random, ranks);
  s->victim = hang_other(&random, ranks, s->culprit, s->culprit);
  s->variant = hang_below(&random, 3);
  s->op = draw_op(&random);
  s->meet = draw_op(&random);
  s->burns = hang_chance(&random, 2);
  plan_fault(s);
  s->truth.step = s->step_count + 1;
  hang_append(s->truth.how, sizeof s->truth.how, "variant %u", s->variant);
  s->chain_length = hang_chain(&random, ranks, s->victim, &s->culprit, 1, s->chain);
}

/* ---- correct steps --------------------------------------------------------------------------- */

static void set_flag(uint32_t which, int pe, long value) {
  shmem_quiet();
  shmem_long_atomic_set(&flags[now][which], value, pe);
  shmem_quiet();
}

static void await_flag(uint32_t which, long value) {
  shmem_long_wait_until(&flags[now][which], SHMEM_CMP_GE, value);
}

static void collective(uint32_t op) {
  if (op == BARRIER) {
    shmem_barrier_all();
  } else if (op == SYNC) {
    shmem_sync_all();
  } else {
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, landing, data, NUMBERS);
  }
}

static void play_locked(void) {
  shmem_set_lock(&locks[0]);
  const long value = shmem_long_g(&guarded, 0);
  shmem_long_p(&guarded, value + 1, 0);
  shmem_quiet();
  shmem_clear_lock(&locks[0]);
}

static void play_step(const step* one) {
  const int to = (me + (int)one->distance) % size;
  switch (one->kind) {
    case PUT:
      shmem_barrier_all();
      shmem_long_put(landing, data, one->count, to);
      shmem_barrier_all();
      break;
    case GET: {
      long got[NUMBERS];
      shmem_long_get(got, data, one->count, to);
      if (got[one->count - 1] != to) hang_fail("a get", "got something else");
      break;
    }
    case ADD:
      shmem_long_atomic_add(&counters[now], 1, (int)one->from);
      shmem_barrier_all();
      if (me == (int)one->from && counters[now] != size) hang_fail("an atomic", "was not done");
      break;
    case SIGNAL:
      shmem_long_put_signal(landing + MOST / 2, data, one->count, &signals[now], 1, SHMEM_SIGNAL_ADD, to);
      shmem_signal_wait_until(&signals[now], SHMEM_CMP_GE, 1);
      break;
    case FLAG:
      set_flag(0, to, 1);
      await_flag(0, 1);
      break;
    case LOCKED:
      play_locked();
      break;
    case BROADCAST:
      shmem_sync_all();
      shmem_long_broadcast(SHMEM_TEAM_WORLD, landing, data, one->count, (int)one->from);
      if (landing[0] != (long)one->from) hang_fail("a broadcast", "has other data");
      break;
    case HALVES:
      shmem_team_sync(halves);
      break;
    default:
      collective(one->kind);
  }
}

/* ---- the fault ------------------------------------------------------------------------------- */

static void play_lock_holder(const script* s, int faulty) {
  if (me == (int)s->culprit) {
    shmem_set_lock(&locks[1]);
    set_flag(0, (int)s->victim, 1);
    if (!faulty) shmem_clear_lock(&locks[1]);
    await_flag(1, 1);
    if (faulty) shmem_clear_lock(&locks[1]);
  }
  if (me == (int)s->victim) {
    await_flag(0, 1);
    shmem_set_lock(&locks[1]);
    shmem_clear_lock(&locks[1]);
    set_flag(1, (int)s->culprit, 1);
  }
}

static void play_lock_kept(const script* s, int faulty) {
  if (me == (int)s->culprit) {
    shmem_set_lock(&locks[1]);
    set_flag(0, (int)s->victim, 1);
    if (!faulty) shmem_clear_lock(&locks[1]);
  }
  if (me == (int)s->victim) {
    await_flag(0, 1);
    shmem_set_lock(&locks[1]);
    shmem_clear_lock(&locks[1]);
  }
}

/* Both work for a while with the first lock, so that the other one has its own by then. */
static void play_lock_order(const script* s, int faulty) {
  shmem_barrier_all();
  if (me != (int)s->culprit && me != (int)s->victim) return;
  const int swapped = faulty && me == (int)s->culprit;
  shmem_set_lock(&locks[swapped ? 1 : 0]);
  usleep(300000);
  shmem_set_lock(&locks[swapped ? 0 : 1]);
  shmem_clear_lock(&locks[swapped ? 0 : 1]);
  shmem_clear_lock(&locks[swapped ? 1 : 0]);
}

static void play_wait(const script* s, int faulty) {
  const int missing = is(s, "missing_signal");
  if (me == (int)s->culprit) {
    const uint64_t value = faulty && s->variant == 2 ? 1 : 2;
    const uint32_t place = faulty && s->variant == 1 ? 3 : 0;
    if (faulty && s->variant == 0) {
      shmem_long_put(landing + MOST / 2, data, 10, (int)s->victim);
    } else if (missing) {
      uint64_t* word = place == 0 ? &signals[now] : &signals[now + 1];
      shmem_long_put_signal(landing + MOST / 2, data, 10, word, value, SHMEM_SIGNAL_SET, (int)s->victim);
    } else {
      set_flag(place, (int)s->victim, (long)value);
    }
  }
  if (me != (int)s->victim) return;
  if (missing) {
    shmem_signal_wait_until(&signals[now], SHMEM_CMP_GE, 2);
  } else {
    await_flag(0, 2);
  }
}

/* The culprit goes on to wait for an action of another PE after the operation. */
static void play_skipped(const script* s, int faulty) {
  if (!faulty || me != (int)s->culprit) collective(s->op);
  if (me == (int)s->victim) set_flag(1, (int)s->culprit, 1);
  if (me == (int)s->culprit) await_flag(1, 1);
}

static void play_silence(const script* s, int faulty) {
  /* A stopped process serves nothing: all have completed their operations with it. */
  if (is(s, "stopped")) shmem_barrier_all();
  const int silent = me == (int)s->culprit;
  if (s->variant == 2 && silent) {
    shmem_set_lock(&locks[1]);
    set_flag(0, (int)s->victim, 1);
  }
  if (faulty && silent) {
    if (is(s, "computes")) hang_own_work(s->burns);
    raise(SIGSTOP);
  }
  if (s->variant == 0) {
    collective(s->op);
  } else if (s->variant == 1) {
    if (silent) set_flag(0, (int)s->victim, 1);
    if (me == (int)s->victim) await_flag(0, 1);
  } else if (silent) {
    shmem_clear_lock(&locks[1]);
  } else if (me == (int)s->victim) {
    await_flag(0, 1);
    shmem_set_lock(&locks[1]);
    shmem_clear_lock(&locks[1]);
  }
}

static void play_fault(const script* s, int faulty) {
  if (is(s, "lock_holder_waits")) {
    play_lock_holder(s, faulty);
  } else if (is(s, "lock_kept")) {
    play_lock_kept(s, faulty);
  } else if (is(s, "lock_order")) {
    play_lock_order(s, faulty);
  } else if (is(s, "wait_until") || is(s, "missing_signal")) {
    play_wait(s, faulty);
  } else if (is(s, "skipped_collective")) {
    play_skipped(s, faulty);
  } else {
    play_silence(s, faulty);
  }
}

/* Some wait for the victim, one behind the other. */
static void play_chain(const script* s) {
  for (uint32_t i = 0; i < s->chain_length; ++i) {
    if (s->chain[i] != (uint32_t)me) continue;
    if (i > 0) await_flag(0, 1);
    if (i + 1 < s->chain_length) set_flag(0, (int)s->chain[i + 1], 1);
  }
}

/* ---- the program ----------------------------------------------------------------------------- */

static void begin_step(uint32_t number, hang_random* pauses) {
  now = number;
  hang_say((uint32_t)me, number);
  if (hang_chance(pauses, 4)) usleep(hang_below(pauses, 1500));
}

static void run(const script* s, const hang_options* options) {
  for (int i = 0; i < MOST; ++i) data[i] = me;
  shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 2, (size + 1) / 2, NULL, 0, &halves);
  shmem_team_t odd = SHMEM_TEAM_INVALID;
  shmem_team_split_strided(SHMEM_TEAM_WORLD, 1, 2, size / 2, NULL, 0, &odd);
  if (me % 2 == 1) halves = odd;
  shmem_barrier_all();
  hang_random pauses = hang_seeded(s->name, options->seed, 3 + (uint64_t)me);
  uint32_t number = 1;
  for (uint32_t i = 0; i < s->step_count; ++i) {
    begin_step(number++, &pauses);
    play_step(&s->steps[i]);
  }
  begin_step(number++, &pauses);
  play_fault(s, options->faulty);
  begin_step(number++, &pauses);
  play_chain(s);
  begin_step(number++, &pauses);
  collective(s->meet);
}

int main(int argc, char** argv) {
  const hang_options options = hang_parse(argc, argv, classes, sizeof classes / sizeof classes[0]);
  static script s;
  if (options.plan) {
    const uint32_t ranks = hang_ranks(&options);
    hang_check_ranks(&options, ranks);
    draw(&s, &options, ranks);
    hang_print(&options, ranks, &s.truth);
    return 0;
  }
  shmem_init();
  me = shmem_my_pe();
  size = shmem_n_pes();
  hang_check_ranks(&options, (uint32_t)size);
  draw(&s, &options, (uint32_t)size);
  if (me == 0) hang_print(&options, (uint32_t)size, &s.truth);
  run(&s, &options);
  shmem_finalize();
  return 0;
}
