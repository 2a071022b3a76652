/* hang_mpi --class NAME --seed S: an MPI program that communicates correctly for a while, until one
 * planted fault makes it hang. Options as of hang_rank. */
#include <mpi.h>
#include <signal.h>

#include "hang_common.h"

enum { MOST_STEPS = 64, WINDOW = 512, MOST = 50000 };
enum { RING, WAITALL, PAIR, BARRIER, ALLREDUCE, BCAST, ALLGATHER, FENCE, LOCK, HALVES, STEP_KINDS };
enum { FULL_OPS = 3 }; /* barrier, allreduce, allgather: nobody completes them without all */

static const hang_class classes[] = {
    {"wrong_tag", 2},   {"wrong_communicator", 2}, {"wrong_source", 3}, {"missing_isend", 2}, {"recv_cycle", 2},
    {"ssend_cycle", 2}, {"skipped_collective", 2}, {"wrong_root", 2},   {"computes", 2},      {"wrong_collective", 2},
    {"stopped", 2},     {"lock_held", 2},          {"wrong_probe", 2},
};

typedef struct step {
  uint32_t kind, distance, from, to, count, tag;
} step;

typedef struct script {
  const char* name;
  uint32_t ranks;
  step steps[MOST_STEPS];
  uint32_t step_count;
  uint32_t culprit, victim, third, variant, count, tag, other_tag;
  uint32_t op, other_op; /* BARRIER, ALLREDUCE, ALLGATHER */
  uint32_t members[HANG_MOST_RANKS], member_count;
  uint32_t chain[HANG_MOST_RANKS], chain_length;
  uint32_t meet; /* such an operation */
  int burns;
  hang_truth truth;
} script;

static int me, size;
static MPI_Comm halves, again; /* half of the ranks; all of them once more */
static MPI_Win window;
static double* shared;
static double out[MOST], in[MOST], all[MOST * HANG_MOST_RANKS];

