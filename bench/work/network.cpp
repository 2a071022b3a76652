// Heddle over a network, as raw UCX does the same (bench/peers/peer_ucx.cpp), and over two
// transports at once: 8 bytes each.
#include "harness/network.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <optional>

#include "work/modes.hpp"

namespace heddle::bench::work {

namespace {

using harness::Crowd;
using harness::Session;

constexpr std::uint32_t kMessage = 7;  // the handler

// By thread of this rank; the handlers of one thread's messages run one at a time, perhaps on
// another thread.
struct alignas(harness::kApart) Arrivals {
  std::atomic<std::uint64_t> messages{0};  // relaxed: a number
};
using AllArrivals = std::array<Arrivals, kMaxThreads>;

void on_message(const heddle_am_arrival* message, void* all) {
  std::uint64_t thread = 0;
  std::memcpy(&thread, message->payload, sizeof thread);
  auto& messages = (*static_cast<AllArrivals*>(all))[thread % kMaxThreads].messages;
  messages.store(messages.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

class Endpoint {
 public:
  // `shared`: a worker for all threads; null: each has one of its own.
  Endpoint(Job& job, const char* bench, AllArrivals& arrivals, const ModeWorker* shared, const char* mode)
      : job_(job), bench_(bench), arrivals_(arrivals), shared_(shared), mode_(mode) {
    for (std::uint64_t thread = 0; thread < kMaxThreads; ++thread) numbers_[thread] = thread;
  }

  harness::Figure figure(const char* op, const char* metric, double per_iteration, std::uint32_t threads) {
    harness::Figure figure = job_.figure(bench_, op, metric, 8, per_iteration);
    figure.key.sharing = mode_;
    figure.key.threads = threads;
    figure.key.workers = shared_ != nullptr ? 1 : threads;
    figure.key.processes = job_.size();
    return figure;
  }
  void put(std::uint32_t thread, const std::uint64_t* word) {
    must(heddle_put(worker(thread), word, sizeof *word, job_.slot(thread), nullptr), "heddle_put");
  }
  void get(std::uint32_t thread, std::uint64_t* word) {
    must(heddle_get(worker(thread), word, sizeof *word, job_.slot(thread), nullptr), "heddle_get");
  }
  void flush(std::uint32_t thread, std::uint32_t) { must(heddle_flush(worker(thread), job_.peer()), "heddle_flush"); }
  void send(std::uint32_t thread) {
    const heddle_am_message message{kMessage, 0, nullptr, &numbers_[thread], sizeof numbers_[thread]};
    const heddle_peer peer = shared_ != nullptr ? shared_->peer() : heddle_peer{job_.peer(), thread};
    must(heddle_am(worker(thread), peer, &message, nullptr), "heddle_am");
  }
  bool progress(std::uint32_t thread) { return work::progress(worker(thread)) > 0; }
  std::uint64_t arrived(std::uint32_t thread) { return arrivals_[thread].messages.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] heddle_worker worker(std::uint32_t thread) const {
    return shared_ != nullptr ? shared_->handle() : job_.worker(thread);
  }

  Job& job_;
  const char* bench_;
  AllArrivals& arrivals_;
  const ModeWorker* shared_;
  const char* mode_;
  // what messages carry; they may still be read when send() returns
  std::array<std::uint64_t, kMaxThreads> numbers_{};
};

bool is_wanted(const harness::Options& options, std::string_view name) {
  if (!options.sharing.empty()) return harness::wants_sharing(options, name);
  return name == "shared" || name == "offload";
}

}  // namespace

void run_network(Session* session, const harness::Options& options, Job& job) {
  const char* bench = harness::network_of(options);
  if (bench == nullptr) return;
  static AllArrivals arrivals;
  must(heddle_am_register(job.context(), kMessage, on_message, &arrivals), "heddle_am_register");
  must(heddle_context_barrier(job.context(), job.worker(0), HEDDLE_FOREVER), "heddle_context_barrier");
  if (session == nullptr) return;
  {
    Endpoint endpoint(job, bench, arrivals, nullptr, "exclusive");
    harness::Network network(*session, endpoint);
    network.latencies();
    for (const std::uint32_t threads : harness::network_threads(options)) {
      network.one_sided_rates(threads);
      network.message_rate(threads);
    }
  }
  if (job.size() > 2) return;  // workers for all threads are opened by all ranks
  for (const auto& [name, sharing] : kModes) {
    if (!is_wanted(options, name)) continue;
    const ModeWorker shared(job, sharing);
    Endpoint endpoint(job, bench, arrivals, &shared, name);
    harness::Network network(*session, endpoint);
    for (const std::uint32_t threads : harness::network_threads(options)) network.message_rate(threads);
  }
}

}  // namespace heddle::bench::work
