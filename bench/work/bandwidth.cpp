// Bytes per time of large puts and gets, with memcpy to the same memory beside them.
#include <cstring>

#include "work/job.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using harness::Session;

template <class Work>
void measure(Session& session, Job& job, harness::Figure figure, bool registered, Work&& work) {
  const heddle_worker worker = job.worker(0);
  figure.key.memory = job.kind(registered);
  session.measure(figure, [&](std::uint64_t n) {
    double elapsed = 0;
    if (session.rank() == 0) {
      const std::uint64_t begin = harness::now_ns();
      work(n);
      elapsed = static_cast<double>(harness::now_ns() - begin);
    }
    if (session.rank() == 1 && registered) {
      session.channel().barrier_while([&] { heddle_worker_progress(worker); });
    } else {
      session.channel().barrier();
    }
    return Run{elapsed};
  });
}

// The limit: the same copy by memcpy through the mapped pointer; `out`: from here to there.
void measure_memcpy(Session& session, Job& job, std::uint64_t size, bool out) {
  void* remote = nullptr;
  // not mapped: no such limit
  if (heddle_remote_pointer(job.data(false), &remote) != HEDDLE_DONE) return;
  harness::Figure figure =
      job.figure("bandwidth", out ? "memcpy" : "memcpy_get", "bandwidth", size, static_cast<double>(size));
  figure.key.transport = "limit";
  figure.key.sharing = "none";
  figure.key.workers = 0;
  measure(session, job, figure, false, [&](std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) {
      std::memcpy(out ? remote : job.local(), out ? job.local() : remote, size);
      asm volatile("" : : "r"(remote), "r"(job.local()) : "memory");  // every copy is wanted
    }
  });
}

void measure_size(Session& session, Job& job, std::uint64_t size, bool registered) {
  const heddle_worker worker = job.worker(0);
  const auto bytes = static_cast<double>(size);
  if (session.wants("bandwidth", "put")) {
    if (!registered) measure_memcpy(session, job, size, true);
    measure(session, job, job.figure("bandwidth", "put", "bandwidth", size, bytes), registered, [&](std::uint64_t n) {
      for (std::uint64_t i = 0; i < n; ++i) {
        must(heddle_put(worker, job.local(), size, job.data(registered), nullptr), "heddle_put");
      }
      must(heddle_flush(worker, job.peer()), "heddle_flush");
    });
  }
  if (session.wants("bandwidth", "get")) {
    if (!registered) measure_memcpy(session, job, size, false);
    measure(session, job, job.figure("bandwidth", "get", "bandwidth", size, bytes), registered, [&](std::uint64_t n) {
      for (std::uint64_t i = 0; i < n; ++i) {
        must(heddle_get(worker, job.local(), size, job.data(registered), nullptr), "heddle_get");
      }
      must(heddle_flush(worker, job.peer()), "heddle_flush");
    });
  }
}

}  // namespace

void run_bandwidth(Session& session, Job& job) {
  if (!session.wants("bandwidth")) return;
  const std::string& memory = session.options().memory;
  for (const std::uint64_t size : harness::sizes_or(session.options(), {4096, 65536, 1U << 20})) {
    if (memory == "allocated" || memory == "both") measure_size(session, job, size, false);
    if (memory != "allocated") measure_size(session, job, size, true);
  }
}

}  // namespace heddle::bench::work
