// Several threads on one worker, in each sharing mode: rates of 8-byte puts and of active messages.
#include "work/modes.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using harness::Session;

constexpr std::uint32_t kShared = 5;
constexpr std::uint32_t kAllArrived = 6;

// Handlers of a worker run one at a time, so one of them counts; the other threads look.
struct Arrivals {
  std::atomic<std::uint64_t> messages{0};
  std::atomic<std::uint64_t> ends{0};
};

void count(std::atomic<std::uint64_t>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

class SharedWorker {
 public:
  SharedWorker(Job& job, heddle_sharing sharing) : job_(job), mode_(job, sharing) {
    const auto arrived = [](const heddle_am_arrival*, void* arg) { count(static_cast<Arrivals*>(arg)->messages); };
    const auto ended = [](const heddle_am_arrival*, void* arg) { count(static_cast<Arrivals*>(arg)->ends); };
    must(heddle_am_register(job.context(), kShared, arrived, &arrivals_), "heddle_am_register");
    must(heddle_am_register(job.context(), kAllArrived, ended, &arrivals_), "heddle_am_register");
    must(heddle_context_barrier(job.context(), worker_, HEDDLE_FOREVER), "heddle_context_barrier");
  }
  SharedWorker(const SharedWorker&) = delete;
  SharedWorker& operator=(const SharedWorker&) = delete;

  // The threads of rank 0 send n messages each; those of rank 1 receive all of them; then everybody
  // knows.
  double send(Session& session, std::uint64_t size, std::uint32_t threads, std::uint64_t n) {
    arrivals_.messages.store(0);
    arrivals_.ends.store(0);
    session.channel().barrier_while([&] { progress(worker_); });
    const auto pin = [&](std::uint32_t thread) { session.cores().pin_sharing(session.rank(), thread); };
    return harness::run_threads(threads, pin, [&](std::uint32_t thread) {
      if (session.rank() == 0) {
        const heddle_am_message message{kShared, 0, nullptr, job_.local(), size};
        for (std::uint64_t i = 0; i < n; ++i) must(heddle_am(worker_, peer_, &message, nullptr), "heddle_am");
        wait_for(arrivals_.ends, 1);
      } else {
        wait_for(arrivals_.messages, n * threads);
        if (thread != 0) return;
        const heddle_am_message message{kAllArrived, 0, nullptr, nullptr, 0};
        must(heddle_am(worker_, peer_, &message, nullptr), "heddle_am");
        must(heddle_flush(worker_, job_.peer()), "heddle_flush");
      }
    });
  }

  // The threads of rank 0 put to words of their own; rank 1 sleeps.
  double put(Session& session, std::uint32_t threads, std::uint64_t n) {
    double elapsed = 0;
    const auto pin = [&](std::uint32_t thread) { session.cores().pin_alone(session.rank(), thread); };
    if (session.rank() == 0) {
      elapsed = harness::run_threads(threads, pin, [&](std::uint32_t thread) {
        const std::uint64_t value = thread;
        for (std::uint64_t i = 0; i < n; ++i) {
          must(heddle_put(worker_, &value, sizeof value, job_.slot(thread), nullptr), "heddle_put");
        }
        must(heddle_flush(worker_, job_.peer()), "heddle_flush");
      });
    }
    session.channel().barrier();
    return elapsed;
  }

 private:
  void wait_for(const std::atomic<std::uint64_t>& counter, std::uint64_t target) {
    while (counter.load(std::memory_order_acquire) < target) wait_moved(worker_);
  }

  Job& job_;
  ModeWorker mode_;
  const heddle_worker worker_ = mode_.handle();
  const heddle_peer peer_ = mode_.peer();
  Arrivals arrivals_;
};

}  // namespace

void run_sharing(Session& session, Job& job) {
  for (const auto& [name, sharing] : kModes) {
    if (!harness::wants_sharing(session.options(), name)) continue;
    SharedWorker worker(job, sharing);
    for (const std::uint32_t threads : harness::threads_of(session.options())) {
      const auto figure_of = [&](const char* op, std::uint64_t size) {
        harness::Figure figure = job.figure("rate", op, "rate", size, threads);
        figure.key.sharing = name;
        figure.key.threads = threads;
        figure.key.workers = 1;
        return figure;
      };
      if (session.wants("rate", "am")) {
        session.measure(figure_of("am", 8), [&](std::uint64_t n) { return Run{worker.send(session, 8, threads, n)}; });
      }
      if (session.wants("rate", "put")) {
        session.measure(figure_of("put", 8), [&](std::uint64_t n) { return Run{worker.put(session, threads, n)}; });
      }
    }
  }
}

}  // namespace heddle::bench::work
