// Active messages: latency with a handler that replies, and rate with one sender and one receiver
// per pair of workers.
#include <array>
#include <atomic>
#include <cstring>

#include "base/cache_line.hpp"
#include "work/job.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;
using harness::Session;

enum Handler : std::uint32_t { kPing = 1, kPong = 2, kCount = 3, kFinished = 4 };

// What the handlers of one worker count. They run one at a time, perhaps on an engine thread,
// beside the owner who reads: so these are atomics, but not atomic updates. Worker i talks to
// worker i of the peer, whose number tells which one is meant.
struct alignas(base::kCacheLine) Counts {
  using Count = std::atomic<std::uint64_t>;
  Count arrived{0};
  Count finished{0};
  Count owed_replies{0};  // replies that found no room; the receiving loop sends them
  // The owner's: what all measurements so far should have counted. Never set back, since the first
  // message of the next may be there before its measurement begins here.
  std::uint64_t arrivals_due = 0;
  std::uint64_t finishes_due = 0;
};
std::array<Counts, kMaxThreads> all_counts;

void raise(Counts::Count& count) {
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

heddle_am_message message(std::uint32_t handler, const void* payload, std::uint64_t size) {
  heddle_am_message out{};
  out.handler = handler;
  out.payload = payload;
  out.payload_bytes = size;
  return out;
}

void on_ping(const heddle_am_arrival* ping, void*) {
  Counts& counts = all_counts[ping->source.worker];
  raise(counts.arrived);
  // The payload is read only while the handler runs; a posted reply would still need it. So replies
  // carry the program's own.
  static const std::byte zeros[std::size_t{1} << 16] = {};
  const void* payload = ping->payload_bytes <= sizeof zeros ? zeros : nullptr;
  const heddle_am_message pong = message(kPong, payload, ping->payload_bytes);
  if (payload == nullptr || heddle_try_am(ping->worker, ping->source, &pong, nullptr) == HEDDLE_AGAIN)
    // the receiving loop takes from it
    counts.owed_replies.fetch_add(1, std::memory_order_relaxed);
}

void on_pong(const heddle_am_arrival* pong, void*) {
  raise(all_counts[pong->source.worker].arrived);
}

void on_finished(const heddle_am_arrival* message, void*) {
  raise(all_counts[message->source.worker].finished);
}

void register_handlers(Job& job) {
  must(heddle_am_register(job.context(), kPing, on_ping, nullptr), "heddle_am_register");
  must(heddle_am_register(job.context(), kPong, on_pong, nullptr), "heddle_am_register");
  must(heddle_am_register(job.context(), kCount, on_pong, nullptr), "heddle_am_register");
  must(heddle_am_register(job.context(), kFinished, on_finished, nullptr), "heddle_am_register");
  must(heddle_context_barrier(job.context(), job.worker(0), HEDDLE_FOREVER), "heddle_context_barrier");
}

void progress(heddle_worker worker) {
  const int events = heddle_worker_progress(worker);
  if (events < 0) must(static_cast<heddle_status>(events), "heddle_worker_progress");
}

// Until `count` has been reached, as a program waits for what its handlers count.
void progress_until(heddle_worker worker, const Counts::Count& count, std::uint64_t target) {
  while (count.load(std::memory_order_relaxed) < target) {
    must(heddle_worker_wait(worker, HEDDLE_FOREVER), "heddle_worker_wait");
  }
}

void measure_latency(Session& session, Job& job, std::uint64_t size) {
  const heddle_worker worker = job.worker(0);
  const heddle_peer peer{job.peer(), 0};
  Counts& counts = all_counts[0];
  const auto arrived = [&] { return counts.arrived.load(std::memory_order_relaxed); };
  session.measure(job.figure("pingpong", "am", "latency", size, 2), [&](std::uint64_t n) {
    const std::uint64_t before = counts.arrivals_due;
    counts.arrivals_due += n;
    const std::uint64_t begin = harness::now_ns();
    if (session.rank() == 0) {
      const heddle_am_message ping = message(kPing, job.local(), size);
      for (std::uint64_t i = 1; i <= n; ++i) {
        must(heddle_am(worker, peer, &ping, nullptr), "heddle_am");
        while (arrived() < before + i) progress(worker);
      }
    } else {
      const heddle_am_message pong = message(kPong, job.local(), size);
      while (arrived() < counts.arrivals_due) {
        progress(worker);
        while (counts.owed_replies.load(std::memory_order_relaxed) > 0) {
          counts.owed_replies.fetch_sub(1, std::memory_order_relaxed);
          must(heddle_am(worker, peer, &pong, nullptr), "heddle_am");
        }
      }
      must(heddle_flush(worker, job.peer()), "heddle_flush");
    }
    const auto elapsed = static_cast<double>(harness::now_ns() - begin);
    session.channel().barrier_while([&] { progress(worker); });
    return Run{elapsed, arrived() == counts.arrivals_due};
  });
}

// Thread t of rank 0 sends to thread t of rank 1; the last word is the receiver's.
void measure_rate(Session& session, Job& job, std::uint64_t size, std::uint32_t threads) {
  harness::Figure figure = job.figure("rate", "am", "rate", size, threads);
  figure.key.threads = figure.key.workers = threads;
  const auto pin = [&](std::uint32_t thread) { session.cores().pin_sharing(session.rank(), thread); };
  session.measure(figure, [&](std::uint64_t n) {
    const double elapsed = harness::run_threads(threads, pin, [&](std::uint32_t thread) {
      const heddle_worker worker = job.worker(thread);
      const heddle_peer peer{job.peer(), thread};
      Counts& counts = all_counts[thread];
      if (session.rank() == 0) {
        const heddle_am_message count = message(kCount, job.local(), size);
        for (std::uint64_t i = 0; i < n; ++i) must(heddle_am(worker, peer, &count, nullptr), "heddle_am");
        progress_until(worker, counts.finished, ++counts.finishes_due);
      } else {
        counts.arrivals_due += n;
        progress_until(worker, counts.arrived, counts.arrivals_due);
        const heddle_am_message done = message(kFinished, nullptr, 0);
        must(heddle_am(worker, peer, &done, nullptr), "heddle_am");
        must(heddle_flush(worker, job.peer()), "heddle_flush");
      }
    });
    return Run{elapsed};
  });
}

}  // namespace

void run_messages(Session& session, Job& job) {
  const bool latency = session.wants("pingpong", "am");
  const bool rate = session.wants("rate", "am");
  if (!latency && !rate) return;
  register_handlers(job);
  if (latency) {
    const auto sizes = harness::sizes_or(session.options(), {8, 64, 512, 4096, 65536, 1U << 20});
    for (const std::uint64_t size : sizes) measure_latency(session, job, size);
  }
  if (rate) {
    for (const std::uint64_t size : harness::sizes_or(session.options(), {8})) {
      if (size > 4096) continue;  // larger ones are a matter of bandwidth
      for (const std::uint32_t threads : harness::threads_of(session.options())) {
        measure_rate(session, job, size, threads);
      }
    }
  }
}

}  // namespace heddle::bench::work
