// The same work on UCX: one worker per thread (own), or one worker for all threads (shared, thread
// mode MULTI).
#include <cstdio>
#include <cstdlib>

#include "harness/network.hpp"
#include "main.hpp"
#include "suite.hpp"
#include "ucx_library.hpp"

namespace heddle::bench::peers {
namespace {

// ---- messages -----------------------------------------------------------------------------------

class Tagged {
 public:
  explicit Tagged(Ucx& ucx) : ucx_(ucx), buffer_(kDataBytes) {}
  [[nodiscard]] static const char* name() { return "tagged"; }
  void send(std::uint32_t thread, std::uint64_t size) { ucx_.finish(ucx_.of(thread), post_send(thread, size)); }
  void receive(std::uint32_t thread, std::uint64_t size) {
    ucx_.finish(ucx_.of(thread), post_receive(thread, buffer_.data(), size));
  }
  void begin_send(const void* data, std::uint64_t size) {
    const ucp_request_param_t params{};
    begun_ = ucp_tag_send_nbx(ucx_.of(0).endpoints[ucx_.peer()], data, size, 1, &params);
  }
  void begin_receive(void* data, std::uint64_t size) { begun_ = post_receive(0, data, size); }
  void finish() { ucx_.finish(ucx_.of(0), begun_); }
  void stream_send(std::uint32_t thread, std::uint64_t n, std::uint64_t size) {
    stream(thread, n, [&] { return post_send(thread, size); });
    std::uint64_t done = 0;
    ucx_.finish(ucx_.of(thread), post_receive(thread, &done, 8));
  }
  void stream_receive(std::uint32_t thread, std::uint64_t n, std::uint64_t size) {
    std::byte target[64];
    stream(thread, n, [&] { return post_receive(thread, target, size); });
    send(thread, 8);
  }

 private:
  static constexpr std::uint64_t kWindow = 64;
  ucs_status_ptr_t post_send(std::uint32_t thread, std::uint64_t size) {
    const ucp_request_param_t params{};
    return ucp_tag_send_nbx(ucx_.of(thread).endpoints[ucx_.peer()], buffer_.data(), size, thread + 1, &params);
  }
  ucs_status_ptr_t post_receive(std::uint32_t thread, void* target, std::uint64_t size) {
    const ucp_request_param_t params{};
    return ucp_tag_recv_nbx(ucx_.of(thread).worker, target, size, thread + 1, ~std::uint64_t{0}, &params);
  }
  template <class Post>
  void stream(std::uint32_t thread, std::uint64_t n, Post&& post) {
    ucs_status_ptr_t requests[kWindow];
    while (n > 0) {
      const std::uint64_t count = n < kWindow ? n : kWindow;
      for (std::uint64_t i = 0; i < count; ++i) requests[i] = post();
      for (std::uint64_t i = 0; i < count; ++i) ucx_.finish(ucx_.of(thread), requests[i]);
      n -= count;
    }
  }
  Ucx& ucx_;
  ucs_status_ptr_t begun_ = nullptr;
  std::vector<std::byte> buffer_;
};

// Active messages, eager at every size so that the handler is all there is.
class Active {
 public:
  explicit Active(Ucx& ucx) : ucx_(ucx), buffer_(kDataBytes) {}
  [[nodiscard]] static const char* name() { return "am"; }
  void send(std::uint32_t thread, std::uint64_t size) { post(thread, kAmCount, size); }
  void receive(std::uint32_t thread, std::uint64_t) {
    Worker& worker = ucx_.of(thread);
    ++seen_;
    while (worker.arrivals.messages.load(std::memory_order_relaxed) < seen_) ucp_worker_progress(worker.worker);
  }
  void stream_send(std::uint32_t thread, std::uint64_t n, std::uint64_t size) {
    Worker& worker = ucx_.of(thread);
    const std::uint64_t before = worker.arrivals.finished.load(std::memory_order_relaxed);
    for (std::uint64_t i = 0; i < n; ++i) post(thread, kAmCount, size);
    until(worker, worker.arrivals.finished, before + 1);
  }
  void stream_receive(std::uint32_t thread, std::uint64_t n, std::uint64_t) {
    Worker& worker = ucx_.of(thread);
    const std::uint64_t before = received_[thread];
    until(worker, worker.arrivals.messages, before + n);
    received_[thread] = before + n;
    post(thread, kAmFinished, 8);
    ucx_.quiet(thread);
  }
  // Where the counts stand: before a change between latency and rate.
  void settle() {
    seen_ = ucx_.of(0).arrivals.messages.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < 64; ++i) received_[i] = 0;
    received_[0] = seen_;
  }

