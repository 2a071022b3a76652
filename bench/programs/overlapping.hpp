// Communication beside computing, as both processes of a stencil do it: receive and send are begun,
// then as long as they take alone is computed, then they are waited for. Given is what the
// communication adds to the computing: 0 would be all hidden, as long as alone none.
#pragma once

#include <algorithm>

#include "harness/computation.hpp"
#include "programs/messages.hpp"

namespace heddle::bench::programs {

template <class Library>
class Exchange {
 public:
  Exchange(Bench& bench, Library& library) : bench_(bench), library_(library), ends_(bench) {}

  // Nanoseconds of n exchanges, without the computing itself.
  double run(std::uint64_t bytes, std::uint64_t n, std::uint64_t compute_ns) {
    ends_.prepare(bytes, pattern(bench_.rank(), 0, ++runs_));
    bench_.session()->channel().barrier();
    double computed = 0;
    const auto time = bench_.run(library_, 1, n, [&](std::uint32_t lane, std::uint64_t count) {
      typename Library::Request requests[2];
      for (std::uint64_t i = 0; i < count; ++i) {
        library_.receive(lane, bench_.peer(), kData, ends_.in.data(), bytes, requests[0]);
        library_.send(lane, bench_.peer(), kData, ends_.out.data(), bytes, requests[1]);
        if (compute_ns > 0) {
          const std::uint64_t begin = harness::now_ns();
          computation_.run(compute_ns);
          computed += static_cast<double>(harness::now_ns() - begin);
        }
        library_.wait_all(lane, requests, 2);
      }
    });
    right_ = is_filled(ends_.in.data(), bytes, pattern(bench_.peer(), 0, runs_));
    return std::max(static_cast<double>(time.end_ns - time.begin_ns) - computed, 1.0);
  }
  // In both processes.
  [[nodiscard]] bool right() {
    harness::Channel& channel = bench_.session()->channel();
    channel.flag(bench_.rank()).store(right_ ? 1 : 0);
    channel.barrier();
    const bool both = channel.flag(0).load() != 0 && channel.flag(1).load() != 0;
    channel.barrier();
    return both;
  }

 private:
  Bench& bench_;
  Library& library_;
  Ends ends_;
  harness::Computation computation_;
  std::uint64_t runs_ = 0;
  bool right_ = true;
};

template <class Library>
void overlap(Bench& bench, Library& library) {
  if (!bench.wants("overlap") || library.is_variant()) return;
  Exchange<Library> exchange(bench, library);
  harness::Session& session = *bench.session();
  for (const std::uint64_t bytes : bench.sizes({65536, 1U << 20})) {
    double alone = 0;
    session.measure(bench.figure(library, "overlap_alone", "latency", bytes, 1), [&](std::uint64_t n) {
      const double took = exchange.run(bytes, n, 0);
      alone = took / static_cast<double>(n);
      return Run{took, exchange.right()};
    });
    const std::uint64_t compute_ns =
        std::max<std::uint64_t>(session.channel().share(static_cast<std::uint64_t>(alone)), 1);
    session.measure(bench.figure(library, "overlap_added", "latency", bytes, 1), [&](std::uint64_t n) {
      const double added = exchange.run(bytes, n, compute_ns);
      return Run{added, exchange.right(), {added / static_cast<double>(n)}};
    });
  }
}

}  // namespace heddle::bench::programs
