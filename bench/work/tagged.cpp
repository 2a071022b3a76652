// Tagged messages: latency with sends and receives in turn, and rate with one sender and one
// receiver per pair of workers.
#include <algorithm>
#include <array>

#include "work/job.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using harness::Session;

constexpr std::uint64_t kData = 1;
constexpr std::uint64_t kFinished = 2;
constexpr std::size_t kWindow = 64;  // receives posted at once, as peers do

// Until the receive has ended, as a program waits for it.
void finish(heddle_worker worker, heddle_receive& receive) {
  must(heddle_recv_wait(worker, &receive, HEDDLE_FOREVER), "the receive");
}

// One end of a conversation between two workers.
class End {
 public:
  End(Job& job, std::uint32_t thread) : worker_(job.worker(thread)), peer_{job.peer(), thread} {}

  void send(std::uint64_t tag, const void* data, std::uint64_t size) {
    must(heddle_send(worker_, peer_, tag, data, size, nullptr), "heddle_send");
  }
  void post(std::uint64_t tag, void* data, std::uint64_t size, heddle_receive* receive) {
    const heddle_wanted wanted{peer_, tag, UINT64_MAX};
    must(heddle_recv(worker_, &wanted, data, size, receive, nullptr), "heddle_recv");
  }
  void receive(std::uint64_t tag, void* data, std::uint64_t size) {
    heddle_receive one;
    post(tag, data, size, &one);
    finish(worker_, one);
  }
  void flush() { must(heddle_quiet(worker_), "heddle_quiet"); }
  [[nodiscard]] heddle_worker worker() const { return worker_; }

 private:
  heddle_worker worker_;
  heddle_peer peer_;
};

void measure_latency(Session& session, Job& job, std::uint64_t size) {
  End end(job, 0);
  std::vector<std::byte> target(size);
  // A long message is complete when it has been received: its answer says so as well, and the
  // source never changes.
  session.measure(job.figure("pingpong", "tagged", "latency", size, 2), [&](std::uint64_t n) {
    const std::uint64_t begin = harness::now_ns();
    for (std::uint64_t i = 0; i < n; ++i) {
      if (session.rank() == 0) end.send(kData, job.local(), size);
      end.receive(kData, target.data(), size);
      if (session.rank() == 1) end.send(kData, job.local(), size);
    }
    end.flush();
    const auto elapsed = static_cast<double>(harness::now_ns() - begin);
    session.channel().barrier_while([&] { heddle_worker_progress(end.worker()); });
    return Run{elapsed};
  });
}

void stream(End& end, std::uint64_t n, std::uint64_t size) {
  std::array<heddle_receive, kWindow> receives;
  std::array<std::byte, 4096> target;
  while (n > 0) {
    const std::size_t count = std::min<std::uint64_t>(n, kWindow);
    for (std::size_t i = 0; i < count; ++i) end.post(kData, target.data(), size, &receives[i]);
    for (std::size_t i = 0; i < count; ++i) finish(end.worker(), receives[i]);
    n -= count;
  }
}

void measure_rate(Session& session, Job& job, std::uint64_t size, std::uint32_t threads) {
  harness::Figure figure = job.figure("rate", "tagged", "rate", size, threads);
  figure.key.threads = figure.key.workers = threads;
  const auto pin = [&](std::uint32_t thread) { session.cores().pin_sharing(session.rank(), thread); };
  session.measure(figure, [&](std::uint64_t n) {
    const double elapsed = harness::run_threads(threads, pin, [&](std::uint32_t thread) {
      End end(job, thread);
      std::uint64_t word = 0;
      if (session.rank() == 0) {
        for (std::uint64_t i = 0; i < n; ++i) end.send(kData, job.local(), size);
        end.receive(kFinished, &word, sizeof word);
      } else {
        stream(end, n, size);
        end.send(kFinished, &word, sizeof word);
      }
      end.flush();
    });
    return Run{elapsed};
  });
}

}  // namespace

void run_tagged(Session& session, Job& job) {
  if (session.wants("pingpong", "tagged")) {
    for (const std::uint64_t size : harness::sizes_or(session.options(), {8, 64, 512, 4096, 65536, 1U << 20})) {
      measure_latency(session, job, size);
    }
  }
  if (!session.wants("rate", "tagged")) return;
  for (const std::uint64_t size : harness::sizes_or(session.options(), {8})) {
    if (size > 4096) continue;  // larger ones are a matter of bandwidth
    for (const std::uint32_t threads : harness::threads_of(session.options()))
      measure_rate(session, job, size, threads);
  }
}

}  // namespace heddle::bench::work