 private:
  // As Heddle's own measurement waits: gives the core away when nothing comes for long.
  static void until(Worker& worker, const std::atomic<std::uint64_t>& count, std::uint64_t target) {
    std::uint32_t idle = 0;
    while (count.load(std::memory_order_relaxed) < target) {
      idle = ucp_worker_progress(worker.worker) != 0 ? 0 : idle + 1;
      if (idle > 2000) {
        sched_yield();
        idle = 1000;
      }
    }
  }
  void post(std::uint32_t thread, unsigned id, std::uint64_t size) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
    Worker& worker = ucx_.of(thread);
    ucx_.finish(worker, ucp_am_send_nbx(worker.endpoints[ucx_.peer()], id, nullptr, 0, buffer_.data(), size, &params));
  }
  Ucx& ucx_;
  std::vector<std::byte> buffer_;
  std::uint64_t seen_ = 0;
  std::uint64_t received_[64] = {};
};

// ---- over a network -----------------------------------------------------------------------------

class NetworkEndpoint {
 public:
  NetworkEndpoint(Ucx& ucx, const char* bench) : ucx_(ucx), bench_(bench) {}

  harness::Figure figure(const char* op, const char* metric, double per_iteration, std::uint32_t threads) {
    return peers::figure(ucx_, bench_, op, metric, 8, per_iteration, threads);
  }
  void put(std::uint32_t thread, const std::uint64_t* word) { ucx_.put(thread, 1, slot_offset(thread), word, 8); }
  void get(std::uint32_t thread, std::uint64_t* word) { ucx_.get(thread, 1, slot_offset(thread), word, 8); }
  void flush(std::uint32_t thread, std::uint32_t threads) {
    const ucp_request_param_t params{};
    finish(thread, threads, ucp_ep_flush_nbx(ucx_.of(thread).endpoints[ucx_.peer()], &params));
  }
  // With a request only where UCX keeps the message; its source stays.
  void send(std::uint32_t thread) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
    ucs_status_ptr_t request = ucp_am_send_nbx(ucx_.of(thread).endpoints[ucx_.peer()], kAmNumbered, nullptr, 0,
                                               &numbers_[thread], sizeof numbers_[thread], &params);
    if (request == nullptr) return;
    if (UCS_PTR_IS_ERR(request)) must(UCS_PTR_STATUS(request), "a message");
    ucp_request_free(request);
  }
  bool progress(std::uint32_t thread) { return ucp_worker_progress(ucx_.of(thread).worker) != 0; }
  [[nodiscard]] std::uint64_t arrived(std::uint32_t thread) const { return ucx_.numbered(thread); }

 private:
  void finish(std::uint32_t thread, std::uint32_t threads, ucs_status_ptr_t request) {
    if (request == nullptr) return;
    if (UCS_PTR_IS_ERR(request)) must(UCS_PTR_STATUS(request), "a flush");
    harness::progress_until(
        threads, [&] { return progress(thread); }, [&] { return ucp_request_check_status(request) != UCS_INPROGRESS; });
    must(ucp_request_check_status(request), "a flush");
    ucp_request_free(request);
  }
  static std::array<std::uint64_t, 64> numbers() {
    std::array<std::uint64_t, 64> all{};
    for (std::uint64_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }

  Ucx& ucx_;
  const char* bench_;
  const std::array<std::uint64_t, 64> numbers_ = numbers();
};

