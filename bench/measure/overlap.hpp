// Communication beside computing: as for PIOMan, where the sender, the receiver or both compute
// before they wait; and as a stencil does it, where both exchange messages.
#pragma once

#include <array>
#include <cstring>

#include "harness/computation.hpp"
#include "measure/messages.hpp"

namespace heddle::bench::measure {

struct OverlapCase {
  const char* op;
  bool message;
  bool sender;  // computes
  bool receiver;
};
inline constexpr std::array<OverlapCase, 5> kOverlapCases = {{{"communication", true, false, false},
                                                              {"compute", false, true, true},
                                                              {"sender", true, true, false},
                                                              {"receiver", true, false, true},
                                                              {"both", true, true, true}}};

inline std::uint64_t overlap_compute_ns(std::uint64_t size) {
  return size <= 16384 ? 20'000 : 100'000;
}

// One iteration begins when both are ready and ends when the sender has the receiver's answer, so
// both have waited. The parts alone are measured as well.
template <Messages L>
void overlap_case(Bench& bench, L& library, const Task& task, const OverlapCase& what,
                  harness::Computation& computation) {
  AllEnds ends(bench, 1, task.bytes);
  const bool sends = bench.rank() == 0;
  const std::uint64_t compute_ns = (sends ? what.sender : what.receiver) ? overlap_compute_ns(task.bytes) : 0;
  const auto one = [&](std::uint32_t lane) {
    typename L::Request request{};
    if (what.message && sends) library.send(lane, 1, kData, ends[0].out.data(), task.bytes, request);
    if (what.message && !sends) library.receive(lane, 0, kData, ends[0].in.data(), task.bytes, request);
    if (compute_ns != 0) computation.run(compute_ns);
    if (!what.message) return;
    library.wait_all(lane, &request, 1);
    if (sends) library.receive_now(lane, 1, kAnswer, &ends[0].answer, 8);
    if (!sends) library.send_now(lane, 0, kAnswer, &ends[0].answer, 8);
  };
  bench.measure(task, {[&](std::uint64_t run) { ends.prepare(run); },
                       [&](std::uint32_t lane, std::uint64_t n) {
                         for (std::uint64_t i = 0; i < n; ++i) one(lane);
                       },
                       [&](std::uint64_t run) { return sends || !what.message || ends.right(run); }});
}

// `suffix`: follows the names, and names who else makes progress.
template <class L>
void overlap(Bench& bench, L& library, const std::string& suffix) {
  if constexpr (Messages<L>) {
    if (!bench.wants("overlap")) return;
    bench.session().cores().pin_sharing(bench.rank(), 0);
    harness::Computation computation;
    for (const std::uint64_t size :
         bench.sizes("overlap", {64, 4096, 16384, 32768, 262144, 1U << 20}, std::uint64_t{1} << 28)) {
      for (const OverlapCase& one : kOverlapCases) {
        overlap_case(bench, library, {"overlap", one.op + suffix, "latency", size}, one, computation);
      }
    }
  }
}

// ---- the program: receive and send are begun, then as long as they take alone is computed, then
// they are waited for. The figure is the time that the communication adds to the computing: 0 means
// that all of it is hidden; the time of the communication alone means that none is.

template <Messages L>
class Exchange {
 public:
  Exchange(Bench& bench, L& library, std::uint64_t bytes)
      : bench_(bench), library_(library), bytes_(bytes), ends_(bench, 1, bytes) {}

  // Nanoseconds of n exchanges, without the computing itself.
  Run run(std::uint64_t n, std::uint64_t compute_ns) {
    ends_.prepare(++runs_);
    bench_.session().channel().barrier();
    double computed = 0;
    const auto each = [&](std::uint32_t lane, std::uint64_t count) {
      typename L::Request requests[2];
      for (std::uint64_t i = 0; i < count; ++i) {
        library_.receive(lane, bench_.peer(), kData, ends_[0].in.data(), bytes_, requests[0]);
        library_.send(lane, bench_.peer(), kData, ends_[0].out.data(), bytes_, requests[1]);
        if (compute_ns > 0) {
          const std::uint64_t begin = harness::now_ns();
          computation_.run(compute_ns);
          computed += static_cast<double>(harness::now_ns() - begin);
        }
        library_.wait_all(lane, requests, 2);
      }
    };
    const auto time = bench_.run(1, n, {{}, each, {}});
    const double took = std::max(time.ns() - computed, 1.0);
    return Run{took, bench_.everywhere(ends_.right(runs_)), {took / static_cast<double>(n)}};
  }

 private:
  Bench& bench_;
  L& library_;
  std::uint64_t bytes_;
  AllEnds ends_;
  harness::Computation computation_;
  std::uint64_t runs_ = 0;
};

template <Messages L>
void overlap_program(Bench& bench, L& library) {
  if (!bench.wants_program("overlap") || bench.identity().is_variant) return;
  harness::Session& session = bench.session();
  for (const std::uint64_t bytes : bench.program_sizes({65536, 1U << 20})) {
    Exchange<L> exchange(bench, library, bytes);
    double alone = 0;
    session.measure(bench.figure(bench.program("overlap_alone", "latency", bytes, 1)), [&](std::uint64_t n) {
      const Run run = exchange.run(n, 0);
      alone = run.values[0];
      return run;
    });
    const std::uint64_t compute_ns =
        std::max<std::uint64_t>(session.channel().share(static_cast<std::uint64_t>(alone)), 1);
    session.measure(bench.figure(bench.program("overlap_added", "latency", bytes, 1)),
                    [&](std::uint64_t n) { return exchange.run(n, compute_ns); });
  }
}

}  // namespace heddle::bench::measure
