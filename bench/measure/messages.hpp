// Two-sided messages: there and back, as many as go, OSU's latency, bw, bibw, mbw_mr, latency_mt,
// multirate's pairs of threads, and the ping-pongs of all threads at once of LCI's LCW.
#pragma once

#include <string>
#include <vector>

#include "measure/one_sided.hpp"

namespace heddle::bench::measure {

inline constexpr std::uint64_t kData = 1;
inline constexpr std::uint64_t kAnswer = 2;

// A thread's memory: as OSU's programs, all messages of a window leave from one buffer and arrive
// in one.
struct Ends {
  Ends(const Bench& bench, std::uint64_t bytes) : out(bytes, bench.options()), in(bytes, bench.options()) {}
  void prepare(std::uint64_t bytes, std::byte with) const {
    fill(out.data(), bytes, with);
    fill(in.data(), bytes, std::byte{0});
  }
  Buffer out;
  Buffer in;
  std::uint64_t answer = 0;
};

// The memory of all threads, with messages of so many bytes, and operations on all of it.
class AllEnds {
 public:
  AllEnds(Bench& bench, std::uint32_t threads, std::uint64_t bytes = 8) : bench_(bench), bytes_(bytes) {
    for (std::uint32_t lane = 0; lane < threads; ++lane) ends_.emplace_back(bench, bytes);
  }
  Ends& operator[](std::uint32_t lane) { return ends_[lane]; }
  void prepare(std::uint64_t run) const {
    for (std::uint32_t i = 0; i < ends_.size(); ++i) ends_[i].prepare(bytes_, pattern(bench_.rank(), i, run));
  }
  [[nodiscard]] bool right(std::uint64_t run) const {
    return of_all(static_cast<std::uint32_t>(ends_.size()), [&](std::uint32_t lane) {
      return is_filled(ends_[lane].in.data(), bytes_, pattern(bench_.peer(), lane, run));
    });
  }

