// All programs that a library can do, in the order of the table.
#pragma once

#include "programs/bench.hpp"
#include "programs/exchange.hpp"
#include "programs/messages.hpp"
#include "programs/one_sided.hpp"
#include "programs/overlapping.hpp"
#include "programs/service.hpp"

namespace heddle::bench::programs {

// `own`: a queue for each thread.
template <class Library>
void run_own(Bench& bench, Library& own) {
  if constexpr (Library::kMessages) {
    latency(bench, own);
    one_way(bench, own, "bw", "bandwidth", bench.sizes({8, 4096, 65536, 1U << 20}));
    both_ways(bench, own);
    one_way(bench, own, "mbw_mr", "rate", {8});
    pingpongs(bench, own, "pingpong_mt_own");
    pairs(bench, own, "pairs_own", false);
    fan_in(bench, own);
    overlap(bench, own);
  }
  if constexpr (Library::kSignals) put_latency(bench, own);
  if constexpr (Library::kCounts) exchanges(bench, own);
  windows(bench, own, "put_window", true);
  windows(bench, own, "get_window", false);
  calls(bench, own, "rpc", {1});
  calls(bench, own, "rpc_mt", bench.threads({4}));
  halo(bench, own);
}

// `one`: a queue that all threads use.
template <class Library>
void run_one(Bench& bench, Library& one) {
  if constexpr (Library::kMessages) {
    latency_of_threads(bench, one);
    pingpongs(bench, one, "pingpong_mt_one");
    pairs(bench, one, "pairs_one", false);
    pairs(bench, one, "pairs_any", true);
  }
}

// What a single thread does by a queue that several might use: only to tell what that costs.
template <class Library>
void run_variant(Bench& bench, Library& one) {
  if constexpr (Library::kMessages) {
    latency(bench, one);
    one_way(bench, one, "bw", "bandwidth", {8});
    one_way(bench, one, "mbw_mr", "rate", {8});
    fan_in(bench, one);
  }
  if constexpr (Library::kSignals) put_latency(bench, one);
  calls(bench, one, "rpc", {1});
}

}  // namespace heddle::bench::programs