void run_network(Session& session, Ucx& ucx) {
  const char* bench = harness::network_of(session.options());
  if (bench == nullptr) return;
  NetworkEndpoint endpoint(ucx, bench);
  harness::Network network(session, endpoint);
  const bool own = ucx.workers(2) == 2;
  if (own) network.latencies();
  for (const std::uint32_t threads : harness::network_threads(session.options())) {
    network.one_sided_rates(threads);
    network.message_rate(threads);
  }
}

void run_atomics(Session& session, Ucx& ucx) {
  one_atomic<Atomic::fetch_add>(session, ucx, "fadd");
  one_atomic<Atomic::swap>(session, ucx, "swap");
  one_atomic<Atomic::compare_swap>(session, ucx, "cswap");
  one_atomic<Atomic::add>(session, ucx, "add");
  one_atomic<Atomic::bit_xor>(session, ucx, "xor");
  one_atomic<Atomic::bit_and>(session, ucx, "and");
  one_atomic<Atomic::bit_or>(session, ucx, "or");
}

void run_own(Session& session, const std::vector<std::uint32_t>& threads, std::uint32_t most) {
  Ucx ucx(session, most, false, region_bytes(session.options()));
  Tagged tagged(ucx);
  Active active(ucx);
  one_sided_latency(session, ucx);
  message_latency(session, ucx, active);
  message_latency(session, ucx, tagged);
  overlap(session, ucx, tagged);
  active.settle();
  for (const std::uint32_t count : threads) {
    one_sided_rate(session, ucx, count);
    message_rate(session, ucx, active, count);
    message_rate(session, ucx, tagged, count);
  }
  run_network(session, ucx);
  bandwidth(session, ucx);
  overhead(session, ucx);
  harness::Crowd pair(session.channel(), session.rank(), 2);
  duplex(&session, session.options(), pair, ucx);
  run_atomics(session, ucx);
  if (!session.wants("gups")) return;
  const std::uint64_t words = harness::gups_words_per_rank(session.options().total_words, session.options().quick);
  for (const std::uint32_t count : threads) gups(session, ucx, count, words);
}

// One worker for all threads: only what depends on that.
void run_shared(Session& session, const std::vector<std::uint32_t>& threads) {
  const bool network = harness::network_of(session.options()) != nullptr;
  if (!session.wants("rate") && !session.wants("overhead") && !session.wants("duplex") && !network) return;
  Ucx ucx(session, 1, true, region_bytes(session.options()));
  run_network(session, ucx);
  overhead(session, ucx);
  harness::Crowd pair(session.channel(), session.rank(), 2);
  duplex(&session, session.options(), pair, ucx);
  Tagged tagged(ucx);
  for (const std::uint32_t count : threads) {
    one_sided_rate(session, ucx, count);
    message_rate(session, ucx, tagged, count);
  }
}

}  // namespace
}  // namespace heddle::bench::peers

int main(int argc, char** argv) {
  using namespace heddle::bench;
  const harness::Options options = peers::options_or_exit(argc, argv);
  harness::Channel channel = peers::channel_or_exit(options);
  return harness::run_pair(channel, [&](std::uint32_t) {
    harness::Session session(channel, options, harness::print_sample);
    const auto threads = harness::threads_of(options);
    std::uint32_t most = *std::max_element(threads.begin(), threads.end());
    const auto raise = [&](const char* bench, const std::vector<std::uint32_t>& counts) {
      if (harness::wants_bench(options, bench)) most = std::max(most, *std::max_element(counts.begin(), counts.end()));
    };
    raise("overhead", harness::threads_or(options, harness::kOverheadThreads));
    raise("duplex", harness::threads_or(options, harness::kDuplexThreads));
    if (const char* network = harness::network_of(options)) raise(network, harness::network_threads(options));
    peers::run_own(session, threads, most);
    peers::run_shared(session, threads);
    return 0;
  });
}