 private:
  Bench& bench_;
  std::uint64_t bytes_;
  std::vector<Ends> ends_;
};

// Each thread and the thread of its number send one message there and back, all of them at once.
template <Messages L>
void ping_pongs(Bench& bench, L& library, std::span<const Figure> figures, std::uint32_t threads) {
  const std::uint64_t bytes = figures[0].key.size_bytes;
  AllEnds ends(bench, threads, bytes);
  bench.measure(figures, threads,
                {[&](std::uint64_t run) { ends.prepare(run); },
                 [&, bytes](std::uint32_t lane, std::uint64_t n) {
                   const std::uint64_t tag = 16 + 4 * std::uint64_t{lane};
                   const Ends& mine = ends[lane];
                   const std::uint32_t peer = bench.peer();
                   const bool first = bench.rank() == 0;
                   for (std::uint64_t i = 0; i < n; ++i) {
                     if (first) library.send_now(lane, peer, tag, mine.out.data(), bytes);
                     library.receive_now(lane, peer, first ? tag + kAnswer : tag, mine.in.data(), bytes);
                     if (!first) library.send_now(lane, peer, tag + kAnswer, mine.out.data(), bytes);
                   }
                 },
                 [&](std::uint64_t run) { return ends.right(run); }});
}

template <Messages L>
void ping_pong(Bench& bench, L& library, const Task& task) {
  const Figure one = bench.figure(task);
  ping_pongs(bench, library, std::span(&one, 1), 1);
}

template <Messages L>
void send_window(L& library, std::uint32_t lane, std::uint32_t to, std::uint64_t tag, const Ends& ends,
                 std::uint64_t bytes) {
  typename L::Request requests[kWindow];
  const std::uint64_t count = window_of(bytes);
  for (std::uint64_t i = 0; i < count; ++i) library.send(lane, to, tag, ends.out.data(), bytes, requests[i]);
  library.wait_all(lane, requests, count);
}
template <Messages L>
void receive_window(L& library, std::uint32_t lane, std::uint32_t from, std::uint64_t tag, const Ends& ends,
                    std::uint64_t bytes) {
  typename L::Request requests[kWindow];
  const std::uint64_t count = window_of(bytes);
  for (std::uint64_t i = 0; i < count; ++i) library.receive(lane, from, tag, ends.in.data(), bytes, requests[i]);
  library.wait_all(lane, requests, count);
}

// Threads of even ranks send windows to those of odd ones. Each window is answered, or all
// together.
struct Windows {
  std::uint32_t threads = 1;
  bool each_answered = true;
  bool any_source = false;
};
template <Messages L>
void send_windows(Bench& bench, L& library, std::span<const Figure> figures, const Windows& how) {
  const std::uint64_t bytes = figures[0].key.size_bytes;
  AllEnds ends(bench, how.threads, bytes);
  const bool sends = bench.rank() % 2 == 0;
  const auto answer = [&](std::uint32_t lane, std::uint64_t tag) {
    if (sends) {
      library.receive_now(lane, bench.peer(), tag + kAnswer, &ends[lane].answer, 8);
    } else {
      library.send_now(lane, bench.peer(), tag + kAnswer, &ends[lane].answer, 8);
    }
  };
  bench.measure(figures, how.threads,
                {[&](std::uint64_t run) { ends.prepare(run); },
                 [&](std::uint32_t lane, std::uint64_t n) {
                   const std::uint64_t tag = 16 + 4 * std::uint64_t{lane};
                   const std::uint32_t from = how.any_source ? kAny : bench.peer();
                   for (std::uint64_t i = 0; i < n; ++i) {
                     if (sends) {
                       send_window(library, lane, bench.peer(), tag, ends[lane], bytes);
                     } else {
                       receive_window(library, lane, from, tag, ends[lane], bytes);
                     }
                     if (how.each_answered) answer(lane, tag);
                   }
                   if (!how.each_answered) answer(lane, tag);
                 },
                 [&](std::uint64_t run) { return sends || ends.right(run); }});
}

// bw of one pair by bytes, mbw_mr of one or several by messages.
template <Messages L>
void one_way(Bench& bench, L& library, const char* name, const char* metric, const std::vector<std::uint64_t>& sizes) {
  if (!bench.wants_program(name)) return;
  for (const std::uint64_t bytes : sizes) {
    const std::uint64_t messages = window_of(bytes) * bench.size() / 2;
    const bool rate = std::string(metric) == "rate";
    const Task task = bench.program(name, metric, bytes, static_cast<double>(rate ? messages : messages * bytes));
    send_windows(bench, library, bench.by_windows(task, bench.size() / 2), {1, true, false});
  }
}

// Both receive a window and send one; nobody answers, since each waits for the other's window.
template <Messages L>
void both_ways(Bench& bench, L& library) {
  if (!bench.wants_program("bibw") || bench.identity().is_variant) return;
  for (const std::uint64_t bytes : bench.program_sizes({8, 4096, 65536, 1U << 20}, kMostMessageBytes)) {
    AllEnds ends(bench, 1, bytes);
    const std::uint64_t count = window_of(bytes);
    bench.measure(
        bench.by_windows(bench.program("bibw", "bandwidth", bytes, static_cast<double>(2 * count * bytes)), 2), 1,
        {[&](std::uint64_t run) { ends.prepare(run); },
         [&, count](std::uint32_t lane, std::uint64_t n) {
           typename L::Request in[kWindow];
           typename L::Request out[kWindow];
           for (std::uint64_t i = 0; i < n; ++i) {
             for (std::uint64_t k = 0; k < count; ++k)
               library.receive(lane, bench.peer(), kData, ends[0].in.data(), bytes, in[k]);
             for (std::uint64_t k = 0; k < count; ++k)
               library.send(lane, bench.peer(), kData, ends[0].out.data(), bytes, out[k]);
             library.wait_all(lane, out, count);
             library.wait_all(lane, in, count);
           }
         },
         [&](std::uint64_t run) { return ends.right(run); }});
  }
}

// One thread of rank 0 sends, whichever of rank 1's threads has it answers; all by one queue.
template <Messages L>
void latency_of_threads(Bench& bench, L& library) {
  if (!bench.wants_program("latency_mt")) return;
  constexpr std::uint64_t kBytes = 8;
  const bool asks = bench.rank() == 0;
  for (const std::uint32_t threads : bench.program_threads({2, 8})) {
    AllEnds ends(bench, threads, kBytes);
    std::uint64_t rounds = 0;
    const Figure one = bench.figure(bench.program("latency_mt", "latency", kBytes, 2, threads));
    bench.measure(std::span(&one, 1), asks ? 1 : threads,
                  {[&](std::uint64_t run) {
                     // Any thread may answer.
                     for (std::uint32_t i = 0; i < threads; ++i) ends[i].prepare(kBytes, pattern(bench.rank(), 0, run));
                   },
                   [&](std::uint32_t lane, std::uint64_t n) {
                     if (lane == 0) rounds = n;
                     const std::uint64_t mine = asks ? n : n / threads + (lane < n % threads ? 1 : 0);
                     for (std::uint64_t i = 0; i < mine; ++i) {
                       if (asks) library.send_now(lane, 1, kData, ends[0].out.data(), kBytes);
                       library.receive_now(lane, bench.peer(), asks ? kAnswer : kData, ends[lane].in.data(), kBytes);
                       if (!asks) library.send_now(lane, 0, kAnswer, ends[lane].out.data(), kBytes);
                     }
                   },
                   [&](std::uint64_t run) {
                     const auto used = asks ? 1 : static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, rounds));
                     return of_all(used, [&](std::uint32_t lane) {
                       return is_filled(ends[lane].in.data(), kBytes, pattern(bench.peer(), 0, run));
                     });
                   }});
  }
}

