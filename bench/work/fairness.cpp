// As for UCCS: one process sends runs of 1050 active messages, 8 threads of the other receive;
// which thread ran how many of the handlers? In each sharing mode on one worker, and affine: each
// thread on a worker of its own, addressed in turn.
//
// With fewer cores than threads a thread gives its core away after each call of progress, or the
// scheduler's time slice, long enough for a hundred runs, would be all that is seen.
#include <memory>
#include <numeric>
#include <thread>

#include "harness/fairness.hpp"
#include "work/work.hpp"

namespace heddle::bench::work {

namespace {

using harness::FairnessRun;
using harness::Run;

constexpr std::uint32_t kMessage = 920;
constexpr std::uint64_t kRuns = 50;  // of each repeat, so that nine make hundreds
constexpr std::uint64_t kQuickRuns = 5;

struct alignas(harness::kApart) Callbacks {
  std::atomic<std::uint64_t> count{0};  // relaxed: read when the run is over
};

// Which of the receiving threads this is; the library's own threads are the last.
thread_local std::uint32_t receiver = harness::kFairnessThreads;

struct Receivers {
  std::array<Callbacks, harness::kFairnessThreads + 1> callbacks;
  // release in the handler; acquire: the run is over
  alignas(harness::kApart) std::atomic<std::uint64_t> arrived{0};
  // partner: the threads that begin with the run
  std::atomic<std::uint64_t> run{0};
  std::atomic<std::uint64_t> ready{0};  // threads that have seen its end
};

void on_message(const heddle_am_arrival*, void* arg) {
  auto* receivers = static_cast<Receivers*>(arg);
  receivers->callbacks[receiver].count.fetch_add(1, std::memory_order_relaxed);
  receivers->arrived.fetch_add(1, std::memory_order_release);
}

class Fairness {
 public:
  Fairness(Bench& bench, Heddle& library, Receivers& receivers)
      : session_(bench.session()), library_(library), receivers_(receivers) {}

  // Collective; rank 0's is the result.
  Run measure(std::uint64_t runs) {
    const std::uint64_t first = runs_ + 1;
    runs_ += runs;
    std::vector<std::thread> threads;
    if (session_.rank() == 1) {
      for (std::uint32_t i = 0; i < harness::kFairnessThreads; ++i) {
        threads.emplace_back([this, i, first] { receive(i, first, runs_); });
      }
    }
    Run out;
    std::vector<FairnessRun> counts;
    for (std::uint64_t run = first; run <= runs_; ++run) {
      if (session_.rank() == 1) begin(run);
      session_.channel().barrier();
      const std::uint64_t start = harness::now_ns();
      if (session_.rank() == 0) send();
      if (session_.rank() == 1) end(run);
      session_.channel().barrier();
      out.elapsed_ns += static_cast<double>(harness::now_ns() - start);
      counts.push_back(tell());
      out.verified = out.verified && std::accumulate(counts.back().begin(), counts.back().end(), 0ULL) == kAll;
    }
    for (std::thread& thread : threads) thread.join();
    out.values = harness::fairness_values(counts);
    return out;
  }

 private:
  static constexpr std::uint64_t kAll = harness::kFairnessMessages;

  void receive(std::uint32_t thread, std::uint64_t first, std::uint64_t last) {
    receiver = thread;
    session_.cores().pin_alone(0, thread);
    const bool crowded = session_.cores().count() <= harness::kFairnessThreads;
    for (std::uint64_t run = first; run <= last; ++run) {
      while (receivers_.run.load(std::memory_order_acquire) < run) sched_yield();
      receivers_.ready.fetch_add(1, std::memory_order_acq_rel);
      while (receivers_.arrived.load(std::memory_order_acquire) < run * kAll) {
        const bool moved = library_.progress(thread);
        if (!moved || crowded) sched_yield();
      }
      receivers_.ready.fetch_add(1, std::memory_order_acq_rel);
    }
  }

  // All receivers are in the run before the first message is sent.
  void begin(std::uint64_t run) {
    for (Callbacks& one : receivers_.callbacks) one.count.store(0, std::memory_order_relaxed);
    receivers_.run.store(run, std::memory_order_release);
    await_ready((2 * run - 1) * harness::kFairnessThreads);
  }
  void end(std::uint64_t run) { await_ready(2 * run * harness::kFairnessThreads); }
  // Rank 1's counts, in both.
  FairnessRun tell() {
    FairnessRun mine{};
    for (std::size_t i = 0; i < mine.size(); ++i) {
      mine[i] = receivers_.callbacks[i].count.load(std::memory_order_relaxed);
    }
    std::array<FairnessRun, 2> all{};
    must(heddle_context_exchange(job_context, &mine, sizeof mine, all.data()), "heddle_context_exchange");
    return all[1];
  }
  void await_ready(std::uint64_t count) const {
    while (receivers_.ready.load(std::memory_order_acquire) < count) sched_yield();
  }

  void send() {
    const heddle_am_message message{kMessage, 0, nullptr, nullptr, 0};
    for (std::uint64_t i = 0; i < kAll; ++i) {
      const auto turn = static_cast<std::uint32_t>(i % harness::kFairnessThreads);
      must(heddle_am(library_.worker(0), library_.at_lane(1, turn), &message, nullptr), "heddle_am");
    }
    library_.flush(0, 1);
  }

  harness::Session& session_;
  Heddle& library_;
  Receivers& receivers_;
  std::uint64_t runs_ = 0;
};

}  // namespace

void run_fairness(Bench& bench, Heddle& library) {
  if (!bench.wants("fairness")) return;
  const auto receivers = std::make_unique<Receivers>();
  must(heddle_am_register(job_context, kMessage, on_message, receivers.get()), "heddle_am_register");
  library.meet();
  std::vector<harness::Figure> figures;
  for (const std::string& op : harness::fairness_figures()) {
    figures.push_back(bench.figure({"fairness", op, "callbacks", 8, 1, harness::kFairnessThreads}));
    figures.back().fixed = bench.options().quick ? kQuickRuns : kRuns;
  }
  Fairness fairness(bench, library, *receivers);
  bench.session().measure(figures, [&](std::uint64_t runs) { return fairness.measure(runs); });
  library.meet();
  must(heddle_am_register(job_context, kMessage, nullptr, nullptr), "heddle_am_register");
}

}  // namespace heddle::bench::work
