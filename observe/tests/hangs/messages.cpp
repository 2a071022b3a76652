// Tagged and active messages in the forms that programs use.
#include <sched.h>

#include <cstring>

#include "job.hpp"

namespace hangs {
namespace {

std::byte byte_of(std::uint64_t tag, std::uint32_t rank) {
  return static_cast<std::byte>(tag * 7 + rank * 13 + 1);
}

void turn(heddle_worker worker, Form form) {
  if (form == Form::tried) {
    const int events = heddle_worker_progress(worker);
    if (events < 0) must(static_cast<heddle_status>(events), "progress");
    if (events == 0) sched_yield();
  } else {
    must(heddle_worker_wait(worker, HEDDLE_FOREVER), "wait");
  }
}

heddle_counter counter_of(Job& job) {
  heddle_counter_options options{};
  options.size = sizeof options;
  options.counts_done = 1;
  heddle_counter counter{};
  must(heddle_counter_create(job.context, &options, &counter), "counter");
  return counter;
}

void send_counted(Job& job, const Letter& letter, const void* data, heddle_worker worker) {
  heddle_completion completion{};
  completion.counter = counter_of(job);
  completion.when = letter.matched ? HEDDLE_WHEN_MATCHED : HEDDLE_WHEN_REMOTE;
  must(heddle_send(worker, letter.peer, letter.tag, data, letter.bytes, &completion), "send");
  must(heddle_counter_wait(worker, completion.counter, 1, HEDDLE_FOREVER), "the send's end");
  must(heddle_counter_free(completion.counter), "counter");
}

void note(void* arg, heddle_status status) {
  must(status, "the send's end");
  *static_cast<std::atomic<bool>*>(arg) = true;
}

void send_called(const Letter& letter, const void* data, heddle_worker worker) {
  std::atomic<bool> finished{false};
  heddle_completion completion{};
  completion.fn = note;
  completion.arg = &finished;
  completion.when = letter.matched ? HEDDLE_WHEN_MATCHED : HEDDLE_WHEN_REMOTE;
  if (must(heddle_send(worker, letter.peer, letter.tag, data, letter.bytes, &completion), "send") == HEDDLE_DONE)
    return;
  while (!finished) turn(worker, Form::called);
}

void send_tried(const Letter& letter, const void* data, heddle_worker worker) {
  while (must(heddle_try_send(worker, letter.peer, letter.tag, data, letter.bytes, nullptr), "send") == HEDDLE_AGAIN) {
    turn(worker, Form::tried);
  }
  while (must(heddle_try_flush(worker, letter.peer.rank), "flush") == HEDDLE_AGAIN) turn(worker, Form::tried);
}

std::vector<std::byte> text_of(Job& job, const Letter& letter) {
  return std::vector<std::byte>(letter.bytes + 1, byte_of(letter.tag, job.rank));
}

}  // namespace

void send(Job& job, const Letter& letter) {
  const auto data = text_of(job, letter);
  const heddle_worker worker = job.workers[letter.worker];
  if (letter.form == Form::called) {
    send_called(letter, data.data(), worker);
  } else if (letter.form == Form::counted || letter.matched) {
    send_counted(job, letter, data.data(), worker);
  } else if (letter.form == Form::tried) {
    send_tried(letter, data.data(), worker);
  } else {
    must(heddle_send(worker, letter.peer, letter.tag, data.data(), letter.bytes, nullptr), "send");
    must(heddle_flush(worker, letter.peer.rank), "flush");
  }
}

Receiving::Receiving(Job& job, const Letter& letter) : job_(job), letter_(letter), data_(letter.bytes + 1) {
  const heddle_wanted wanted{letter.peer, letter.tag, UINT64_MAX};
  const heddle_worker worker = job.workers[letter.worker];
  heddle_completion completion{};
  if (letter.form == Form::counted) completion.counter = counter_ = counter_of(job);
  const auto* told = letter.form == Form::counted ? &completion : nullptr;
  if (letter.form == Form::plain || letter.form == Form::counted) {
    must(heddle_recv(worker, &wanted, data_.data(), letter.bytes, &receive_, told), "receive");
    return;
  }
  while (must(heddle_try_recv(worker, &wanted, data_.data(), letter.bytes, &receive_, told), "receive") ==
         HEDDLE_AGAIN) {
    turn(worker, Form::tried);
  }
}

Receiving::~Receiving() {
  if (counter_.id != 0) must(heddle_counter_free(counter_), "counter");
}

void Receiving::wait() {
  const heddle_worker worker = job_.workers[letter_.worker];
  if (letter_.form == Form::plain) {
    must(heddle_recv_wait(worker, &receive_, HEDDLE_FOREVER), "receive");
  } else if (letter_.form == Form::counted) {
    must(heddle_counter_wait(worker, counter_, 1, HEDDLE_FOREVER), "receive");
  }
  wait_on(worker);
}

void Receiving::wait_on(heddle_worker worker) {
  while (std::atomic_ref(receive_.status).load() == HEDDLE_POSTED) turn(worker, letter_.form);
  must(receive_.status, "receive");
  if (receive_.bytes != letter_.bytes) hang_fail("a message", "of another length");
  for (std::uint32_t i = 0; i < letter_.bytes; ++i) {
    if (data_[i] != byte_of(receive_.tag, receive_.source.rank)) hang_fail("a message", "with other contents");
  }
}

void receive(Job& job, const Letter& letter) {
  Receiving(job, letter).wait();
}

void send_and_receive(Job& job, const Letter& out, const Letter& in) {
  Receiving receiving(job, in);
  send(job, out);
  receiving.wait();
}

void message(Job& job, std::uint32_t worker, heddle_peer target, std::uint32_t handler, std::uint32_t bytes,
             Form form) {
  const Header header{job.step, job.rank};
  const std::vector<std::byte> payload(bytes + 1);
  const heddle_am_message message{handler, sizeof header, &header, payload.data(), bytes};
  if (form != Form::tried) {
    must(heddle_am(job.workers[worker], target, &message, nullptr), "an active message");
  } else {
    while (must(heddle_try_am(job.workers[worker], target, &message, nullptr), "an active message") == HEDDLE_AGAIN) {
      turn(job.workers[worker], form);
    }
  }
  // A long one is fetched from this memory.
  quiet(job.workers[worker], form);
}

void await(Job& job, const Arrivals& arrivals, std::uint32_t count, heddle_worker worker, Form form) {
  while (arrivals[job.step] < count) turn(worker, form);
}

void run_tasks_until(Job& job, std::uint32_t count, heddle_worker worker, Form form) {
  const std::int64_t patience = form == Form::tried ? 1'000'000 : HEDDLE_FOREVER;
  while (job.tasks[job.step] < count) {
    const int ran = heddle_run_tasks(worker, 16, patience);
    if (ran < 0) must(static_cast<heddle_status>(ran), "tasks");
  }
}

void quiet(heddle_worker worker, Form form) {
  if (form != Form::tried) {
    must(heddle_quiet(worker), "quiet");
    return;
  }
  while (must(heddle_try_quiet(worker), "quiet") == HEDDLE_AGAIN) turn(worker, form);
}

}  // namespace hangs