// Each thread sends windows to the thread of its number.
template <Messages L>
void pairs(Bench& bench, L& library, const char* op, bool any_source) {
  if (!bench.wants_program("pairs")) return;
  for (const std::uint32_t threads : bench.program_threads({1, 2, 4, 8})) {
    const Task task = bench.program(op, "rate", 8, static_cast<double>(kWindow * threads), threads);
    send_windows(bench, library, bench.by_windows(task, threads), {threads, true, any_source});
  }
}

// The time of a message, as a thread sees it; and what all threads together send.
template <Messages L>
void ping_pongs_of_threads(Bench& bench, L& library, const char* op) {
  if (!bench.wants_program("pingpong_mt")) return;
  for (const std::uint32_t threads : bench.program_threads({1, 2, 4, 8})) {
    const Figure figures[] = {bench.figure(bench.program(op, "latency", 8, 2, threads)),
                              bench.figure(bench.program(op, "rate", 8, 2.0 * threads, threads))};
    ping_pongs(bench, library, figures, threads);
  }
}

// ---- active messages ----------------------------------------------------------------------------

// The contents of each thread's messages: its number comes first.
class Payloads {
 public:
  Payloads(const Bench& bench, std::uint32_t threads, std::uint64_t bytes) {
    for (std::uint64_t lane = 0; lane < threads; ++lane) {
      buffers_.emplace_back(std::max<std::uint64_t>(bytes, sizeof lane), bench.options());
      std::memcpy(buffers_.back().data(), &lane, sizeof lane);
    }
  }
  [[nodiscard]] const std::byte* operator[](std::uint32_t lane) const { return buffers_[lane].data(); }

 private:
  std::vector<Buffer> buffers_;
};

// The number of arrivals for each lane when all messages so far have arrived. Both processes begin
// together.
template <Active L>
std::vector<std::uint64_t> arrived_so_far(L& library, std::uint32_t threads) {
  std::vector<std::uint64_t> due(threads);
  for (std::uint32_t lane = 0; lane < threads; ++lane) due[lane] = library.arrived(lane);
  library.meet();
  return due;
}

