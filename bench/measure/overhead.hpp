// As for LLCL: each thread posts an operation, waits for it, and so on. t1 - t0 is the cost of
// posting, t2 - t0 the latency. Also measured: the rate when the threads post without waiting. For
// each sharing mode and number of threads.
//
//   get  of 8 bytes: their RDMA READ. With registered memory it passes the queues of Heddle's
//        worker and the kernel's copy; with allocated memory it is a load by the caller
//   am   a message, its t2 when the handler's answer is there. At the peer, a thread for each waits
//        for the questions
#pragma once

#include <memory>
#include <vector>

#include "harness/spread.hpp"
#include "harness/stamp.hpp"
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

}  // namespace heddle::bench::measure
