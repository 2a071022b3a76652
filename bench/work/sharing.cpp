// Several threads on one worker, in each sharing mode: rates of 8-byte puts and of active messages.
#include <array>
#include <cstring>
#include <utility>

#include "work/job.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using harness::Session;

constexpr std::uint32_t kShared = 5;
constexpr std::uint32_t kAllArrived = 6;

constexpr std::array<std::pair<const char*, heddle_sharing>, 4> kModes = {{{"shared", HEDDLE_SHARING_SHARED},
                                                                           {"offload", HEDDLE_SHARING_OFFLOAD},
                                                                           {"delegate", HEDDLE_SHARING_DELEGATE},
                                                                           {"mutex", HEDDLE_SHARING_MUTEX}}};

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
  // Collective: both ranks open the same modes in the same order, so the numbers are the same.
  SharedWorker(Job& job, heddle_sharing sharing) : job_(job) {
    heddle_worker_options options{};
    options.size = sizeof options;
    options.sharing = sharing;
    must(heddle_worker_open(job.context(), &options, &worker_), "heddle_worker_open");
    std::uint32_t index = 0;
    must(heddle_worker_index(worker_, &index), "heddle_worker_index");
    peer_ = {job.peer(), index};
    const auto arrived = [](const heddle_am_arrival*, void* arg) { count(static_cast<Arrivals*>(arg)->messages); };
    const auto ended = [](const heddle_am_arrival*, void* arg) { count(static_cast<Arrivals*>(arg)->ends); };
    must(heddle_am_register(job.context(), kShared, arrived, &arrivals_), "heddle_am_register");
    must(heddle_am_register(job.context(), kAllArrived, ended, &arrivals_), "heddle_am_register");
    must(heddle_context_barrier(job.context(), worker_, HEDDLE_FOREVER), "heddle_context_barrier");
  }
  SharedWorker(const SharedWorker&) = delete;
  SharedWorker& operator=(const SharedWorker&) = delete;
  ~SharedWorker() {
    must(heddle_quiet(worker_), "heddle_quiet");
    must(heddle_context_barrier(job_.context(), worker_, HEDDLE_FOREVER), "heddle_context_barrier");
    must(heddle_worker_close(worker_), "heddle_worker_close");
  }

  [[nodiscard]] heddle_worker handle() const { return worker_; }

  // The threads of rank 0 send n messages each; those of rank 1 receive all of them; then everybody knows.
  double send(Session& session, std::uint64_t size, std::uint32_t threads, std::uint64_t n) {
    arrivals_.messages.store(0);
    arrivals_.ends.store(0);
    session.channel().barrier_while([&] { progress(); });
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
  int progress() {
    const int events = heddle_worker_progress(worker_);
    if (events < 0) must(static_cast<heddle_status>(events), "heddle_worker_progress");
    return events;
  }
  // Whoever finds nothing to do, or the worker busy, soon gives its core to another thread.
  void wait_for(const std::atomic<std::uint64_t>& counter, std::uint64_t target) {
    std::uint32_t idle = 0;
    while (counter.load(std::memory_order_acquire) < target) {
      idle = progress() > 0 ? 0 : idle + 1;
      if (idle > 200) sched_yield();
    }
  }

  Job& job_;
  heddle_worker worker_{};
  heddle_peer peer_{};
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
