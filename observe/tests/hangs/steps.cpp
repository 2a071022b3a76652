// The correct steps, and the steps after the fault.
#include <cstring>

#include "job.hpp"

namespace hangs {
namespace {

std::uint32_t after(const Job& job, std::uint32_t distance) {
  return (job.rank + distance) % job.ranks;
}

std::uint32_t before(const Job& job, std::uint32_t distance) {
  return (job.rank + job.ranks - distance) % job.ranks;
}

// Worker 0 of an owner serves its registered memory: it must not wait on another worker meanwhile.
heddle_worker worker_of(Job& job, const Step& step) {
  return job.workers[step.registered ? 0 : step.worker];
}

heddle_remote_region memory_of(Job& job, const Step& step, std::uint32_t rank) {
  return step.registered ? job.owns[rank] : job.heaps[rank];
}

std::byte* my_slot(Job& job, const Step& step) {
  return step.registered ? job.own_memory.data() + std::size_t{job.step} * kSlotBytes : slot_of(job, job.step);
}

void play_put(Job& job, const Step& step) {
  const std::uint32_t bytes = step.bytes % 500 + 1;
  const std::vector<std::byte> data(bytes, static_cast<std::byte>('A' + job.rank));
  const std::uint32_t to = after(job, step.distance);
  const heddle_worker worker = worker_of(job, step);
  must(heddle_put(worker, data.data(), bytes, at(memory_of(job, step, to), job.step, 0), nullptr), "put");
  must(heddle_flush(worker, to), "flush");
  context_barrier(job, true);
  const auto expected = static_cast<std::byte>('A' + before(job, step.distance));
  if (my_slot(job, step)[bytes - 1] != expected) hang_fail("a put", "did not arrive");
}

void play_get(Job& job, const Step& step) {
  std::vector<std::byte> data(kPatternBytes);
  const std::uint32_t from = after(job, step.distance);
  const heddle_worker worker = worker_of(job, step);
  const heddle_remote source = at(memory_of(job, step, from), 0, 0);
  if (step.form == Form::plain) {
    must(heddle_get_wait(worker, data.data(), kPatternBytes, source), "get");
  } else {
    must(heddle_get(worker, data.data(), kPatternBytes, source, nullptr), "get");
    quiet(worker, step.form);
  }
  if (data[kPatternBytes - 1] != static_cast<std::byte>('a' + from)) hang_fail("a get", "got something else");
  context_barrier(job, true);
}

void play_atomic(Job& job, const Step& step) {
  const heddle_worker worker = worker_of(job, step);
  const heddle_remote word = at(memory_of(job, step, step.from), job.step, kCounterAt);
  if (step.form == Form::plain) {
    std::uint64_t old = 0;
    const heddle_fetch fetch{1, 0, &old};
    must(heddle_fetch_atomic_wait(worker, HEDDLE_ADD64, word, &fetch), "atomic");
  } else {
    must(heddle_atomic(worker, HEDDLE_ADD64, word, 1, nullptr), "atomic");
    quiet(worker, step.form);
  }
  context_barrier(job, true);
  std::uint64_t sum = 0;
  std::memcpy(&sum, my_slot(job, step) + kCounterAt, sizeof sum);
  if (job.rank == step.from && sum != job.ranks) hang_fail("an atomic", "was not done");
}

void play_signal(Job& job, const Step& step) {
  const std::vector<std::byte> data(step.bytes % 500 + 1, static_cast<std::byte>(job.rank));
  const std::uint32_t to = after(job, step.distance);
  const heddle_worker worker = job.workers[step.worker];
  const heddle_signal signal{at(job.heaps[to], job.step, kSignalAt), 1, HEDDLE_SIGNAL_ADD};
  must(heddle_put_signal(worker, data.data(), data.size(), at(job.heaps[to], job.step, 0), &signal, nullptr), "signal");
  const auto* word = reinterpret_cast<const std::uint64_t*>(slot_of(job, job.step) + kSignalAt);
  must(heddle_signal_wait(worker, word, HEDDLE_GE, 1, HEDDLE_FOREVER), "signal");
  quiet(worker, step.form);
}

void play_ask(Job& job, const Step& step) {
  const heddle_worker worker = job.workers[step.worker];
  message(job, step.worker, {after(job, step.distance), step.worker}, kQuestion, step.bytes, step.form);
  await(job, job.questions, 1, worker, step.form);
  message(job, step.worker, {before(job, step.distance), step.worker}, kAnswer, 0, step.form);
  await(job, job.answers, 1, worker, step.form);
}

void play_task(Job& job, const Step& step) {
  message(job, step.worker, {after(job, step.distance), step.worker}, kTask, step.bytes % 2000, step.form);
  run_tasks_until(job, 1, job.workers[step.worker], step.form);
}

void play_ring(Job& job, const Step& step) {
  const Letter out{step.worker, {after(job, step.distance), step.worker}, step.tag, step.bytes, step.form};
  const Letter in{step.worker, {before(job, step.distance), step.worker}, step.tag, step.bytes, step.form};
  send_and_receive(job, out, in);
}

void play_pair(Job& job, const Step& step) {
  if (job.rank == step.from) send(job, {step.worker, {step.to, step.worker}, step.tag, step.bytes, step.form});
  if (job.rank == step.to) receive(job, {step.worker, {step.from, step.worker}, step.tag, step.bytes, step.form});
}

}  // namespace

void context_barrier(Job& job, bool with_worker) {
  must(heddle_context_barrier(job.context, with_worker ? job.workers[0] : heddle_worker{}, HEDDLE_FOREVER), "barrier");
}

void play_step(Job& job, const Step& step) {
  switch (step.kind) {
    case Kind::put:
      return play_put(job, step);
    case Kind::get:
      return play_get(job, step);
    case Kind::atomic:
      return play_atomic(job, step);
    case Kind::signal:
      return play_signal(job, step);
    case Kind::ask:
      return play_ask(job, step);
    case Kind::task:
      return play_task(job, step);
    case Kind::ring:
      return play_ring(job, step);
    case Kind::pair:
      return play_pair(job, step);
    case Kind::barrier:
      return context_barrier(job, true);
    case Kind::collective:
      return collective(job, step.call);
  }
}

void play_relay(Job& job) {
  const auto& chain = job.script->chain;
  const Step& relay = job.script->relay;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (chain[i] != job.rank) continue;
    Letter letter{relay.worker, {}, relay.tag, relay.bytes, relay.form};
    if (i > 0) {
      letter.peer = {chain[i - 1], relay.worker};
      receive(job, letter);
    }
    if (i + 1 < chain.size()) {
      letter.peer = {chain[i + 1], relay.worker};
      send(job, letter);
    }
  }
}

void play_meeting(Job& job) {
  if (job.script->meet == Meet::team) return collective(job, job.script->meeting);
  context_barrier(job, job.script->meet == Meet::context);
}

}  // namespace hangs
