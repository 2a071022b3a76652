// How long a peer whose owner thread does not call the library takes to answer a message: the
// progress policy's reaction time. Needs HEDDLE_PROGRESS (not none); without helpers there is no
// answer to wait for.
#include <time.h>

#include <cstdlib>
#include <cstring>

#include "work/job.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using harness::Session;

constexpr std::uint32_t kHandler = 900;
constexpr std::uint32_t kAnswer = 40;  // slots
constexpr std::uint32_t kStop = 41;
// Between two messages: long enough for helpers to fall asleep, and not part of the figure.
constexpr long kPauseNs = 200'000;

void sleep_ns(long ns) {
  const timespec time{0, ns};
  ::nanosleep(&time, nullptr);
}

// At the peer, on whichever thread makes progress: a direct put of what came into the sender's
// slot.
void answer(const heddle_am_arrival* message, void* arg) {
  must(heddle_try_put(message->worker, message->payload, message->payload_bytes, static_cast<Job*>(arg)->slot(kAnswer),
                      nullptr),
       "the answer");
}

Run ask(Job& job, std::uint64_t n, std::uint64_t* number) {
  std::uint64_t elapsed = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    ++*number;
    const heddle_am_message message{kHandler, 0, nullptr, number, sizeof *number};
    const std::uint64_t begin = harness::now_ns();
    must(heddle_am(job.worker(0), {job.peer(), 0}, &message, nullptr), "heddle_am");
    while (job.own_slot(kAnswer).load(std::memory_order_acquire) != *number) {
    }
    elapsed += harness::now_ns() - begin;
    sleep_ns(kPauseNs);
  }
  return Run{static_cast<double>(elapsed)};
}

// `blocked`: the peer's owner sleeps, its core is free. `computing`: it uses its core, and the
// asker the other one, so that only what the scheduler gives to helpers beside them is left.
void measure(Session& session, Job& job, bool computing) {
  std::uint64_t round = 0;
  std::uint64_t number = job.own_slot(kAnswer).load();
  session.measure(job.figure("reaction", computing ? "computing" : "blocked", "latency", 8, 1), [&](std::uint64_t n) {
    ++round;
    Run run{0};
    if (session.rank() == 0) {
      run = ask(job, n, &number);
      must(heddle_put(job.worker(0), &round, sizeof round, job.slot(kStop), nullptr), "heddle_put");
    } else {
      while (job.own_slot(kStop).load(std::memory_order_acquire) != round) {
        if (!computing) sleep_ns(1'000'000);
      }
    }
    session.channel().barrier();
    return run;
  });
  session.channel().barrier();
  job.own_slot(kStop).store(0);
  session.channel().barrier();
}

bool helped() {
  const char* policy = std::getenv("HEDDLE_PROGRESS");
  return policy != nullptr && std::strcmp(policy, "none") != 0;
}

}  // namespace

void run_reaction(Session& session, Job& job) {
  if (!session.wants("reaction") || !helped()) return;
  must(heddle_am_register(job.context(), kHandler, answer, &job), "heddle_am_register");
  session.channel().barrier();
  if (session.wants("reaction", "blocked")) measure(session, job, false);
  if (session.wants("reaction", "computing")) measure(session, job, true);
}

}  // namespace heddle::bench::work
