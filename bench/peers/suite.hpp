// The measurements of the peers: the same loops, sizes and names as bench/work has for Heddle, over
// any library that can put, get and so on. A template, so that a library's calls are compiled
// straight into the loops.
//
// A Library has: transport() and sharing() for the records, workers(threads), own() (the start of
// its region of kSuiteBytes + …), and the operations used below; offsets are from the start of a
// region, `thread` picks the worker.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "harness/crowd.hpp"
#include "harness/duplex.hpp"
#include "harness/gups.hpp"
#include "harness/overlap.hpp"
#include "harness/session.hpp"
#include "harness/spread.hpp"
#include "harness/stamp.hpp"

namespace heddle::bench::peers {

using harness::Run;
using harness::Session;

inline constexpr std::uint64_t kWordsBytes = 65536;  // word slots, then data, then the table
inline constexpr std::uint64_t kSlotBytes = 256;
inline constexpr std::uint64_t kDataBytes = std::uint64_t{1} << 20;

enum class Atomic { fetch_add, swap, compare_swap, add, bit_xor, bit_and, bit_or };

inline std::uint64_t slot_offset(std::uint32_t i) {
  return i * kSlotBytes;
}

template <class Library>
harness::Figure figure(Library& library, const char* bench, const char* op, const char* metric, std::uint64_t size,
                       double per_iteration, std::uint32_t threads = 1) {
  harness::Figure out;
  out.key.bench = bench;
  out.key.op = op;
  out.key.transport = library.transport();
  out.key.sharing = library.sharing();
  out.key.metric = metric;
  out.key.threads = threads;
  out.key.workers = library.workers(threads);
  out.key.size_bytes = size;
  out.per_iteration = per_iteration;
  return out;
}

inline double since(std::uint64_t begin) {
  return static_cast<double>(harness::now_ns() - begin);
}

// Sizes of the command line, as far as the region has room for them.
inline std::vector<std::uint64_t> sizes(const Session& session, std::vector<std::uint64_t> standard) {
  auto out = harness::sizes_or(session.options(), std::move(standard));
  std::erase_if(out, [](std::uint64_t size) { return size > kDataBytes; });
  return out;
}

// ---- latency ------------------------------------------------------------------------------------

template <class Library>
void put_ping_pong(Session& session, Library& library, std::uint64_t size) {
  auto& word = *reinterpret_cast<std::atomic<std::uint64_t>*>(library.own());
  session.channel().barrier();
  word.store(0);
  session.channel().barrier();
  std::vector<std::byte> source(size);
  std::uint64_t turn = 0;
  const auto send = [&] {
    if (size > 8) {
      library.put(0, 1 - session.rank(), kWordsBytes, source.data(), size);
      library.fence(0);
    }
    library.put(0, 1 - session.rank(), slot_offset(0), &turn, 8);
    library.push(0);
  };
  session.measure(figure(library, "pingpong", "put", "latency", size, 2), [&](std::uint64_t n) {
    const std::uint64_t begin = harness::now_ns();
    for (std::uint64_t i = 0; i < n; ++i) {
      ++turn;
      if (session.rank() == 0) send();
      harness::spin_until([&] { return word.load(std::memory_order_acquire) == turn; });
      if (session.rank() == 1) send();
    }
    const double elapsed = since(begin);
    library.quiet(0);
    return Run{elapsed};
  });
}

// Rank 0 works, the other sleeps. `threads` threads do `work(thread, n)` each.
template <class Library, class Work>
void at_origin(Session& session, const harness::Figure& what, Library&, Work&& work) {
  const auto pin = [&](std::uint32_t thread) { session.cores().pin_alone(session.rank(), thread); };
  session.measure(what, [&](std::uint64_t n) {
    double elapsed = 0;
    if (session.rank() == 0) {
      elapsed = harness::run_threads(what.key.threads, pin, [&](std::uint32_t thread) { work(thread, n); });
    }
    session.channel().barrier();
    return Run{elapsed};
  });
}

template <class Library>
void one_sided_latency(Session& session, Library& library) {
  std::vector<std::byte> local(kDataBytes);
  for (const std::uint64_t size : sizes(session, {8, 64, 512, 4096, 65536, 1U << 20})) {
    if (session.wants("pingpong", "put")) put_ping_pong(session, library, size);
    if (session.wants("pingpong", "put_flush")) {
      at_origin(session, figure(library, "pingpong", "put_flush", "latency", size, 1), library,
                [&](std::uint32_t thread, std::uint64_t n) {
                  for (std::uint64_t i = 0; i < n; ++i) {
                    library.put(thread, 1, kWordsBytes, local.data(), size);
                    library.flush(thread, 1);
                  }
                });
    }
    if (session.wants("pingpong", "get")) {
      at_origin(session, figure(library, "pingpong", "get", "latency", size, 1), library,
                [&](std::uint32_t thread, std::uint64_t n) {
                  for (std::uint64_t i = 0; i < n; ++i) {
                    library.get(thread, 1, kWordsBytes, local.data(), size);
                    library.flush(thread, 1);
                  }
                });
    }
  }
  if (session.wants("pingpong", "fadd")) {
    at_origin(session, figure(library, "pingpong", "fadd", "latency", 8, 1), library,
              [&](std::uint32_t thread, std::uint64_t n) {
                std::uint64_t old = 0;
                for (std::uint64_t i = 0; i < n; ++i) {
                  library.template atomic<Atomic::fetch_add>(thread, 1, kWordsBytes, 1, &old);
                  library.flush(thread, 1);
                }
              });
  }
}

// ---- rate and bandwidth -------------------------------------------------------------------------

template <class Library>
void one_sided_rate(Session& session, Library& library, std::uint32_t threads) {
  if (session.wants("rate", "put")) {
    at_origin(session, figure(library, "rate", "put", "rate", 8, threads, threads), library,
              [&](std::uint32_t thread, std::uint64_t n) {
                const std::uint64_t value = thread;
                for (std::uint64_t i = 0; i < n; ++i) library.put(thread, 1, slot_offset(thread), &value, 8);
                library.flush(thread, 1);
              });
  }
  if (session.wants("rate", "get")) {
    at_origin(session, figure(library, "rate", "get", "rate", 8, threads, threads), library,
              [&](std::uint32_t thread, std::uint64_t n) {
                std::uint64_t value = 0;
                for (std::uint64_t i = 0; i < n; ++i) library.get(thread, 1, slot_offset(thread), &value, 8);
                library.flush(thread, 1);
              });
  }
  if (session.wants("rate", "fadd")) {
    at_origin(session, figure(library, "rate", "fadd", "rate", 8, threads, threads), library,
              [&](std::uint32_t thread, std::uint64_t n) {
                std::uint64_t old = 0;
                for (std::uint64_t i = 0; i < n; ++i) {
                  library.template atomic<Atomic::fetch_add>(thread, 1, slot_offset(thread), 1, &old);
                }
                library.flush(thread, 1);
              });
  }
}

template <class Library>
void bandwidth(Session& session, Library& library) {
  if (!session.wants("bandwidth")) return;
  std::vector<std::byte> local(kDataBytes);
  for (const std::uint64_t size : sizes(session, {4096, 65536, 1U << 20})) {
    const auto bytes = static_cast<double>(size);
    if (session.wants("bandwidth", "put")) {
      at_origin(session, figure(library, "bandwidth", "put", "bandwidth", size, bytes), library,
                [&](std::uint32_t thread, std::uint64_t n) {
                  for (std::uint64_t i = 0; i < n; ++i) library.put(thread, 1, kWordsBytes, local.data(), size);
                  library.flush(thread, 1);
                });
    }
    if (session.wants("bandwidth", "get")) {
      at_origin(session, figure(library, "bandwidth", "get", "bandwidth", size, bytes), library,
                [&](std::uint32_t thread, std::uint64_t n) {
                  for (std::uint64_t i = 0; i < n; ++i) library.get(thread, 1, kWordsBytes, local.data(), size);
                  library.flush(thread, 1);
                });
    }
  }
}

// Posting and waiting for one operation after the other, as bench/work/overhead.cpp does.
template <class Library>
void overhead(Session& session, Library& library) {
  if (!session.wants("overhead", "get")) return;
  for (const std::uint32_t threads : harness::threads_or(session.options(), harness::kOverheadThreads)) {
    const harness::Figure figures[] = {figure(library, "overhead", "get_post", "latency", 8, 1, threads),
                                       figure(library, "overhead", "get_post", "cycles", 8, 1, threads),
                                       figure(library, "overhead", "get", "latency", 8, 1, threads)};
    const auto pin = [&](std::uint32_t thread) { session.cores().pin_alone(session.rank(), thread); };
    session.measure(figures, [&](std::uint64_t n) {
      Run run;
      if (session.rank() == 0) {
        const harness::TickRate rate = harness::measure_ticks();
        std::vector<harness::Spread> post(threads);
        std::vector<harness::Spread> total(threads);
        run.elapsed_ns = harness::run_threads(threads, pin, [&](std::uint32_t thread) {
          std::uint64_t value = 0;
          for (std::uint64_t i = 0; i < n; ++i) {
            const std::uint64_t t0 = harness::stamp();
            library.get(thread, 1, slot_offset(thread), &value, 8);
            const std::uint64_t t1 = harness::stamp();
            library.flush(thread, 1);
            const std::uint64_t t2 = harness::stamp();
            post[thread].add(t1 - t0);
            total[thread].add(t2 - t0);
          }
        });
        for (std::uint32_t i = 1; i < threads; ++i) {
          post[0].merge(post[i]);
          total[0].merge(total[i]);
        }
        run.values = harness::times_of(post[0], total[0], rate);
      }
      session.channel().barrier();
      return run;
    });
  }
}

// ---- atomics ------------------------------------------------------------------------------------

template <Atomic kOp, class Library>
void one_atomic(Session& session, Library& library, const char* name) {
  if (!session.wants("atomics", name)) return;
  for (const bool latency : {true, false}) {
    at_origin(session, figure(library, "atomics", name, latency ? "latency" : "rate", 8, 1), library,
              [&](std::uint32_t thread, std::uint64_t n) {
                std::uint64_t old = 0;
                for (std::uint64_t i = 0; i < n; ++i) {
                  library.template atomic<kOp>(thread, 1, slot_offset(0), 1, &old);
                  if (latency) library.flush(thread, 1);
                }
                library.flush(thread, 1);
              });
  }
}

// ---- random updates -----------------------------------------------------------------------------

template <class Library>
double update_all(Session& session, Library& library, std::uint32_t threads, std::uint64_t words, std::uint64_t n,
                  bool atomic) {
  const auto pin = [&](std::uint32_t thread) { session.cores().pin_sharing(session.rank(), thread); };
  const double elapsed = harness::run_threads(threads, pin, [&](std::uint32_t thread) {
    harness::GupsStream stream(session.rank(), thread, words);
    for (std::uint64_t i = 0; i < n; ++i) {
      const harness::GupsUpdate update = stream.next();
      const std::uint64_t at = kWordsBytes + kDataBytes + update.index * 8;
      if (atomic) {
        library.template atomic<Atomic::bit_xor>(thread, update.owner, at, update.value, nullptr);
        continue;
      }
      std::uint64_t value = 0;
      library.get(thread, update.owner, at, &value, 8);
      library.flush(thread, update.owner);
      value ^= update.value;
      library.put(thread, update.owner, at, &value, 8);
      library.flush(thread, update.owner);
    }
    library.quiet(thread);
  });
  harness::Channel& channel = session.channel();
  channel.flag(2 + session.rank()).store(static_cast<std::uint64_t>(elapsed), std::memory_order_relaxed);
  // A library that needs its target's progress gets it.
  channel.barrier_while([&] { library.progress(0); });
  // Both must be through: the slower one's time.
  return std::max(elapsed, static_cast<double>(channel.flag(3 - session.rank()).load(std::memory_order_relaxed)));
}

template <class Library>
void gups(Session& session, Library& library, std::uint32_t threads, std::uint64_t words) {
  auto* table = reinterpret_cast<std::uint64_t*>(library.own() + kWordsBytes + kDataBytes);
  harness::Channel& channel = session.channel();
  for (const bool atomic : {false, true}) {
    const std::uint64_t check = session.options().quick ? 20'000 : 500'000;
    harness::gups_fill(table, words);
    channel.barrier();
    update_all(session, library, threads, words, check, atomic);
    update_all(session, library, threads, words, check, true);
    channel.flag(session.rank()).store(harness::gups_count_wrong(table, words));
    channel.barrier();
    const std::uint64_t wrong = channel.flag(0).load() + channel.flag(1).load();
    channel.barrier();
    const double bound = atomic ? 0 : harness::kGupsRacyBound * 2 * threads * static_cast<double>(check);
    const bool right = static_cast<double>(wrong) <= bound;
    const auto what = figure(library, "gups", atomic ? "atomic" : "get_put", "rate", 8, 2.0 * threads, threads);
    session.measure(
        what, [&](std::uint64_t n) { return Run{update_all(session, library, threads, words, n, atomic), right}; });
  }
}

// ---- messages -----------------------------------------------------------------------------------
// Kind has: name(); void send(thread, size), void receive(thread, size): one message, there when it
// returns; stream_send(thread, n, size), stream_receive(thread, n, size): many, the sender
// returning when all have been received.

template <class Library, class Kind>
void message_latency(Session& session, Library& library, Kind& kind) {
  if (!session.wants("pingpong", kind.name())) return;
  for (const std::uint64_t size : sizes(session, {8, 64, 512, 4096, 65536, 1U << 20})) {
    session.measure(figure(library, "pingpong", kind.name(), "latency", size, 2), [&](std::uint64_t n) {
      const std::uint64_t begin = harness::now_ns();
      for (std::uint64_t i = 0; i < n; ++i) {
        if (session.rank() == 0) kind.send(0, size);
        kind.receive(0, size);
        if (session.rank() == 1) kind.send(0, size);
      }
      const double elapsed = since(begin);
      library.quiet(0);
      session.channel().barrier_while([&] { library.progress(0); });
      return Run{elapsed};
    });
  }
}

template <class Library, class Kind>
void message_rate(Session& session, Library& library, Kind& kind, std::uint32_t threads) {
  if (!session.wants("rate", kind.name())) return;
  const auto pin = [&](std::uint32_t thread) { session.cores().pin_sharing(session.rank(), thread); };
  const auto what = figure(library, "rate", kind.name(), "rate", 8, threads, threads);
  session.measure(what, [&](std::uint64_t n) {
    const double elapsed = harness::run_threads(threads, pin, [&](std::uint32_t thread) {
      if (session.rank() == 0) {
        kind.stream_send(thread, n, 8);
      } else {
        kind.stream_receive(thread, n, 8);
      }
    });
    return Run{elapsed};
  });
}

// ---- both directions at once --------------------------------------------------------------------

// As bench/work/duplex.cpp: by threads, and where the library's ranks are more than two by as many
// processes.
template <class Library>
void duplex(Session* session, const harness::Options& options, harness::Crowd& crowd, Library& library) {
  if (!harness::wants_bench(options, "duplex")) return;
  const std::uint64_t stretch = harness::duplex_stretch(options);
  const auto counts =
      crowd.size() > 2 ? std::vector<std::uint32_t>{1} : harness::threads_or(options, harness::kDuplexThreads);
  std::vector<std::byte> local(stretch * *std::max_element(counts.begin(), counts.end()));
  const harness::Cores cores = harness::Cores::parse(options.cores);
  const std::uint32_t peer = crowd.rank() ^ 1U;
  const auto mine = [&](std::uint32_t thread) { return local.data() + thread * stretch; };
  const auto region = [&](std::uint32_t thread) { return library.own() + kWordsBytes + thread * stretch; };
  const auto one = [&](bool put, std::uint64_t size, std::uint32_t threads) {
    harness::Figure what = figure(library, "duplex", put ? "put" : "get", "bandwidth", size,
                                  static_cast<double>(size) * threads * crowd.size(), threads);
    what.key.processes = crowd.size();
    const auto prepare = [&] {
      for (std::uint32_t thread = 0; thread < threads; ++thread) {
        harness::duplex_fill(put ? mine(thread) : region(thread), size, harness::duplex_pattern(crowd.rank(), thread));
        harness::duplex_fill(put ? region(thread) : mine(thread), size, 0);
      }
    };
    const auto run = [&](std::uint64_t n) {
      const auto pin = [&](std::uint32_t thread) { cores.pin_sharing(crowd.rank() % 2, crowd.rank() / 2 + thread); };
      return harness::run_threads_between(threads, pin, [&](std::uint32_t thread) {
        const std::uint64_t there = kWordsBytes + thread * stretch;
        for (std::uint64_t i = 0; i < n; ++i) {
          if (put) {
            library.put(thread, peer, there, mine(thread), size);
          } else {
            library.get(thread, peer, there, mine(thread), size);
          }
        }
        library.flush(thread, peer);
      });
    };
    const auto right = [&] {
      bool all = true;
      for (std::uint32_t thread = 0; thread < threads; ++thread) {
        const auto pattern = harness::duplex_pattern(peer, thread);
        all = harness::duplex_is(put ? region(thread) : mine(thread), size, pattern) && all;
      }
      return all;
    };
    crowd.measure(session, what, {prepare, run, right});
  };
  for (const bool put : {true, false}) {
    if (!harness::wants_op(options, put ? "put" : "get")) continue;
    for (const std::uint64_t size : harness::sizes_or(options, harness::kDuplexSizes)) {
      for (const std::uint32_t threads : counts) one(put, size, threads);
    }
  }
}

// ---- overlap with computing ---------------------------------------------------------------------

// Kind has: begin_send(data, size), begin_receive(data, size), finish(): of one operation at a
// time; send and receive as above.
template <class Library, class Kind>
void overlap(Session& session, Library& library, Kind& kind) {
  if (!session.wants("overlap")) return;
  struct Endpoint {
    Library& library;
    Kind& kind;
    void begin_send(const void* data, std::uint64_t size) { kind.begin_send(data, size); }
    void begin_receive(void* data, std::uint64_t size) { kind.begin_receive(data, size); }
    void finish_send() { kind.finish(); }
    void finish_receive() { kind.finish(); }
    void answer() { kind.send(0, 8); }
    void await_answer() { kind.receive(0, 8); }
    void progress() { library.progress(0); }
  } endpoint{library, kind};
  harness::measure_overlap(session, endpoint, [&](const char* op, std::uint64_t size) {
    return figure(library, "overlap", op, "latency", size, 1);
  });
}

// Bytes of a region that has room for everything asked for.
inline std::uint64_t region_bytes(const harness::Options& options) {
  std::uint64_t data = kDataBytes + 8 * harness::gups_words_per_rank(options.total_words, options.quick);
  if (harness::wants_bench(options, "duplex")) {
    data = std::max(data, harness::duplex_stretch(options) * harness::duplex_most_threads(options));
  }
  return kWordsBytes + data;
}

}  // namespace heddle::bench::peers