static int is(const script* s, const char* name) {
  return strcmp(s->name, name) == 0;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static uint32_t draw_count(hang_random* random) {
  return hang_chance(random, 3) ? hang_between(random, 15000, MOST) : hang_below(random, 200);
}

static step draw_step(hang_random* random, uint32_t ranks) {
  step one;
  one.kind = hang_below(random, STEP_KINDS);
  one.distance = hang_between(random, 1, ranks - 1);
  one.from = hang_below(random, ranks);
  one.to = hang_other(random, ranks, one.from, one.from);
  one.count = draw_count(random);
  one.tag = hang_between(random, 100, 60000);
  return one;
}

static uint32_t draw_op(hang_random* random) {
  static const uint32_t ops[FULL_OPS] = {BARRIER, ALLREDUCE, ALLGATHER};
  return ops[hang_below(random, FULL_OPS)];
}

static const char* name_of(uint32_t op) {
  return op == BARRIER ? "barrier" : op == ALLREDUCE ? "allreduce" : "allgather";
}

/* Takes place before the fault, with the same arguments. */
static void warm(script* s, uint32_t op, uint32_t count, uint32_t root) {
  const step one = {op, 1, root, 0, count, 0};
  s->steps[s->step_count++] = one;
}

static void plan_cycle(script* s, hang_random* random) {
  hang_shuffle(random, s->members, s->ranks);
  s->member_count = hang_between(random, 2, s->ranks);
  s->victim = s->members[0];
  for (uint32_t rank = 0; rank < s->ranks; ++rank) {
    for (uint32_t i = 0; i < s->member_count; ++i) {
      if (s->members[i] == rank) hang_blame(&s->truth, rank);
    }
  }
  if (is(s, "ssend_cycle")) {
    hang_words(&s->truth, HANG_SEND, HANG_NO_MORE);
  } else {
    hang_words(&s->truth, HANG_RECEIVE, HANG_NO_MORE);
  }
  hang_words(&s->truth, HANG_CYCLE, HANG_NO_MORE);
}

static void plan_collective(script* s, hang_random* random) {
  hang_blame(&s->truth, s->culprit);
  if (s->ranks == 2) hang_accept(&s->truth, s->victim);
  if (is(s, "wrong_root")) {
    warm(s, BCAST, s->count, s->culprit);
    warm(s, BCAST, s->count, s->victim);
    hang_words(&s->truth, "bcast|broadcast", HANG_NO_MORE);
    hang_words(&s->truth, "root", HANG_NO_MORE);
    return;
  }
  while (s->other_op == s->op) s->other_op = draw_op(random);
  if (is(s, "skipped_collective") && s->variant == 0) s->other_op = s->op;
  warm(s, s->op, s->count, 0);
  warm(s, s->other_op, s->count, 0);
  hang_words(&s->truth, name_of(s->op), HANG_NO_MORE);
  /* Left out before the same once more: then it is one call behind where all meet. */
  while (s->variant == 0 && s->meet == s->op) s->meet = draw_op(random);
  hang_words(&s->truth, s->op == s->other_op ? name_of(s->meet) : name_of(s->other_op), HANG_NO_MORE);
}

static void plan_silence(script* s) {
  static const char* const waits[] = {HANG_RECEIVE, HANG_SEND, "lock"};
  hang_blame(&s->truth, s->culprit);
  if (s->variant == 1) s->count = MOST;
  const char* awaited = s->variant == 2 ? name_of(s->op) : waits[s->variant];
  hang_words(&s->truth, awaited, name_of(s->meet), HANG_NO_MORE);
  if (is(s, "computes")) {
    hang_words(&s->truth, HANG_OWN_CODE, HANG_NO_MORE);
  } else {
    hang_words(&s->truth, HANG_STOPPED, HANG_NO_MORE);
  }
}

static void plan_message(script* s) {
  /* The victim receives, from the culprit or the third rank. */
  if (is(s, "wrong_source")) {
    s->culprit = s->victim;
  } else if (s->variant == 1 && !is(s, "missing_isend")) {
    s->third = s->culprit; /* the receiver is wrong */
    s->culprit = s->victim;
  } else {
    s->third = s->culprit;
  }
  hang_blame(&s->truth, s->culprit);
  hang_words(&s->truth, HANG_RECEIVE, HANG_NO_MORE);
  if (is(s, "wrong_source")) {
    hang_number(&s->truth, s->members[0]);
    hang_number(&s->truth, s->third);
    return;
  }
  hang_number(&s->truth, s->tag);
  if (is(s, "missing_isend")) {
    hang_words(&s->truth, name_of(s->meet), HANG_NO_MORE);
    return;
  }
  hang_accept(&s->truth, s->culprit == s->victim ? s->third : s->victim);
  if (is(s, "wrong_tag") || is(s, "wrong_probe")) {
    hang_number(&s->truth, s->other_tag);
  } else {
    hang_words(&s->truth, "comm", HANG_NO_MORE);
  }
}

static void plan_fault(script* s, hang_random* random) {
  if (is(s, "recv_cycle") || is(s, "ssend_cycle")) {
    plan_cycle(s, random);
  } else if (is(s, "skipped_collective") || is(s, "wrong_collective") || is(s, "wrong_root")) {
    plan_collective(s, random);
  } else if (is(s, "computes") || is(s, "stopped")) {
    s->variant = hang_below(random, 3);
    plan_silence(s);
  } else if (is(s, "lock_held")) {
    hang_blame(&s->truth, s->culprit);
    hang_words(&s->truth, "lock", HANG_NO_MORE);
    hang_words(&s->truth, HANG_RECEIVE, HANG_NO_MORE);
  } else {
    plan_message(s);
  }
}

static void draw(script* s, const hang_options* options, uint32_t ranks) {
  hang_random random = hang_seeded(options->chosen->name, options->seed, 2);
  memset(s, 0, sizeof *s);
  s->name = options->chosen->name;
  s->ranks = ranks;
  s->step_count = hang_between(&random, 5, 46);
  for (uint32_t i = 0; i < s->step_count; ++i) s->steps[i] = draw_step(&random, ranks);
  s->culprit = hang_below(&random, ranks);
  s->victim = hang_other(&random, ranks, s->culprit, s->culprit);
  s->third = hang_other(&random, ranks, s->victim, s->victim);
  if (ranks > 2) s->members[0] = hang_other(&random, ranks, s->victim, s->third);
  s->variant = hang_below(&random, 2);
  s->count = draw_count(&random);
  s->tag = hang_between(&random, 100, 60000);
  s->other_tag = s->tag + hang_between(&random, 1, 500);
  s->op = s->other_op = draw_op(&random);
  s->meet = draw_op(&random);
  s->burns = hang_chance(&random, 2);
  plan_fault(s, &random);
  s->truth.step = s->step_count + 1;
  hang_append(s->truth.how, sizeof s->truth.how, "variant %u", s->variant);
  const uint32_t cycle = s->member_count;
  s->chain_length =
      hang_chain(&random, ranks, s->victim, cycle > 0 ? s->members : &s->culprit, cycle > 0 ? cycle : 1, s->chain);
}

/* ---- correct steps --------------------------------------------------------------------------- */

static void exchange(const step* one, int waitall) {
  const int to = (me + (int)one->distance) % size;
  const int from = (me + size - (int)one->distance) % size;
  const int count = (int)one->count;
  out[0] = me;
  if (waitall) {
    MPI_Request requests[2];
    MPI_Irecv(in, count, MPI_DOUBLE, from, (int)one->tag, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, count, MPI_DOUBLE, to, (int)one->tag, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  } else {
    MPI_Sendrecv(out, count, MPI_DOUBLE, to, (int)one->tag, in, count, MPI_DOUBLE, from, (int)one->tag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  }
  if (count > 0 && in[0] != from) hang_fail("a message", "with other contents");
}

static void collective(uint32_t op, uint32_t count, MPI_Comm comm) {
  if (op == BARRIER) {
    MPI_Barrier(comm);
  } else if (op == ALLREDUCE) {
    MPI_Allreduce(out, in, (int)count, MPI_DOUBLE, MPI_SUM, comm);
  } else {
    MPI_Allgather(out, (int)count, MPI_DOUBLE, all, (int)count, MPI_DOUBLE, comm);
  }
}

static void put_locked(int target) {
  double value = me;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
  MPI_Put(&value, 1, MPI_DOUBLE, target, me, 1, MPI_DOUBLE, window);
  MPI_Win_unlock(target, window);
}

static void put_fenced(int target) {
  double value = me;
  MPI_Win_fence(0, window);
  MPI_Put(&value, 1, MPI_DOUBLE, target, me, 1, MPI_DOUBLE, window);
  MPI_Win_fence(0, window);
}

static void play_step(const step* one) {
  const int count = (int)one->count;
  switch (one->kind) {
    case RING:
      exchange(one, 0);
      break;
    case WAITALL:
      exchange(one, 1);
      break;
    case PAIR:
      if (me == (int)one->from) MPI_Send(out, count, MPI_DOUBLE, (int)one->to, (int)one->tag, MPI_COMM_WORLD);
      if (me == (int)one->to) {
        MPI_Recv(in, count, MPI_DOUBLE, (int)one->from, (int)one->tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
      break;
    case BCAST:
      MPI_Bcast(out, count, MPI_DOUBLE, (int)one->from, MPI_COMM_WORLD);
      break;
    case FENCE:
      put_fenced((int)one->from);
      break;
    case LOCK:
      put_locked((int)one->from);
      break;
    case HALVES:
      MPI_Allreduce(out, in, count, MPI_DOUBLE, MPI_SUM, halves);
      break;
    default:
      collective(one->kind, one->count, MPI_COMM_WORLD);
  }
}

/* ---- the fault ------------------------------------------------------------------------------- */

static void play_message(const script* s, int faulty) {
  const int count = (int)s->count;
  const int sender_wrong = faulty && s->culprit == s->third;
  const int receiver_wrong = faulty && s->culprit == s->victim;
  const int tags = is(s, "wrong_tag") || is(s, "wrong_probe");
  const int comms = is(s, "wrong_communicator");
  if (me == (int)s->third && !(is(s, "missing_isend") && faulty)) {
    const int tag = (int)(tags && sender_wrong ? s->other_tag : s->tag);
    MPI_Request request;
    MPI_Isend(out, count, MPI_DOUBLE, (int)s->victim, tag, comms && sender_wrong ? again : MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  if (me != (int)s->victim) return;
  const int tag = (int)(tags && receiver_wrong ? s->other_tag : s->tag);
  const int source = (int)(is(s, "wrong_source") && faulty ? s->members[0] : s->third);
  MPI_Comm comm = comms && receiver_wrong ? again : MPI_COMM_WORLD;
  if (is(s, "wrong_probe")) MPI_Probe(source, tag, comm, MPI_STATUS_IGNORE);
  if (s->burns) {
    MPI_Recv(in, count, MPI_DOUBLE, source, tag, comm, MPI_STATUS_IGNORE);
  } else {
    MPI_Request request;
    MPI_Irecv(in, count, MPI_DOUBLE, source, tag, comm, &request);
    MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
  }
}

static void play_cycle(const script* s, int faulty) {
  uint32_t place = 0;
  while (place < s->member_count && s->members[place] != (uint32_t)me) ++place;
  if (place == s->member_count) return;
  const int to = (int)s->members[(place + 1) % s->member_count];
  const int from = (int)s->members[(place + s->member_count - 1) % s->member_count];
  const int count = (int)s->count;
  const int tag = (int)s->tag;
  /* Correct: the first of them does it the other way round. */
  const int receives_first = is(s, "recv_cycle") ? faulty || place > 0 : !faulty && place == 0;
  if (receives_first) MPI_Recv(in, count, MPI_DOUBLE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (is(s, "recv_cycle")) {
    MPI_Send(out, count, MPI_DOUBLE, to, tag, MPI_COMM_WORLD);
  } else {
    MPI_Ssend(out, count, MPI_DOUBLE, to, tag, MPI_COMM_WORLD);
  }
  if (!receives_first) MPI_Recv(in, count, MPI_DOUBLE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void play_collective(const script* s, int faulty) {
  const int wrong = faulty && me == (int)s->culprit;
  if (is(s, "wrong_root")) {
    MPI_Bcast(out, (int)s->count, MPI_DOUBLE, (int)(wrong ? s->victim : s->culprit), MPI_COMM_WORLD);
    return;
  }
  if (is(s, "wrong_collective")) {
    collective(wrong ? s->other_op : s->op, s->count, MPI_COMM_WORLD);
    return;
  }
  if (!wrong) collective(s->op, s->count, MPI_COMM_WORLD);
  collective(s->other_op, s->count, MPI_COMM_WORLD);
}

static void play_silence(const script* s, int faulty) {
  /* A stopped process serves nothing: all have completed their operations with it. */
  if (is(s, "stopped")) MPI_Barrier(MPI_COMM_WORLD);
  if (faulty && me == (int)s->culprit) {
    if (is(s, "computes")) hang_own_work(s->burns);
    raise(SIGSTOP);
  }
  if (s->variant == 2) {
    collective(s->op, s->count, MPI_COMM_WORLD);
    return;
  }
  const int from = (int)(s->variant == 0 ? s->culprit : s->victim);
  const int to = (int)(s->variant == 0 ? s->victim : s->culprit);
  if (me == from) MPI_Send(out, (int)s->count, MPI_DOUBLE, to, (int)s->tag, MPI_COMM_WORLD);
  if (me == to) MPI_Recv(in, (int)s->count, MPI_DOUBLE, from, (int)s->tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* The culprit holds a lock that the victim wants, and waits for a message that follows it. */
static void play_lock(const script* s, int faulty) {
  const int target = (int)s->third;
  double value = me;
  if (me == (int)s->culprit) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
    MPI_Put(&value, 1, MPI_DOUBLE, target, me, 1, MPI_DOUBLE, window);
    MPI_Win_flush(target, window);
    MPI_Send(NULL, 0, MPI_DOUBLE, (int)s->victim, (int)s->tag, MPI_COMM_WORLD);
    if (!faulty) MPI_Win_unlock(target, window);
    MPI_Recv(NULL, 0, MPI_DOUBLE, (int)s->victim, (int)s->other_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (faulty) MPI_Win_unlock(target, window);
  }
  if (me == (int)s->victim) {
    MPI_Recv(NULL, 0, MPI_DOUBLE, (int)s->culprit, (int)s->tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    put_locked(target);
    MPI_Send(NULL, 0, MPI_DOUBLE, (int)s->culprit, (int)s->other_tag, MPI_COMM_WORLD);
  }
}

static void play_fault(const script* s, int faulty) {
  if (s->member_count > 0) {
    play_cycle(s, faulty);
  } else if (is(s, "skipped_collective") || is(s, "wrong_collective") || is(s, "wrong_root")) {
    play_collective(s, faulty);
  } else if (is(s, "computes") || is(s, "stopped")) {
    play_silence(s, faulty);
  } else if (is(s, "lock_held")) {
    play_lock(s, faulty);
  } else {
    play_message(s, faulty);
  }
}

/* Some wait for the victim, one behind the other. */
static void play_chain(const script* s) {
  for (uint32_t i = 0; i < s->chain_length; ++i) {
    if (s->chain[i] != (uint32_t)me) continue;
    if (i > 0) MPI_Recv(in, 100, MPI_DOUBLE, (int)s->chain[i - 1], 70000, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (i + 1 < s->chain_length) MPI_Send(out, 100, MPI_DOUBLE, (int)s->chain[i + 1], 70000, MPI_COMM_WORLD);
  }
}

/* ---- the program ----------------------------------------------------------------------------- */

static void begin_step(uint32_t number, hang_random* pauses) {
  hang_say((uint32_t)me, number);
  if (hang_chance(pauses, 4)) usleep(hang_below(pauses, 1500));
}

static void run(const script* s, const hang_options* options) {
  MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &halves);
  MPI_Comm_dup(MPI_COMM_WORLD, &again);
  MPI_Win_allocate(WINDOW, sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &window);
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
  collective(s->meet, s->count, MPI_COMM_WORLD);
  MPI_Win_free(&window);
  MPI_Comm_free(&again);
  MPI_Comm_free(&halves);
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
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  hang_check_ranks(&options, (uint32_t)size);
  draw(&s, &options, (uint32_t)size);
  if (me == 0) hang_print(&options, (uint32_t)size, &s.truth);
  run(&s, &options);
  MPI_Finalize();
  return 0;
}