// A message, and its handler's.
template <Active L>
void active_ping_pong(Bench& bench, L& library, Task task) {
  task.per_iteration = 2;
  const Payloads payloads(bench, 1, task.bytes);
  std::uint64_t due = arrived_so_far(library, 1)[0];
  bench.measure(task, {{},
                       [&](std::uint32_t lane, std::uint64_t n) {
                         if (bench.rank() != 0) return library.await(lane, due += n);
                         for (std::uint64_t i = 0; i < n; ++i) {
                           library.message(lane, 1, payloads[lane], task.bytes, true);
                           for (++due; library.arrived(lane) < due;) library.progress(lane);
                         }
                       },
                       [&](std::uint64_t) { return library.arrived(0) == due; }});
}

// Threads of rank 0 send bursts, each answered when all of it is there; at most two are not
// answered. 0: all is one burst.
template <Active L>
void active_rate(Bench& bench, L& library, Task task, std::uint64_t burst) {
  task.per_iteration = static_cast<double>(task.threads) * static_cast<double>(std::max<std::uint64_t>(burst, 1));
  const Payloads payloads(bench, task.threads, task.bytes);
  std::vector<std::uint64_t> due = arrived_so_far(library, task.threads);
  bench.measure(task, {{},
                       [&](std::uint32_t lane, std::uint64_t n) {
                         const std::uint64_t bursts = burst == 0 ? 1 : n;
                         const std::uint64_t each = burst == 0 ? n : burst;
                         const std::byte* data = payloads[lane];
                         const std::uint64_t bytes = task.bytes;
                         for (std::uint64_t i = 0; i < bursts; ++i) {
                           if (bench.rank() == 0) {
                             if (i >= 2) library.await(lane, due[lane] + i - 1);
                             for (std::uint64_t j = 0; j < each; ++j) library.message(lane, 1, data, bytes, false);
                           } else {
                             library.await(lane, due[lane] += each);
                             library.message(lane, 0, data, 8, false);
                           }
                         }
                         if (bench.rank() == 0) library.await(lane, due[lane] += bursts);
                         library.flush(lane, bench.peer());
                       },
                       {}});
}

// ---- the benches pingpong and rate --------------------------------------------------------------

template <class L>
void message_latency(Bench& bench, L& library) {
  for (const std::uint64_t size : bench.sizes("pingpong", kLatencySizes)) {
    if constexpr (Active<L>) {
      if (bench.wants("pingpong", "am")) active_ping_pong(bench, library, {"pingpong", "am", "latency", size});
    }
    if constexpr (Messages<L>) {
      if (bench.wants("pingpong", "tagged")) ping_pong(bench, library, {"pingpong", "tagged", "latency", size, 2});
    }
  }
}

// `bench` is "rate", or another that measures the same, with something behind the operations'
// names.
template <class L>
void message_rate(Bench& bench, L& library, const Task& like) {
  for (const std::uint64_t size : bench.sizes(
           like.bench.c_str(),
           like.bytes == 0 ? std::vector<std::uint64_t>{8, 64, 512} : std::vector<std::uint64_t>{like.bytes}, 4096)) {
    Task task = like;
    task.bytes = size;
    if constexpr (Active<L>) {
      task.op = "am" + like.op;
      if (bench.wants(like.bench.c_str(), task.op.c_str())) active_rate(bench, library, task, 0);
    }
    if constexpr (Messages<L>) {
      task.op = "tagged" + like.op;
      if (!bench.wants(like.bench.c_str(), task.op.c_str())) continue;
      task.per_iteration = static_cast<double>(kWindow * task.threads);
      const Figure one = bench.figure(task);
      send_windows(bench, library, std::span(&one, 1), {task.threads, false, false});
    }
  }
}

}  // namespace heddle::bench::measure
