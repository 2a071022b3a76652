// As for UCCS: puts (or gets) of both processes of a pair at the same time, each to the other; t
// threads in each of two processes, beside t pairs of processes of one thread. The sum of both
// directions.
#include "harness/duplex.hpp"

#include "work/modes.hpp"

namespace heddle::bench::work {

namespace {

using harness::Crowd;
using harness::Session;

class Duplex {
 public:
  // `shared`: null for a worker each.
  Duplex(const harness::Options& options, Job& job, const ModeWorker* shared)
      : job_(job),
        shared_(shared),
        cores_(options.cores.empty() ? harness::Cores::allowed() : harness::Cores::parse(options.cores)),
        stretch_(harness::duplex_stretch(options)) {}

  void measure(Session* session, Crowd& crowd, const char* mode, bool put, std::uint64_t size, std::uint32_t threads) {
    const std::uint32_t all = threads * crowd.size();
    harness::Figure figure =
        job_.figure("duplex", put ? "put" : "get", "bandwidth", size, static_cast<double>(size) * all);
    figure.key.sharing = mode;
    figure.key.processes = crowd.size();
    figure.key.threads = threads;
    figure.key.workers = shared_ != nullptr ? 1 : threads;
    const auto each = [&](auto&& use) {
      for (std::uint32_t thread = 0; thread < threads; ++thread) use(thread);
    };
    const auto prepare = [&] {
      // What is sent, and what is to be overwritten by the peer.
      each([&](std::uint32_t thread) {
        harness::duplex_fill(put ? mine(thread) : region(thread), size, harness::duplex_pattern(job_.rank(), thread));
        harness::duplex_fill(put ? region(thread) : mine(thread), size, 0);
      });
    };
    const auto run = [&](std::uint64_t n) {
      const auto pin = [&](std::uint32_t thread) { cores_.pin_sharing(crowd.rank() % 2, crowd.rank() / 2 + thread); };
      return harness::run_threads_between(threads, pin, [&](std::uint32_t thread) { transfer(put, size, thread, n); });
    };
    const auto right = [&] {
      bool all_right = true;
      each([&](std::uint32_t thread) {
        const auto pattern = harness::duplex_pattern(job_.peer(), thread);
        all_right = harness::duplex_is(put ? region(thread) : mine(thread), size, pattern) && all_right;
      });
      return all_right;
    };
    crowd.measure(session, figure, {prepare, run, right});
  }

 private:
  [[nodiscard]] std::byte* mine(std::uint32_t thread) { return job_.local() + thread * stretch_; }
  [[nodiscard]] std::byte* region(std::uint32_t thread) { return job_.own_data(false) + thread * stretch_; }

  void transfer(bool put, std::uint64_t size, std::uint32_t thread, std::uint64_t n) {
    const heddle_worker worker = shared_ != nullptr ? shared_->handle() : job_.worker(thread);
    heddle_remote there = job_.data(false);
    there.offset += thread * stretch_;
    for (std::uint64_t i = 0; i < n; ++i) {
      if (put) {
        must(heddle_put(worker, mine(thread), size, there, nullptr), "heddle_put");
      } else {
        must(heddle_get(worker, mine(thread), size, there, nullptr), "heddle_get");
      }
    }
    must(heddle_flush(worker, job_.peer()), "heddle_flush");
  }

  Job& job_;
  const ModeWorker* shared_;
  const harness::Cores cores_;
  const std::uint64_t stretch_;
};

void measure_mode(Session* session, const harness::Options& options, Crowd& crowd, Duplex& duplex, const char* mode) {
  for (const bool put : {true, false}) {
    if (!harness::wants_op(options, put ? "put" : "get")) continue;
    for (const std::uint64_t size : harness::sizes_or(options, harness::kDuplexSizes)) {
      // As pairs of processes, each has one thread.
      for (const std::uint32_t threads :
           crowd.size() > 2 ? std::vector<std::uint32_t>{1} : harness::threads_or(options, harness::kDuplexThreads)) {
        duplex.measure(session, crowd, mode, put, size, threads);
      }
    }
  }
}

}  // namespace

void run_duplex(Session* session, const harness::Options& options, Crowd& crowd, Job& job) {
  if (!harness::wants_bench(options, "duplex")) return;
  if (options.sharing.empty() || harness::wants_sharing(options, "exclusive")) {
    Duplex duplex(options, job, nullptr);
    measure_mode(session, options, crowd, duplex, "exclusive");
  }
  for (const auto& [name, sharing] : kModes) {
    if (!harness::wants_sharing(options, name) || crowd.size() > 2) continue;
    const ModeWorker shared(job, sharing);
    Duplex duplex(options, job, &shared);
    measure_mode(session, options, crowd, duplex, name);
  }
}

}  // namespace heddle::bench::work
