// Random updates of a table over both processes: as get + xor + put, which may lose updates to
// races, and as atomic xor.
#include "harness/gups.hpp"

#include <algorithm>

#include "work/job.hpp"

namespace heddle::bench::work {

namespace {

using harness::GupsStream;
using harness::GupsUpdate;
using harness::Run;
using harness::Session;

class Table {
 public:
  Table(Job& job, std::uint64_t words_per_rank) : job_(job), words_(words_per_rank) {
    must(heddle_region_alloc(job.context(), words_ * 8, &region_), "heddle_region_alloc");
    must(heddle_region_exchange(job.context(), region_, remote_), "heddle_region_exchange");
    void* address = nullptr;
    must(heddle_region_address(region_, &address, nullptr), "heddle_region_address");
    own_ = static_cast<std::uint64_t*>(address);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table() {
    must(heddle_context_barrier(job_.context(), job_.worker(0), HEDDLE_FOREVER), "heddle_context_barrier");
    for (const heddle_remote_region remote : remote_) must(heddle_remote_region_release(remote), "release");
    must(heddle_region_release(region_), "heddle_region_release");
  }

  [[nodiscard]] std::uint64_t words() const { return words_; }
  void fill() { harness::gups_fill(own_, words_); }
  [[nodiscard]] std::uint64_t wrong() const { return harness::gups_count_wrong(own_, words_); }

  void update_racy(heddle_worker worker, const GupsUpdate& update) {
    const heddle_remote at{remote_[update.owner], update.index * 8};
    std::uint64_t value = 0;
    if (must(heddle_get(worker, &value, 8, at, nullptr), "heddle_get") != HEDDLE_DONE) {
      must(heddle_flush(worker, update.owner), "heddle_flush");
    }
    value ^= update.value;
    if (must(heddle_put(worker, &value, 8, at, nullptr), "heddle_put") != HEDDLE_DONE) {
      must(heddle_flush(worker, update.owner), "heddle_flush");  // `value` is this function's
    }
  }
  void update_atomic(heddle_worker worker, const GupsUpdate& update) {
    const heddle_remote at{remote_[update.owner], update.index * 8};
    must(heddle_atomic(worker, HEDDLE_XOR64, at, update.value, nullptr), "heddle_atomic");
  }

 private:
  Job& job_;
  std::uint64_t words_;
  heddle_region region_{};
  heddle_remote_region remote_[2] = {};
  std::uint64_t* own_ = nullptr;
};

// n updates by each thread of both processes; their time.
double update_all(Session& session, Job& job, Table& table, std::uint32_t threads, std::uint64_t n, bool atomic) {
  const auto pin = [&](std::uint32_t thread) { session.cores().pin_sharing(session.rank(), thread); };
  const double elapsed = harness::run_threads(threads, pin, [&](std::uint32_t thread) {
    GupsStream stream(session.rank(), thread, table.words());
    const heddle_worker worker = job.worker(thread);
    for (std::uint64_t i = 0; i < n; ++i) {
      if (atomic) {
        table.update_atomic(worker, stream.next());
      } else {
        table.update_racy(worker, stream.next());
      }
    }
    must(heddle_quiet(worker), "heddle_quiet");
  });
  harness::Channel& channel = session.channel();
  channel.flag(2 + session.rank()).store(static_cast<std::uint64_t>(elapsed), std::memory_order_relaxed);
  channel.barrier();
  // Both must be through: the slower one's time.
  return std::max(elapsed, static_cast<double>(channel.flag(3 - session.rank()).load(std::memory_order_relaxed)));
}

// The updates again, atomically: what is not as at first then was lost.
bool verify(Session& session, Job& job, Table& table, std::uint32_t threads, std::uint64_t n, bool atomic) {
  table.fill();
  session.channel().barrier();
  update_all(session, job, table, threads, n, atomic);
  update_all(session, job, table, threads, n, true);
  harness::Channel& channel = session.channel();
  channel.flag(session.rank()).store(table.wrong(), std::memory_order_relaxed);
  channel.barrier();
  const std::uint64_t wrong =
      channel.flag(0).load(std::memory_order_relaxed) + channel.flag(1).load(std::memory_order_relaxed);
  channel.barrier();
  const double bound = atomic ? 0 : harness::kGupsRacyBound * 2 * threads * static_cast<double>(n);
  return static_cast<double>(wrong) <= bound;
}

void measure(Session& session, Job& job, Table& table, std::uint32_t threads, bool atomic) {
  // Both processes update: the rate is that of both.
  harness::Figure figure = job.figure("gups", atomic ? "atomic" : "get_put", "rate", 8, 2.0 * threads);
  figure.key.threads = figure.key.workers = threads;
  // Enough updates that a lost one in a hundred would show, few enough that the check takes no
  // time.
  const std::uint64_t check = session.options().quick ? 20'000 : 500'000;
  const bool right = verify(session, job, table, threads, check, atomic);
  session.measure(figure,
                  [&](std::uint64_t n) { return Run{update_all(session, job, table, threads, n, atomic), right}; });
}

}  // namespace

void run_gups(Session& session, Job& job) {
  if (!session.wants("gups")) return;
  const harness::Options& options = session.options();
  Table table(job, harness::gups_words_per_rank(options.total_words, options.quick));
  table.fill();
  session.channel().barrier();
  for (const std::uint32_t threads : harness::threads_of(options)) {
    measure(session, job, table, threads, false);
    measure(session, job, table, threads, true);
  }
}

}  // namespace heddle::bench::work
