// Small operations over a network: one template for Heddle and for raw UCX, so that both have the
// same windows and flush in the same places.
//
//             latency (one thread)    rate (threads of rank 0, with a worker each or one for all)
//   put, get  one, and a flush        kNetworkWindow of them, and a flush; and so on
//   am        there and back          bursts of kNetworkBurst, each answered by one message when
//                                     all of it is there; at most two bursts are not answered
//
// Every thread of rank 1 makes progress meanwhile: over TCP the target's processor serves puts and
// gets.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "harness/options.hpp"
#include "harness/session.hpp"

namespace heddle::bench::harness {

inline constexpr std::uint64_t kNetworkWindow = 64;
inline constexpr std::uint64_t kNetworkBurst = 256;

// The one of kNetworkNames that these options name, for whose sake this participant runs; null:
// none.
inline const char* network_of(const Options& options) {
  for (const std::string& name : kNetworkNames) {
    if (wants_bench(options, name)) return name.c_str();
  }
  return nullptr;
}

inline std::vector<std::uint32_t> network_threads(const Options& options) {
  if (options.quick || wants_bench(options, "mixed_job")) return threads_or(options, {1});
  return threads_or(options, {1, 2, 4, 8});
}

// Calls progress() until done() is true. Spins as long as Heddle's own waits do, then gives the
// core away.
template <class Progress, class Done>
void progress_until(std::uint32_t threads, Progress&& progress, Done&& done) {
  const std::uint32_t spins = threads > 1 ? 16 : 100;
  std::uint32_t idle = 0;
  while (!done()) {
    idle = progress() ? 0 : idle + 1;
    if (idle > spins) sched_yield();
  }
}

// Endpoint: figure(op, metric, per_iteration, threads); of a thread's worker: put(thread, &word),
// get(thread, &word), flush(thread, threads), send(thread) (a message of 8 bytes to the same thread
// of the peer), progress(thread) (true: something has happened), arrived(thread) (messages for that
// thread, ever).
template <class Endpoint>
class Network {
 public:
  // Both ranks, one endpoint after the other.
  Network(Session& session, Endpoint& endpoint) : session_(session), endpoint_(endpoint) {
    session.channel().barrier();
    over().store(0, std::memory_order_relaxed);
    session.channel().barrier();
    for (std::uint32_t thread = 0; thread < due_.size(); ++thread) due_[thread] = endpoint.arrived(thread);
    session.channel().barrier();
  }

  void latencies() {
    if (wants("put")) {
      one_sided("put", "latency", 1, 1, [&](std::uint32_t thread) { endpoint_.put(thread, &word_[thread].value); });
    }
    if (wants("get")) {
      one_sided("get", "latency", 1, 1, [&](std::uint32_t thread) { endpoint_.get(thread, &word_[thread].value); });
    }
    if (wants("am")) {
      session_.measure(endpoint_.figure("am", "latency", 2, 1), [&](std::uint64_t n) { return there_and_back(n); });
    }
  }
  void one_sided_rates(std::uint32_t threads) {
    if (wants("put")) {
      one_sided("put", "rate", kNetworkWindow, threads,
                [&](std::uint32_t thread) { endpoint_.put(thread, &word_[thread].value); });
    }
    if (wants("get")) {
      one_sided("get", "rate", kNetworkWindow, threads,
                [&](std::uint32_t thread) { endpoint_.get(thread, &word_[thread].value); });
    }
  }
  void message_rate(std::uint32_t threads) {
    if (!wants("am")) return;
    const auto operations = static_cast<double>(kNetworkBurst * threads);
    session_.measure(endpoint_.figure("am", "rate", operations, threads), [&](std::uint64_t n) {
      const double elapsed = together(threads, [&](std::uint32_t thread) {
        if (session_.rank() == 0) {
          stream(thread, threads, n);
        } else {
          answer(thread, threads, n);
        }
      });
      // The last answers may not have left.
      session_.channel().barrier_while([&] {
        for (std::uint32_t thread = 0; thread < threads; ++thread) endpoint_.progress(thread);
      });
      return Run{elapsed};
    });
  }

 private:
  struct alignas(kApart) Word {
    std::uint64_t value = 0;
  };

  [[nodiscard]] bool wants(const char* op) const { return session_.wants(network_of(session_.options()), op); }
  [[nodiscard]] std::atomic<std::uint64_t>& over() { return session_.channel().flag(3); }

  template <class Work>
  double together(std::uint32_t threads, Work&& work) {
    const auto pin = [&](std::uint32_t thread) { session_.cores().pin_sharing(session_.rank(), thread); };
    return run_threads(threads, pin, work);
  }
  template <class Done>
  void until(std::uint32_t thread, std::uint32_t threads, Done&& done) {
    progress_until(threads, [&] { return endpoint_.progress(thread); }, done);
  }
  void await(std::uint32_t thread, std::uint32_t threads, std::uint64_t messages) {
    until(thread, threads, [&] { return endpoint_.arrived(thread) >= messages; });
  }

  // `count` operations and a flush are an iteration.
  template <class Post>
  void one_sided(const char* op, const char* metric, std::uint64_t count, std::uint32_t threads, Post&& post) {
    const double per_iteration = metric[0] == 'l' ? 1 : static_cast<double>(count * threads);
    session_.measure(endpoint_.figure(op, metric, per_iteration, threads), [&](std::uint64_t n) {
      ++turn_;
      const double elapsed = together(threads, [&](std::uint32_t thread) {
        if (session_.rank() != 0) {
          return until(thread, threads, [&] { return over().load(std::memory_order_acquire) == turn_; });
        }
        for (std::uint64_t i = 0; i < n; ++i) {
          for (std::uint64_t j = 0; j < count; ++j) post(thread);
          endpoint_.flush(thread, threads);
        }
      });
      if (session_.rank() == 0) over().store(turn_, std::memory_order_release);
      return Run{elapsed};
    });
  }

  Run there_and_back(std::uint64_t n) {
    const std::uint64_t begin = now_ns();
    for (std::uint64_t i = 0; i < n; ++i) {
      if (session_.rank() == 0) endpoint_.send(0);
      await(0, 1, ++due_[0]);
      if (session_.rank() == 1) endpoint_.send(0);
    }
    const auto elapsed = static_cast<double>(now_ns() - begin);
    endpoint_.flush(0, 1);
    session_.channel().barrier_while([&] { endpoint_.progress(0); });
    return Run{elapsed, endpoint_.arrived(0) == due_[0]};
  }

  void stream(std::uint32_t thread, std::uint32_t threads, std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) {
      if (i >= 2) await(thread, threads, due_[thread] + i - 1);
      for (std::uint64_t j = 0; j < kNetworkBurst; ++j) endpoint_.send(thread);
    }
    due_[thread] += n;
    await(thread, threads, due_[thread]);
  }
  void answer(std::uint32_t thread, std::uint32_t threads, std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) {
      due_[thread] += kNetworkBurst;
      await(thread, threads, due_[thread]);
      endpoint_.send(thread);
    }
  }

  Session& session_;
  Endpoint& endpoint_;
  std::uint64_t turn_ = 0;               // of `over`: the measurement whose operations are through
  std::array<std::uint64_t, 64> due_{};  // by thread: what has arrived when all so far is through
  std::array<Word, 64> word_;            // by thread: source and destination
};

}  // namespace heddle::bench::harness
