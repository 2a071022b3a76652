// Progress policies: how long a peer takes to answer a message while its owner does not call the
// library; and how much time helpers take from a program that computes on all its cores.
#include <time.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "measure/one_sided.hpp"
#include "work/work.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;

constexpr std::uint32_t kHandler = 900;
constexpr std::uint64_t kAnswer = measure::word_at(40);
constexpr std::uint64_t kStop = measure::word_at(41);
// Between two messages: long enough for helpers to fall asleep, and not part of the figure.
constexpr long kPauseNs = 200'000;

void sleep_ns(long ns) {
  const timespec time{0, ns};
  ::nanosleep(&time, nullptr);
}

// Runs at the peer, on any thread that makes progress: a direct put of the received value into the
// sender's word.
void answer(const heddle_am_arrival* message, void* library) {
  const heddle_remote to = static_cast<Heddle*>(library)->at(message->source.rank, kAnswer);
  must(heddle_try_put(message->worker, message->payload, message->payload_bytes, to, nullptr), "the answer");
}

double ask(Heddle& library, std::uint64_t n, std::uint64_t* number) {
  const auto answered = measure::own_word(library, kAnswer);
  std::uint64_t elapsed = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    ++*number;
    const heddle_am_message message{kHandler, 0, nullptr, number, sizeof *number};
    const std::uint64_t begin = harness::now_ns();
    must(heddle_am(library.worker(0), library.at_lane(1, 0), &message, nullptr), "heddle_am");
    while (answered.load(std::memory_order_acquire) != *number) {
    }
    elapsed += harness::now_ns() - begin;
    sleep_ns(kPauseNs);
  }
  return static_cast<double>(elapsed);
}

// `computing`: the peer's owner uses its core and the asker uses the other one, so helpers get only
// the time that the scheduler gives them beside these two. Else it sleeps, its core is free.
void measure_reaction(Bench& bench, Heddle& library, bool computing) {
  measure::clear_words(library, 40, 2);
  const auto stop = measure::own_word(library, kStop);
  std::uint64_t round = 0;
  std::uint64_t number = 0;
  const char* op = computing ? "computing" : "blocked";
  bench.session().measure(bench.figure({"reaction", op, "latency"}), [&](std::uint64_t n) {
    ++round;
    Run run{0};
    if (bench.rank() == 0) {
      run.elapsed_ns = ask(library, n, &number);
      library.set_word(0, 1, kStop, round);
    } else {
      while (stop.load(std::memory_order_acquire) != round) {
        if (!computing) sleep_ns(1'000'000);
      }
    }
    bench.session().channel().barrier();
    return run;
  });
}

// One unit: 4096 steps over 32 KiB, which others on the core would push out of the first cache.
struct Units {
  void one() {
    for (std::size_t i = 0; i < table.size(); ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      table[state >> 52] += state;
    }
  }
  std::uint64_t state = 1;
  std::array<std::uint64_t, 4096> table{};
};

// A context of its own, with a worker that helpers watch while this process computes.
class Watched {
 public:
  explicit Watched(const char* policy) {
    heddle_context_options options{};
    options.size = sizeof options;
    options.bootstrap = "single";
    options.progress = policy;
    must(heddle_context_join(&options, &context_), "heddle_context_join");
    heddle_worker worker{};
    must(heddle_worker_open(context_, nullptr, &worker), "heddle_worker_open");
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched() { must(heddle_context_leave(context_), "heddle_context_leave"); }

 private:
  heddle_context context_{};
};

}  // namespace

// Needs HEDDLE_PROGRESS (not none); without helpers there is no answer to wait for.
void run_reaction(Bench& bench, Heddle& library) {
  const char* policy = std::getenv("HEDDLE_PROGRESS");
  if (!bench.wants("reaction") || policy == nullptr || std::strcmp(policy, "none") == 0) return;
  must(heddle_am_register(job_context, kHandler, answer, &library), "heddle_am_register");
  library.meet();
  if (bench.wants("reaction", "blocked")) measure_reaction(bench, library, false);
  if (bench.wants("reaction", "computing")) measure_reaction(bench, library, true);
  library.meet();
  must(heddle_am_register(job_context, kHandler, nullptr, nullptr), "heddle_am_register");
}

// Policies in turns, so that all see the same machine.
void run_compute(Bench& bench) {
  if (!bench.wants("compute")) return;
  constexpr int kTurns = 3;
  const auto units = std::make_unique<Units>();
  harness::Channel& channel = bench.session().channel();
  for (int turn = 0; turn < kTurns; ++turn) {
    for (const char* policy : {"none", "idle", "adaptive"}) {
      if (!bench.wants("compute", policy)) continue;
      const Watched watched(policy);
      channel.barrier();
      bench.session().measure(bench.figure({"compute", policy, "latency", sizeof(Units)}), [&](std::uint64_t n) {
        const std::uint64_t begin = harness::now_ns();
        for (std::uint64_t i = 0; i < n; ++i) units->one();
        const auto elapsed = static_cast<double>(harness::now_ns() - begin);
        channel.barrier();  // both compute while either is measured, but for the last moments
        return Run{elapsed, units->state != 1};
      });
      channel.barrier();
    }
  }
}

}  // namespace heddle::bench::work
