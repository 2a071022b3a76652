// What an operation costs the caller (`overhead`), and whether it advances meanwhile (`overlap`).
//
// As for LLCL: each thread posts an operation, waits for it, and so on. t1 - t0 is the cost of
// posting, t2 - t0 the latency. Also measured: the rate when the threads post without waiting. For
// each sharing mode and number of threads.
//
//   get  of 8 bytes: their RDMA READ. With registered memory it passes the queues of Heddle's
//        worker and the kernel's copy; with allocated memory it is a load by the caller
//   am   a message, its t2 when the handler's answer is there. At the peer, a thread for each waits
//        for the questions
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "harness/core_time.hpp"
#include "harness/statistics.hpp"
#include "measure/messages.hpp"

namespace heddle::bench::measure {

// post(lane), end(lane) by so many threads of rank 0.
template <class Post, class End>
Run time_each(const Bench& bench, std::uint32_t threads, Owner owner, std::uint64_t n, const Post& post,
              const End& end) {
  struct alignas(harness::kApart) Times {
    harness::Spread post;
    harness::Spread total;
  };
  const harness::TickRate rate = harness::measure_ticks();
  const auto times = std::make_unique<Times[]>(threads);
  Run run;
  run.elapsed_ns = bench.together(threads, owner, [&](std::uint32_t lane) {
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t t0 = harness::stamp();
      const bool under_way = post(lane);
      const std::uint64_t t1 = harness::stamp();
      if (under_way) end(lane);
      const std::uint64_t t2 = harness::stamp();
      times[lane].post.add(t1 - t0);
      times[lane].total.add(t2 - t0);
    }
  });
  for (std::uint32_t i = 1; i < threads; ++i) {
    times[0].post.merge(times[i].post);
    times[0].total.merge(times[i].total);
  }
  run.values = harness::times_of(times[0].post, times[0].total, rate);
  run.verified = times[0].post.count() == n * threads;
  return run;
}

inline std::vector<Figure> overhead_figures(const Bench& bench, const std::string& op, std::uint32_t threads) {
  const auto figure = [&](const std::string& name, const char* metric) {
    return bench.figure({"overhead", name, metric, 8, 1, threads});
  };
  return {figure(op + "_post", "latency"), figure(op + "_post", "cycles"), figure(op, "latency")};
}

template <Library L>
void overhead_get(Bench& bench, L& library, std::uint32_t threads) {
  struct alignas(harness::kApart) Value {
    std::uint64_t value = 0;
  };
  std::vector<Value> values(threads);
  const auto post = [&](std::uint32_t lane) {
    return library.get(lane, 1, kDataAt + word_at(lane), &values[lane].value, 8);
  };
  const auto end = [&](std::uint32_t lane) { library.flush(lane, 1); };
  bench.at_origin(overhead_figures(bench, "get", threads), threads, bench.owner(),
                  [&](std::uint64_t n) { return time_each(bench, threads, bench.owner(), n, post, end); });
  stream(bench, library, {"overhead", "get", "rate", 8, static_cast<double>(threads), threads}, 0, post, bench.owner());
}

template <Active L>
void overhead_am(Bench& bench, L& library, std::uint32_t threads) {
  const Payloads payloads(bench, threads, 8);
  std::vector<std::uint64_t> due = arrived_so_far(library, threads);
  const auto post = [&](std::uint32_t lane) {
    library.message(lane, 1, payloads[lane], 8, true);
    return true;
  };
  const auto end = [&](std::uint32_t lane) { library.await(lane, ++due[lane]); };
  bench.session().measure(overhead_figures(bench, "am", threads), [&](std::uint64_t n) {
    Run run;
    if (bench.rank() == 0) {
      run = time_each(bench, threads, Owner::helps, n, post, end);
    } else {
      bench.together(threads, Owner::helps, [&](std::uint32_t lane) { library.await(lane, due[lane] += n); });
    }
    library.meet();
    return run;
  });
}

template <Library L>
void overhead(Bench& bench, L& library) {
  if (!bench.wants("overhead")) return;
  const Identity& it = bench.identity();
  const std::string& memory = bench.options().memory;
  for (const std::uint32_t threads : harness::threads_or(bench.options(), harness::kOverheadThreads)) {
    // A load by the caller itself, in any mode: one thread is enough.
    const bool tells = !it.is_variant || threads == 1 || memory == "allocated" || it.memory != "allocated";
    if (bench.wants("overhead", "get") && tells) overhead_get(bench, library, threads);
    if constexpr (Active<L>) {
      if (bench.wants("overhead", "am") && it.memory == "allocated") overhead_am(bench, library, threads);
    }
  }
}

// Communication beside computing: as for PIOMan, where the sender, the receiver or both compute
// before they wait; and as a stencil does it, where both exchange messages.

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
class OverlapExchange {
 public:
  OverlapExchange(Bench& bench, L& library, std::uint64_t bytes)
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
  harness::BenchSession& session = bench.session();
  for (const std::uint64_t bytes : bench.program_sizes({65536, 1U << 20})) {
    OverlapExchange<L> exchange(bench, library, bytes);
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
