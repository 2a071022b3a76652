// As for UCCS: one process sends runs of 1050 active messages, 8 threads of the other receive;
// which thread ran how many of the handlers? In each sharing mode on one worker, and affine: each
// thread on a worker of its own, addressed in turn.
//
// With fewer cores than threads a thread gives its core away after each call of progress, or the
// scheduler's time slice, long enough for a hundred runs, would be all that is seen.
#include <algorithm>
#include <memory>
#include <numeric>
#include <thread>

#include "harness/record.hpp"
#include "harness/statistics.hpp"
#include "work/work.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;

constexpr std::uint32_t kMessage = 920;
constexpr std::uint32_t kThreads = 8;
constexpr std::uint64_t kMessages = 1050;  // of a run
static_assert(harness::kFairnessEven == static_cast<double>(kMessages) / kThreads);
constexpr std::uint64_t kRuns = 50;  // of each repeat, so that nine make hundreds
constexpr std::uint64_t kQuickRuns = 5;
constexpr std::array<std::uint32_t, 5> kQuantiles = {0, 25, 50, 75, 100};

// Handlers run by each of the threads in one run; the last number is of the library's own threads.
using Counts = std::array<std::uint64_t, kThreads + 1>;

// The figures of a series of runs, and their values in the same order:
//   deviation      standard deviation between the threads of a run; the median over the runs
//   between_runs   standard deviation of one thread's number between the runs; the mean over the
//                  threads
//   thread_0 …     the mean over the runs; library: of the library's own threads
//   sorted_0 … sorted_100   the runs sorted by thread 0's number: that number in the first, …, the
//                           last run
std::vector<std::string> names_of_figures() {
  std::vector<std::string> names = {"deviation", "between_runs"};
  for (std::uint32_t i = 0; i < kThreads; ++i) names.push_back("thread_" + std::to_string(i));
  names.emplace_back("library");
  for (const std::uint32_t quantile : kQuantiles) names.push_back("sorted_" + std::to_string(quantile));
  return names;
}

std::vector<double> values_of(const std::vector<Counts>& runs) {
  std::vector<double> within;
  for (const Counts& run : runs) within.push_back(harness::deviation_of({run.begin(), run.end() - 1}));
  std::array<std::vector<double>, kThreads + 1> by_thread;
  for (const Counts& run : runs) {
    for (std::size_t i = 0; i < run.size(); ++i) by_thread[i].push_back(static_cast<double>(run[i]));
  }
  std::vector<double> between;
  for (std::size_t i = 0; i < kThreads; ++i) between.push_back(harness::deviation_of(by_thread[i]));
  std::vector<double> values = {harness::median_of(within), harness::mean_of(between)};
  for (const std::vector<double>& counts : by_thread) values.push_back(harness::mean_of(counts));
  std::sort(by_thread[0].begin(), by_thread[0].end());
  for (const std::uint32_t quantile : kQuantiles) values.push_back(by_thread[0][(runs.size() - 1) * quantile / 100]);
  return values;
}

// The number of this receiving thread; the library's own threads have the last number.
thread_local std::uint32_t receiver = kThreads;

struct alignas(harness::kApart) Callbacks {
  std::atomic<std::uint64_t> count{0};  // relaxed: read when the run is over
};

struct Receivers {
  std::array<Callbacks, kThreads + 1> callbacks;
  // release in the handler; acquire: the run is over
  alignas(harness::kApart) std::atomic<std::uint64_t> arrived{0};
};

// The barrier of the receivers and the measuring thread. None of them sleeps in it: a thread that
// slept would come late to its messages.
class Meeting {
 public:
  // The number of this meeting.
  void meet(std::uint64_t number) {
    here_.fetch_add(1, std::memory_order_acq_rel);  // partner: the others' loads
    while (here_.load(std::memory_order_acquire) < number * (kThreads + 1)) sched_yield();
  }

 private:
  std::atomic<std::uint64_t> here_{0};
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
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < kThreads && session_.rank() == 1; ++i) {
      threads.emplace_back([this, i, first = all_runs_ + 1, runs] { receive(i, first, runs); });
    }
    all_runs_ += runs;
    Run out;
    std::vector<Counts> counts;
    for (std::uint64_t run = all_runs_ - runs + 1; run <= all_runs_; ++run) {
      for (Callbacks& one : receivers_.callbacks) one.count.store(0, std::memory_order_relaxed);
      // All receivers are in the run before the first message is sent.
      if (session_.rank() == 1) meeting_.meet(2 * run - 1);
      session_.channel().barrier();
      const std::uint64_t start = harness::now_ns();
      if (session_.rank() == 0) send();
      if (session_.rank() == 1) meeting_.meet(2 * run);
      session_.channel().barrier();
      out.elapsed_ns += static_cast<double>(harness::now_ns() - start);
      counts.push_back(tell());
      out.verified = out.verified && std::accumulate(counts.back().begin(), counts.back().end(), 0ULL) == kMessages;
    }
    for (std::thread& thread : threads) thread.join();
    out.values = values_of(counts);
    return out;
  }

 private:
  void receive(std::uint32_t thread, std::uint64_t first, std::uint64_t runs) {
    receiver = thread;
    session_.cores().pin_alone(0, thread);
    const bool crowded = session_.cores().count() <= kThreads;
    for (std::uint64_t run = first; run < first + runs; ++run) {
      meeting_.meet(2 * run - 1);
      while (receivers_.arrived.load(std::memory_order_acquire) < run * kMessages) {
        const bool moved = library_.progress(thread);
        if (!moved || crowded) sched_yield();
      }
      meeting_.meet(2 * run);
    }
  }
  // Rank 1's counts, in both.
  Counts tell() {
    Counts mine{};
    for (std::size_t i = 0; i < mine.size(); ++i) {
      mine[i] = receivers_.callbacks[i].count.load(std::memory_order_relaxed);
    }
    std::array<Counts, 2> all{};
    must(heddle_context_exchange(job_context, &mine, sizeof mine, all.data()), "heddle_context_exchange");
    return all[1];
  }
  void send() {
    const heddle_am_message message{kMessage, 0, nullptr, nullptr, 0};
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      const auto turn = static_cast<std::uint32_t>(i % kThreads);
      must(heddle_am(library_.worker(0), library_.at_lane(1, turn), &message, nullptr), "heddle_am");
    }
    library_.flush(0, 1);
  }

  harness::BenchSession& session_;
  Heddle& library_;
  Receivers& receivers_;
  std::uint64_t all_runs_ = 0;
  Meeting meeting_;  // before and after each run
};

}  // namespace

void run_fairness(Bench& bench, Heddle& library) {
  if (!bench.wants("fairness")) return;
  const auto receivers = std::make_unique<Receivers>();
  must(heddle_am_register(job_context, kMessage, on_message, receivers.get()), "heddle_am_register");
  library.meet();
  std::vector<harness::Figure> figures;
  for (const std::string& op : names_of_figures()) {
    figures.push_back(bench.figure({"fairness", op, "callbacks", 8, 1, kThreads}));
    figures.back().fixed = bench.options().quick ? kQuickRuns : kRuns;
  }
  Fairness fairness(bench, library, *receivers);
  bench.session().measure(figures, [&](std::uint64_t runs) { return fairness.measure(runs); });
  library.meet();
  must(heddle_am_register(job_context, kMessage, nullptr, nullptr), "heddle_am_register");
}

}  // namespace heddle::bench::work
