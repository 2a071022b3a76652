// Faults of ranks that do not do their part while others wait for it.
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "hang_rank.hpp"

namespace hangs {
namespace {

// more USER messages than HEDDLE_AM_USER_BYTES has room for
constexpr std::uint32_t kTaskFlood = 2000;

enum Silence : std::uint32_t { kCollective, kBarrier, kAsk, kReceive, kSend, kAtomic, kSilences };

void describe(Script& script, const char* how) {
  hang_append(script.truth.how, sizeof script.truth.how, "%s", how);
}

// UCX has a thread that serves registered memory of a process which does not.
bool over_shm() {
  const char* transport = std::getenv("HEDDLE_TRANSPORT");
  return transport != nullptr && std::strcmp(transport, "shm") == 0;
}

void draw_two(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  fault.culprit = hang_below(&random, script.ranks);
  fault.victim = other_rank(script, random, {fault.culprit});
  fault.worker = hang_below(&random, script.workers);
  fault.form = draw_form(random);
  fault.receive_form = draw_form(random);
  fault.bytes = draw_bytes(random);
  fault.tag = draw_tag(random);
  hang_blame(&script.truth, fault.culprit);
}

// The event that others await from a silent rank.
void plan_silence(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  draw_two(script, random);
  fault.variant = hang_below(&random, kSilences);
  if (fault.variant == kAtomic && !over_shm()) fault.variant = kAsk;
  if (fault.variant == kSend) fault.bytes = draw_long_bytes(random);
  fault.burns = hang_chance(&random, 2);
  fault.call = draw_full_call(script, random);
  fault.call.way = static_cast<Way>(hang_below(&random, 3));
  const bool alone = members_of(script, fault.call.group, fault.culprit).size() < 2;
  if (alone) fault.call.group = Group::world;
  const char* const waits[] = {name_of(fault.call.op),
                               "barrier",
                               "active|\\bam\\b|heddle_am|answer|repl|worker_wait|worker_progress|" HANG_RECEIVE,
                               HANG_RECEIVE,
                               HANG_SEND,
                               "atomic"};
  const char* meets = script.meet == Meet::team ? name_of(script.meeting.op) : "barrier";
  hang_words(&script.truth, waits[fault.variant], meets, HANG_NO_MORE);
  static const char* const how[] = {"the others are in a collective",       "the others are in a barrier",
                                    "another rank waits for its answer",    "another rank waits for its message",
                                    "another rank sends it a long message", "another rank's atomic needs it"};
  describe(script, how[fault.variant]);
}

void ask_for_atomic(Job& job, const Fault& fault) {
  if (job.rank == fault.victim) {
    std::uint64_t old = 0;
    const heddle_fetch fetch{1, 0, &old};
    const heddle_remote word = at(job.owns[fault.culprit], job.step, kCounterAt);
    must(heddle_fetch_atomic_wait(job.workers[0], HEDDLE_ADD64, word, &fetch), "atomic");
    send(job, {0, {fault.culprit, 0}, fault.tag, 0, Form::plain});
  }
  if (job.rank == fault.culprit) receive(job, {0, {fault.victim, 0}, fault.tag, 0, Form::plain});
}

// The victim begins when the culprit has come so far: the progress or tasks of an earlier step must
// not handle the victim's message.
void begin_together(Job& job, const Fault& fault) {
  if (job.rank == fault.culprit) send(job, {0, {fault.victim, 0}, fault.tag, 0, Form::plain});
  if (job.rank == fault.victim) receive(job, {0, {fault.culprit, 0}, fault.tag, 0, Form::plain});
}

// One rank asks, the other answers.
void ask(Job& job, const Fault& fault, std::uint32_t handler) {
  const heddle_worker worker = job.workers[fault.worker];
  if (job.rank == fault.victim) {
    message(job, fault.worker, {fault.culprit, fault.worker}, handler, fault.bytes % 2000, fault.form);
    await(job, job.answers, 1, worker, fault.form);
  }
  if (job.rank != fault.culprit) return;
  if (handler >= HEDDLE_AM_USER) {
    run_tasks_until(job, 1, worker, fault.receive_form);
  } else {
    await(job, job.questions, 1, worker, fault.receive_form);
  }
  message(job, fault.worker, {fault.victim, fault.worker}, kAnswer, 0, fault.form);
}

void play_silence(Job& job, const Fault& fault) {
  const Letter out{fault.worker, {fault.victim, fault.worker}, fault.tag, fault.bytes, fault.form};
  const Letter in{fault.worker, {fault.culprit, fault.worker}, fault.tag, fault.bytes, fault.receive_form};
  switch (static_cast<Silence>(fault.variant)) {
    case kCollective:
      return collective(job, fault.call);
    case kBarrier:
      return context_barrier(job, true);
    case kAsk:
      return ask(job, fault, kQuestion);
    case kReceive:
      if (job.rank == fault.culprit) send(job, out);
      if (job.rank == fault.victim) receive(job, in);
      return;
    case kSend:
      if (job.rank == fault.victim) send(job, in);
      if (job.rank == fault.culprit) receive(job, out);
      return;
    case kAtomic:
      return ask_for_atomic(job, fault);
    case kSilences:
      return;
  }
}

}  // namespace

void plan_computes(Script& script, hang_random& random) {
  plan_silence(script, random);
  hang_words(&script.truth, HANG_OWN_CODE, HANG_NO_MORE);
}

void play_computes(Job& job, const Script& script, bool faulty) {
  if (faulty && job.rank == script.fault.culprit) hang_own_work(script.fault.burns);
  play_silence(job, script.fault);
}

void plan_stopped(Script& script, hang_random& random) {
  plan_silence(script, random);
  hang_words(&script.truth, HANG_STOPPED, HANG_NO_MORE);
}

// Before it stops, all have completed their operations with it, which it might have to serve.
void play_stopped(Job& job, const Script& script, bool faulty) {
  context_barrier(job, true);
  if (faulty && job.rank == script.fault.culprit) raise(SIGSTOP);
  play_silence(job, script.fault);
}

void plan_no_tasks(Script& script, hang_random& random) {
  draw_two(script, random);
  script.fault.variant = hang_below(&random, 2);
  hang_words(&script.truth, "task|\\buser\\b", HANG_NO_MORE);
  describe(script, script.fault.variant == 0 ? "one message, whose sender waits for an answer" : "more than it keeps");
}

void play_no_tasks(Job& job, const Script& script, bool faulty) {
  const Fault& fault = script.fault;
  begin_together(job, fault);
  if (faulty && job.rank == fault.culprit) return;
  if (fault.variant == 0) return ask(job, fault, kTask);
  if (job.rank == fault.victim) {
    for (std::uint32_t i = 0; i < kTaskFlood; ++i) {
      message(job, fault.worker, {fault.culprit, fault.worker}, kTask, 64, fault.form);
    }
  }
  if (job.rank == fault.culprit) run_tasks_until(job, kTaskFlood, job.workers[fault.worker], fault.receive_form);
}

void plan_unattended_worker(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  script.workers = 2;
  draw_two(script, random);
  // A rank that goes on without worker 1 is correct: the next barrier or collective moves the
  // worker.
  fault.variant = hang_below(&random, 2);
  if (fault.variant == 1) fault.bytes = draw_long_bytes(random);
  fault.receive_form = hang_chance(&random, 2) ? Form::called : Form::tried;
  hang_words(&script.truth, "worker 1", HANG_NO_MORE);
  static const char* const how[] = {"waits on worker 0 for an active message to worker 1",
                                    "waits on worker 0 for the receive of worker 1"};
  describe(script, how[fault.variant]);
}

void play_unattended_worker(Job& job, const Script& script, bool faulty) {
  const Fault& fault = script.fault;
  const heddle_worker attended = job.workers[faulty ? 0 : 1];
  const Letter out{0, {fault.culprit, 1}, fault.tag, fault.bytes, fault.form};
  const Letter in{1, {HEDDLE_ANY, HEDDLE_ANY}, fault.tag, fault.bytes, fault.receive_form};
  if (fault.variant == 1) {
    std::unique_ptr<Receiving> receiving;
    if (job.rank == fault.culprit) receiving = std::make_unique<Receiving>(job, in);
    begin_together(job, fault);
    if (job.rank == fault.victim) send(job, out);
    if (receiving != nullptr) receiving->wait_on(attended);
    return;
  }
  begin_together(job, fault);
  if (job.rank == fault.victim) {
    message(job, 0, {fault.culprit, 1}, kQuestion, fault.bytes % 2000, fault.form);
    await(job, job.answers, 1, job.workers[0], fault.form);
  }
  if (job.rank != fault.culprit) return;
  await(job, job.questions, 1, attended, fault.receive_form);
  message(job, 0, {fault.victim, 0}, kAnswer, 0, fault.form);
}

// The sender has the wrong number, or the receiver opens too few.
void plan_unopened_worker(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  draw_two(script, random);
  fault.variant = hang_below(&random, 2);
  hang_accept(&script.truth, fault.victim);
  hang_words(&script.truth, "open", HANG_NO_MORE);
  hang_words(&script.truth, "worker 2", HANG_NO_MORE);
  describe(script, fault.variant == 0 ? "an active message to a worker that its target has not opened"
                                      : "a tagged message to a worker that its target has not opened");
}

void play_unopened_worker(Job& job, const Script& script, bool faulty) {
  const Fault& fault = script.fault;
  const std::uint32_t to = faulty ? 2 : fault.worker;
  begin_together(job, fault);
  if (job.rank == fault.victim) {
    if (fault.variant == 0) message(job, fault.worker, {fault.culprit, to}, kQuestion, fault.bytes % 500, fault.form);
    const Letter out{fault.worker, {fault.culprit, to}, fault.tag, fault.bytes % 500, fault.form};
    if (fault.variant == 1) send(job, out);
    await(job, job.answers, 1, job.workers[fault.worker], fault.form);
  }
  if (job.rank != fault.culprit) return;
  const heddle_worker worker = job.workers[fault.worker];
  if (fault.variant == 0) await(job, job.questions, 1, worker, fault.receive_form);
  const Letter in{fault.worker, {fault.victim, fault.worker}, fault.tag, fault.bytes % 500, fault.receive_form};
  if (fault.variant == 1) receive(job, in);
  message(job, fault.worker, {fault.victim, fault.worker}, kAnswer, 0, fault.form);
}

// The job does not show which rank should have written the word: naming the waiting rank is as
// correct.
void plan_missing_signal(Script& script, hang_random& random) {
  draw_two(script, random);
  script.fault.variant = hang_below(&random, 4);
  hang_accept(&script.truth, script.fault.victim);
  hang_words(&script.truth, "signal", HANG_NO_MORE);
  static const char* const how[] = {"no put", "a put without a signal", "the signal of another word",
                                    "the signal of a smaller value"};
  describe(script, how[script.fault.variant]);
}

void play_missing_signal(Job& job, const Script& script, bool faulty) {
  const Fault& fault = script.fault;
  const heddle_worker worker = job.workers[fault.worker];
  const heddle_remote_region region = job.heaps[fault.victim];
  const std::uint64_t data = job.rank;
  heddle_signal signal{at(region, job.step, kSignalAt), 2, HEDDLE_SIGNAL_SET};
  if (faulty && fault.variant == 2) signal.word.offset += 64;
  if (faulty && fault.variant == 3) signal.value = 1;
  if (job.rank == fault.culprit && (!faulty || fault.variant != 0)) {
    const heddle_remote target = at(region, job.step, 0);
    if (faulty && fault.variant == 1) {
      must(heddle_put(worker, &data, sizeof data, target, nullptr), "put");
    } else {
      must(heddle_put_signal(worker, &data, sizeof data, target, &signal, nullptr), "signal");
    }
    quiet(worker, fault.form);
  }
  if (job.rank != fault.victim) return;
  const auto* word = reinterpret_cast<const std::uint64_t*>(slot_of(job, job.step) + kSignalAt);
  must(heddle_signal_wait(worker, word, HEDDLE_GE, 2, HEDDLE_FOREVER), "signal");
}

void plan_stuck_handler(Script& script, hang_random& random) {
  draw_two(script, random);
  script.fault.variant = hang_below(&random, 2);
  hang_words(&script.truth, "handler", HANG_NO_MORE);
  describe(script, script.fault.variant == 0 ? "of class NETWORK" : "of class USER");
}

void play_stuck_handler(Job& job, const Script& script, bool faulty) {
  (void)faulty;  // may_answer
  begin_together(job, script.fault);
  ask(job, script.fault, script.fault.variant == 0 ? kSlowQuestion : kSlowTask);
}

}  // namespace hangs
