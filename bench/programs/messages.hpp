// Programs of two-sided messages: OSU's latency, bw, bibw, mbw_mr, latency_mt, multirate's pairs of
// threads, and the ping-pongs of all threads at once of LCI's LCW.
#pragma once

#include <string>
#include <vector>

#include "programs/bench.hpp"

namespace heddle::bench::programs {

inline constexpr std::uint64_t kData = 1;
inline constexpr std::uint64_t kAnswer = 2;

// A thread's memory: as OSU's programs, all messages of a window leave from one buffer and arrive
// in one.
struct Ends {
  explicit Ends(const Bench& bench) : out(kMostBytes, bench.options()), in(kMostBytes, bench.options()) {}
  void prepare(std::uint64_t bytes, std::byte with) const {
    fill(out.data(), bytes, with);
    fill(in.data(), bytes, std::byte{0});
  }
  Buffer out;
  Buffer in;
  std::uint64_t answer = 0;
};
inline std::vector<Ends> ends_of_threads(const Bench& bench) {
  std::vector<Ends> all;
  for (std::uint32_t lane = 0; lane < kMostThreads; ++lane) all.emplace_back(bench);
  return all;
}

template <class Library>
void latency(Bench& bench, Library& library) {
  if (!bench.wants("latency")) return;
  Ends ends(bench);
  for (const std::uint64_t bytes : bench.sizes({8, 4096, 65536, 1U << 20})) {
    if (library.is_variant() && bytes > 8) break;
    bench.measure(
        library, bench.figure(library, "latency", "latency", bytes, 2), 1,
        [&](std::uint64_t run) { ends.prepare(bytes, pattern(bench.rank(), 0, run)); },
        [&](std::uint32_t lane, std::uint64_t n) {
          for (std::uint64_t i = 0; i < n; ++i) {
            if (bench.rank() == 0) library.send_now(lane, bench.peer(), kData, ends.out.data(), bytes);
            library.receive_now(lane, bench.peer(), kData, ends.in.data(), bytes);
            if (bench.rank() == 1) library.send_now(lane, bench.peer(), kData, ends.out.data(), bytes);
          }
        },
        [&](std::uint64_t run) { return is_filled(ends.in.data(), bytes, pattern(bench.peer(), 0, run)); });
  }
}

template <class Library>
void send_window(Library& library, std::uint32_t lane, std::uint32_t to, std::uint64_t tag, Ends& ends,
                 std::uint64_t bytes) {
  typename Library::Request requests[kWindow];
  for (auto& request : requests) library.send(lane, to, tag, ends.out.data(), bytes, request);
  library.wait_all(lane, requests, kWindow);
  library.receive_now(lane, to, tag + kAnswer, &ends.answer, 8);
}
template <class Library>
void receive_window(Library& library, std::uint32_t lane, std::uint32_t from, std::uint32_t answer_to,
                    std::uint64_t tag, Ends& ends, std::uint64_t bytes) {
  typename Library::Request requests[kWindow];
  for (auto& request : requests) library.receive(lane, from, tag, ends.in.data(), bytes, request);
  library.wait_all(lane, requests, kWindow);
  library.send_now(lane, answer_to, tag + kAnswer, &ends.answer, 8);
}

// Even ranks send windows to odd ones, each answered: bw of one pair by bytes, mbw_mr of one or
// several by messages.
template <class Library>
void one_way(Bench& bench, Library& library, const char* name, const char* metric,
             const std::vector<std::uint64_t>& sizes) {
  if (!bench.wants(name)) return;
  Ends ends(bench);
  const bool sends = bench.rank() % 2 == 0;
  for (const std::uint64_t bytes : sizes) {
    if (library.is_variant() && bytes > 8) break;
    const std::uint64_t messages = kWindow * bench.size() / 2;
    const bool rate = std::string(metric) == "rate";
    bench.measure(
        library,
        bench.by_windows(
            bench.figure(library, name, metric, bytes, static_cast<double>(rate ? messages : messages * bytes)),
            bench.size() / 2),
        1, [&](std::uint64_t run) { ends.prepare(bytes, pattern(bench.rank(), 0, run)); },
        [&](std::uint32_t lane, std::uint64_t n) {
          for (std::uint64_t i = 0; i < n; ++i) {
            if (sends) {
              send_window(library, lane, bench.peer(), kData, ends, bytes);
            } else {
              receive_window(library, lane, bench.peer(), bench.peer(), kData, ends, bytes);
            }
          }
        },
        [&](std::uint64_t run) { return sends || is_filled(ends.in.data(), bytes, pattern(bench.peer(), 0, run)); });
  }
}

// Both receive a window and send one; nobody answers, since each waits for the other's window.
template <class Library>
void both_ways(Bench& bench, Library& library) {
  if (!bench.wants("bibw") || library.is_variant()) return;
  Ends ends(bench);
  for (const std::uint64_t bytes : bench.sizes({8, 4096, 65536, 1U << 20})) {
    bench.measure(
        library,
        bench.by_windows(bench.figure(library, "bibw", "bandwidth", bytes, 2.0 * kWindow * static_cast<double>(bytes)),
                         2),
        1, [&](std::uint64_t run) { ends.prepare(bytes, pattern(bench.rank(), 0, run)); },
        [&](std::uint32_t lane, std::uint64_t n) {
          typename Library::Request in[kWindow];
          typename Library::Request out[kWindow];
          for (std::uint64_t i = 0; i < n; ++i) {
            for (auto& request : in) library.receive(lane, bench.peer(), kData, ends.in.data(), bytes, request);
            for (auto& request : out) library.send(lane, bench.peer(), kData, ends.out.data(), bytes, request);
            library.wait_all(lane, out, kWindow);
            library.wait_all(lane, in, kWindow);
          }
        },
        [&](std::uint64_t run) { return is_filled(ends.in.data(), bytes, pattern(bench.peer(), 0, run)); });
  }
}

// One thread of rank 0 sends, whichever of rank 1's threads has it answers; all by one queue.
template <class Library>
void latency_of_threads(Bench& bench, Library& library) {
  if (!bench.wants("latency_mt")) return;
  std::vector<Ends> ends = ends_of_threads(bench);
  constexpr std::uint64_t kBytes = 8;
  for (const std::uint32_t threads : bench.threads({2, 8})) {
    std::uint64_t rounds = 0;
    bench.measure(
        library, bench.figure(library, "latency_mt", "latency", kBytes, 2, threads), bench.rank() == 0 ? 1 : threads,
        [&](std::uint64_t run) {
          for (Ends& one : ends) one.prepare(kBytes, pattern(bench.rank(), 0, run));
        },
        [&](std::uint32_t lane, std::uint64_t n) {
          if (bench.rank() == 0) {
            for (std::uint64_t i = 0; i < n; ++i) {
              library.send_now(lane, 1, kData, ends[0].out.data(), kBytes);
              library.receive_now(lane, 1, kAnswer, ends[0].in.data(), kBytes);
            }
            rounds = n;
            return;
          }
          if (lane == 0) rounds = n;
          const std::uint64_t mine = n / threads + (lane < n % threads ? 1 : 0);
          for (std::uint64_t i = 0; i < mine; ++i) {
            library.receive_now(lane, 0, kData, ends[lane].in.data(), kBytes);
            library.send_now(lane, 0, kAnswer, ends[lane].out.data(), kBytes);
          }
        },
        [&](std::uint64_t run) {
          const std::uint64_t used = bench.rank() == 0 ? 1 : std::min<std::uint64_t>(threads, rounds);
          return std::all_of(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(used), [&](const Ends& one) {
            return is_filled(one.in.data(), kBytes, pattern(bench.peer(), 0, run));
          });
        });
  }
}

// Each thread sends windows to the thread of its number; `from` may be kAny.
template <class Library>
void pairs(Bench& bench, Library& library, const char* op, bool any_source) {
  if (!bench.wants("pairs")) return;
  std::vector<Ends> ends = ends_of_threads(bench);
  constexpr std::uint64_t kBytes = 8;
  for (const std::uint32_t threads : bench.threads({1, 2, 4, 8})) {
    bench.measure(
        library,
        bench.by_windows(bench.figure(library, op, "rate", kBytes, static_cast<double>(kWindow * threads), threads),
                         threads),
        threads,
        [&](std::uint64_t run) {
          for (std::uint32_t i = 0; i < threads; ++i) ends[i].prepare(kBytes, pattern(bench.rank(), i, run));
        },
        [&](std::uint32_t lane, std::uint64_t n) {
          const std::uint64_t tag = 16 + 4 * std::uint64_t{lane};
          const std::uint32_t from = any_source ? kAny : bench.peer();
          for (std::uint64_t i = 0; i < n; ++i) {
            if (bench.rank() == 0) {
              send_window(library, lane, bench.peer(), tag, ends[lane], kBytes);
            } else {
              receive_window(library, lane, from, bench.peer(), tag, ends[lane], kBytes);
            }
          }
        },
        [&](std::uint64_t run) {
          for (std::uint32_t i = 0; bench.rank() == 1 && i < threads; ++i) {
            if (!is_filled(ends[i].in.data(), kBytes, pattern(bench.peer(), i, run))) return false;
          }
          return true;
        });
  }
}

// Each thread and the thread of its number send one message there and back, all of them at once.
// The time of a message, as a thread sees it; and what all threads together send.
template <class Library>
void pingpongs(Bench& bench, Library& library, const char* op) {
  if (!bench.wants("pingpong_mt")) return;
  std::vector<Ends> ends = ends_of_threads(bench);
  constexpr std::uint64_t kBytes = 8;
  for (const std::uint32_t threads : bench.threads({1, 2, 4, 8})) {
    const Figure figures[] = {bench.figure(library, op, "latency", kBytes, 2, threads),
                              bench.figure(library, op, "rate", kBytes, 2.0 * threads, threads)};
    bench.measure(
        library, figures, threads,
        [&](std::uint64_t run) {
          for (std::uint32_t i = 0; i < threads; ++i) ends[i].prepare(kBytes, pattern(bench.rank(), i, run));
        },
        [&](std::uint32_t lane, std::uint64_t n) {
          const std::uint64_t tag = 16 + 4 * std::uint64_t{lane};
          const Ends& mine = ends[lane];
          for (std::uint64_t i = 0; i < n; ++i) {
            if (bench.rank() == 0) library.send_now(lane, bench.peer(), tag, mine.out.data(), kBytes);
            library.receive_now(lane, bench.peer(), bench.rank() == 0 ? tag + kAnswer : tag, mine.in.data(), kBytes);
            if (bench.rank() == 1) library.send_now(lane, bench.peer(), tag + kAnswer, mine.out.data(), kBytes);
          }
        },
        [&](std::uint64_t run) {
          for (std::uint32_t i = 0; i < threads; ++i) {
            if (!is_filled(ends[i].in.data(), kBytes, pattern(bench.peer(), i, run))) return false;
          }
          return true;
        });
  }
}

}  // namespace heddle::bench::programs
