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
#include "harness/shared_memory.hpp"
#include "work/modes.hpp"

namespace heddle::bench::work {

namespace {

using harness::FairnessRun;
using harness::Run;
using harness::Session;

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
  // `shared`: null for the affine policy.
  Fairness(Session& session, Job& job, Receivers& receivers, const ModeWorker* shared)
      : session_(session),
        job_(job),
        receivers_(receivers),
        shared_(shared),
        told_(session.channel(), sizeof(FairnessRun)) {
    if (told_.data() == nullptr) must(HEDDLE_ERR_SYSTEM, "the memory that both processes map");
  }

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
      counts.push_back(*reinterpret_cast<const FairnessRun*>(told_.data()));
      out.verified = out.verified && std::accumulate(counts.back().begin(), counts.back().end(), 0ULL) == kAll;
      session_.channel().barrier();  // nobody tells of the next run before this one has been read
    }
    for (std::thread& thread : threads) thread.join();
    out.values = harness::fairness_values(counts);
    return out;
  }

 private:
  static constexpr std::uint64_t kAll = harness::kFairnessMessages;

  [[nodiscard]] heddle_worker worker(std::uint32_t thread) const {
    return shared_ != nullptr ? shared_->handle() : job_.worker(thread);
  }

  void receive(std::uint32_t thread, std::uint64_t first, std::uint64_t last) {
    receiver = thread;
    session_.cores().pin_alone(0, thread);
    const bool crowded = session_.cores().count() <= harness::kFairnessThreads;
    for (std::uint64_t run = first; run <= last; ++run) {
      while (receivers_.run.load(std::memory_order_acquire) < run) sched_yield();
      receivers_.ready.fetch_add(1, std::memory_order_acq_rel);
      while (receivers_.arrived.load(std::memory_order_acquire) < run * kAll) {
        const int events = progress(worker(thread));
        if (events == 0 || crowded) sched_yield();
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
  void end(std::uint64_t run) {
    await_ready(2 * run * harness::kFairnessThreads);
    auto& told = *reinterpret_cast<FairnessRun*>(told_.data());
    for (std::size_t i = 0; i < told.size(); ++i) {
      told[i] = receivers_.callbacks[i].count.load(std::memory_order_relaxed);
    }
  }
  void await_ready(std::uint64_t count) const {
    while (receivers_.ready.load(std::memory_order_acquire) < count) sched_yield();
  }

  void send() {
    const heddle_worker own = job_.worker(0);
    const heddle_am_message message{kMessage, 0, nullptr, nullptr, 0};
    for (std::uint64_t i = 0; i < kAll; ++i) {
      const auto turn = static_cast<std::uint32_t>(i % harness::kFairnessThreads);
      const heddle_peer to = shared_ != nullptr ? shared_->peer() : heddle_peer{job_.peer(), turn};
      must(heddle_am(own, to, &message, nullptr), "heddle_am");
    }
    must(heddle_flush(own, job_.peer()), "heddle_flush");
  }

  Session& session_;
  Job& job_;
  Receivers& receivers_;
  const ModeWorker* shared_;
  harness::SharedMemory told_;  // rank 1's counts of a run
  std::uint64_t runs_ = 0;
};

void measure_policy(Session& session, Job& job, const ModeWorker* shared, const char* name) {
  const auto receivers = std::make_unique<Receivers>();
  must(heddle_am_register(job.context(), kMessage, on_message, receivers.get()), "heddle_am_register");
  session.channel().barrier();
  std::vector<harness::Figure> figures;
  for (const std::string& op : harness::fairness_figures()) {
    harness::Figure figure = job.figure("fairness", op, "callbacks", 8, 1);
    figure.key.sharing = name;
    figure.key.threads = harness::kFairnessThreads;
    figure.key.workers = shared != nullptr ? 1 : harness::kFairnessThreads;
    figure.fixed = session.options().quick ? kQuickRuns : kRuns;
    figures.push_back(figure);
  }
  Fairness fairness(session, job, *receivers, shared);
  session.measure(figures, [&](std::uint64_t runs) { return fairness.measure(runs); });
  session.channel().barrier();
  must(heddle_am_register(job.context(), kMessage, nullptr, nullptr), "heddle_am_register");
}

}  // namespace

void run_fairness(Session& session, Job& job) {
  if (!session.wants("fairness")) return;
  if (harness::wants_mode(session.options(), "exclusive")) measure_policy(session, job, nullptr, "exclusive");
  for (const auto& [name, sharing] : kModes) {
    if (!harness::wants_mode(session.options(), name)) continue;
    session.cores().unpin();
    const ModeWorker shared(job, sharing);
    measure_policy(session, job, &shared, name);
  }
}

}  // namespace heddle::bench::work
