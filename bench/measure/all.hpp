// All measurements of a library, in the order of the table, as far as the library supports them.
#pragma once

#include "measure/exchange.hpp"
#include "measure/overlap.hpp"
#include "measure/service.hpp"

namespace heddle::bench::measure {

inline constexpr std::uint64_t kNetworkWindow = 64;
inline constexpr std::uint64_t kNetworkBurst = 256;
inline constexpr std::uint64_t kMostNetworkBytes = 32 << 10;

// ---- single operations --------------------------------------------------------------------------

// Small operations over a network, or over two transports at once. Rank 1's threads make progress
// meanwhile: over TCP the target's processor serves puts and gets.
template <Active L>
void network(Bench& bench, L& library, bool latencies, bool one_sided) {
  const char* name = harness::network_of(bench.options());
  if (name == nullptr) return;
  const Buffer local(kLanes * kMostNetworkBytes, bench.options());
  const auto each = [&](const char* metric, std::uint64_t bytes, std::uint64_t window, std::uint32_t threads) {
    const auto task = [&](const char* op) {
      return Task{name, op, metric, bytes, static_cast<double>(window * threads), threads};
    };
    const auto place = [](std::uint32_t lane) { return lane * kMostNetworkBytes; };
    const auto put = [&](std::uint32_t lane) {
      library.put(lane, 1, kDataAt + place(lane), local.data() + place(lane), bytes);
    };
    const auto get = [&](std::uint32_t lane) {
      library.get(lane, 1, kDataAt + place(lane), local.data() + place(lane), bytes);
    };
    if (bench.wants(name, "put")) stream(bench, library, task("put"), window, put, Owner::helps);
    if (bench.wants(name, "get")) stream(bench, library, task("get"), window, get, Owner::helps);
  };
  for (const std::uint64_t bytes : bench.sizes(name, {8}, kMostNetworkBytes)) {
    if (latencies) {
      each("latency", bytes, 1, 1);
      if (bench.wants(name, "am")) active_ping_pong(bench, library, {name, "am", "latency", bytes});
    }
    for (const std::uint32_t threads : harness::network_threads(bench.options())) {
      if (one_sided) each("rate", bytes, kNetworkWindow, threads);
      if (bench.wants(name, "am")) active_rate(bench, library, {name, "am", "rate", bytes, 1, threads}, kNetworkBurst);
    }
  }
}

// By one thread for each queue.
template <Library L>
void run_latencies(Bench& bench, L& library) {
  if (bench.wants("pingpong")) {
    one_sided_latency(bench, library);
    message_latency(bench, library);
  }
}

// By one or more threads, with a queue each or one for all.
template <Library L>
void run_rates(Bench& bench, L& library) {
  if (!bench.wants("rate")) return;
  for (const std::uint32_t threads : harness::threads_of(bench.options())) {
    one_sided_rate(bench, library, threads);
    message_rate(bench, library, {"rate", "", "rate", 8, static_cast<double>(threads), threads});
  }
}

// All measurements except programs, of an object that has a queue for each thread.
template <Library L>
void run_all(Bench& bench, L& library) {
  run_latencies(bench, library);
  run_rates(bench, library);
  if (bench.wants("bandwidth")) bandwidth(bench, library);
  if (bench.wants("atomics")) atomics(bench, library);
  if (bench.wants("gups")) gups(bench, library);
  if (bench.wants("duplex")) duplex(bench, library);
  overhead(bench, library);
  overlap(bench, library, "");
  if constexpr (Active<L>) network(bench, library, true, true);
}

// The measurements of an object with one queue for all threads that depend on this queue.
template <Library L>
void run_shared(Bench& bench, L& library) {
  run_rates(bench, library);
  if (bench.wants("duplex")) duplex(bench, library);
  overhead(bench, library);
  if constexpr (Active<L>) network(bench, library, false, true);
}

// ---- programs -----------------------------------------------------------------------------------

// A queue for each thread.
template <Library L>
void run_programs(Bench& bench, L& library) {
  if constexpr (Messages<L>) {
    if (bench.wants_program("latency")) {
      for (const std::uint64_t bytes : bench.program_sizes({8, 4096, 65536, 1U << 20}, kMostMessageBytes)) {
        ping_pong(bench, library, bench.program("latency", "latency", bytes, 2));
      }
    }
    one_way(bench, library, "bw", "bandwidth", bench.program_sizes({8, 4096, 65536, 1U << 20}, kMostMessageBytes));
    both_ways(bench, library);
    one_way(bench, library, "mbw_mr", "rate", {8});
    ping_pongs_of_threads(bench, library, "pingpong_mt_own");
    pairs(bench, library, "pairs_own", false);
    fan_in(bench, library);
    overlap_program(bench, library);
  }
  put_latency(bench, library);
  if constexpr (Counts<L>) exchanges(bench, library);
  windows(bench, library, "put_window", true);
  windows(bench, library, "get_window", false);
  calls(bench, library, "rpc", {1});
  calls(bench, library, "rpc_mt", bench.program_threads({4}));
  halo(bench, library);
}

// One queue for all threads. `variant`: also measures a single thread on it, to show the cost.
template <Library L>
void run_shared_programs(Bench& bench, L& library, bool variant) {
  if constexpr (Messages<L>) {
    latency_of_threads(bench, library);
    ping_pongs_of_threads(bench, library, "pingpong_mt_one");
    pairs(bench, library, "pairs_one", false);
    pairs(bench, library, "pairs_any", true);
    if (!variant) return;
    if (bench.wants_program("latency")) {
      ping_pong(bench, library, bench.program("latency", "latency", 8, 2));
    }
    one_way(bench, library, "bw", "bandwidth", {8});
    one_way(bench, library, "mbw_mr", "rate", {8});
    fan_in(bench, library);
  }
  put_latency(bench, library);
  calls(bench, library, "rpc", {1});
}

}  // namespace heddle::bench::measure
