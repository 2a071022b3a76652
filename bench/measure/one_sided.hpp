// Puts, gets and atomic operations: there and back, one after the other, as many as go, in windows,
// and in both directions.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "measure/bench.hpp"

namespace heddle::bench::measure {

inline const std::vector<std::uint64_t> kLatencySizes = {8, 64, 512, 4096, 65536, 1U << 20};

// Before anybody waits for them again.
template <Library L>
void clear_words(L& library, std::uint64_t first, std::uint64_t count) {
  library.meet();
  std::memset(library.own(word_at(first)), 0, count * kWordBytes);
  library.meet();
}

template <Library L>
std::atomic_ref<std::uint64_t> own_word(L& library, std::uint64_t at) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(library.own(at)));
}

// How a waiting thread looks at the word: the program itself, or a wait of the library.
enum class Watch : std::uint8_t { polls, waits };

// A word, with data before it where there are more bytes, goes there and back.
template <Watch kWatch, Library L>
void put_ping_pong(Bench& bench, L& library, Task task) {
  clear_words(library, 0, 1);
  const Buffer source(task.bytes, bench.options());
  const auto word = own_word(library, 0);
  const bool data = task.bytes > 8 || task.bench.starts_with(kQuiet);
  const std::uint32_t peer = bench.peer();
  const bool first = bench.rank() == 0;
  std::uint64_t turn = 0;
  const auto send = [&](std::uint32_t lane) {
    if (data) {
      const bool stays = library.put_signal(lane, peer, kDataAt, source.data(), task.bytes, word_at(0), turn);
      if (kWatch == Watch::polls && stays) library.flush(lane, peer);
    } else {
      library.set_word(lane, peer, word_at(0), turn);
    }
  };
  task.per_iteration = 2;
  bench.measure(task, {[&](std::uint64_t run) {
                         fill(source.data(), task.bytes, pattern(bench.rank(), 0, run));
                         fill(library.own(kDataAt), task.bytes, std::byte{0});
                       },
                       [&](std::uint32_t lane, std::uint64_t n) {
                         for (std::uint64_t i = 0; i < n; ++i) {
                           ++turn;
                           if (first) send(lane);
                           if constexpr (kWatch == Watch::polls) {
                             harness::spin_until([&] { return word.load(std::memory_order_acquire) == turn; });
                           } else {
                             library.wait_signal(lane, word_at(0), turn);
                           }
                           if (!first) send(lane);
                         }
                         library.quiet(lane);
                       },
                       [&](std::uint64_t run) {
                         return !data || is_filled(library.own(kDataAt), task.bytes, pattern(bench.peer(), 0, run));
                       }});
}

// `window` operations by post(lane), and a flush; 0: one at the end of all. An iteration is an
// operation where all are flushed at the end, else a window.
template <Library L, class Post>
void stream(Bench& bench, L& library, const Task& task, std::uint64_t window, const Post& post,
            Owner owner = Owner::sleeps) {
  bench.at_origin(task, owner, [&, window](std::uint32_t lane, std::uint64_t n) {
    const std::uint64_t windows = window == 0 ? 1 : n;
    const std::uint64_t each = window == 0 ? n : window;
    for (std::uint64_t i = 0; i < windows; ++i) {
      for (std::uint64_t k = 0; k < each; ++k) post(lane);
      library.flush(lane, 1);
    }
  });
}

// One operation after the other, each waited for if it is under way.
template <Library L, class Post>
void one_by_one(Bench& bench, L& library, const Task& task, const Post& post) {
  bench.at_origin(task, bench.owner(), [&](std::uint32_t lane, std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) {
      if (post(lane)) library.flush(lane, 1);
    }
  });
}

template <Library L>
void one_sided_latency(Bench& bench, L& library) {
  const Buffer local(kMostBytes, bench.options());
  const bool direct = bench.identity().memory == "allocated" && !bench.identity().owner_signals;
  for (const std::uint64_t size : bench.sizes("pingpong", kLatencySizes)) {
    const auto task = [&](const char* op) { return Task{"pingpong", op, "latency", size}; };
    // A word in memory that its owner must help with arrives in the owner's progress: none to poll.
    if (bench.wants("pingpong", "put")) {
      if (direct) put_ping_pong<Watch::polls>(bench, library, task("put"));
      if constexpr (Signals<L>) {
        if (!direct && size > 8) put_ping_pong<Watch::waits>(bench, library, task("put"));
      }
    }
    if constexpr (Signals<L>) {
      if (direct && size == 8 && bench.wants("pingpong", "put_wait"))
        put_ping_pong<Watch::waits>(bench, library, task("put_wait"));
    }
    if (bench.wants("pingpong", "put_flush")) {
      stream(
          bench, library, task("put_flush"), 1,
          [&](std::uint32_t lane) { library.put(lane, 1, kDataAt, local.data(), size); }, bench.owner());
    }
    if (bench.wants("pingpong", "get")) {
      one_by_one(bench, library, task("get"),
                 [&](std::uint32_t lane) { return library.get(lane, 1, kDataAt, local.data(), size); });
    }
  }
  if constexpr (HasAtomic<L, Atomic::fetch_add>) {
    if (!bench.wants("pingpong", "fadd") || !bench.can_measure_atomics()) return;
    std::uint64_t old = 0;
    one_by_one(bench, library, {"pingpong", "fadd", "latency"}, [&](std::uint32_t lane) {
      return library.template atomic<Atomic::fetch_add>(lane, 1, kDataAt, 1, &old);
    });
  }
}

template <Library L>
void one_sided_rate(Bench& bench, L& library, std::uint32_t threads) {
  struct alignas(kWordBytes) Local {
    std::byte data[4096];
  };
  std::vector<Local> locals(threads);
  const auto rate = [&](const char* op, std::uint64_t size, const auto& post) {
    if (bench.wants("rate", op)) {
      stream(bench, library, {"rate", op, "rate", size, static_cast<double>(threads), threads}, 0, post);
    }
  };
  const auto place = [](std::uint32_t lane, std::uint64_t size) {
    return size <= kWordBytes ? word_at(lane) : kDataAt + lane * sizeof(Local);
  };
  for (const std::uint64_t size : bench.sizes("rate", {8}, sizeof(Local))) {
    rate("put", size, [&](std::uint32_t lane) { library.put(lane, 1, place(lane, size), locals[lane].data, size); });
    rate("get", size, [&](std::uint32_t lane) { library.get(lane, 1, place(lane, size), locals[lane].data, size); });
  }
  if constexpr (HasAtomic<L, Atomic::fetch_add>) {
    if (!bench.wants("rate", "fadd") || !bench.can_measure_atomics()) return;
    rate("fadd", 8, [&](std::uint32_t lane) {
      library.template atomic<Atomic::fetch_add>(lane, 1, word_at(lane), 1,
                                                 reinterpret_cast<std::uint64_t*>(locals[lane].data));
    });
  }
}

template <Library L>
void bandwidth(Bench& bench, L& library) {
  const auto sizes = bench.sizes("bandwidth", {4096, 65536, 1U << 20}, kMostBandwidthBytes);
  if (sizes.empty()) return;
  const Buffer local(*std::ranges::max_element(sizes), bench.options());
  for (const std::uint64_t size : sizes) {
    const auto task = [&](const char* op) {
      return Task{"bandwidth", op, "bandwidth", size, static_cast<double>(size)};
    };
    const auto put = [&](std::uint32_t lane) { library.put(lane, 1, kDataAt, local.data(), size); };
    const auto get = [&](std::uint32_t lane) { library.get(lane, 1, kDataAt, local.data(), size); };
    if (bench.wants("bandwidth", "put")) stream(bench, library, task("put"), 0, put, bench.owner());
    if (bench.wants("bandwidth", "get")) stream(bench, library, task("get"), 0, get, bench.owner());
  }
}

// latency: each is complete before the next; rate: all are at the end.
template <Atomic kOp, Library L>
void one_atomic(Bench& bench, L& library, const char* op) {
  if constexpr (HasAtomic<L, kOp>) {
    if (!bench.wants("atomics", op) || !bench.can_measure_atomics()) return;
    std::uint64_t old = 0;
    const auto post = [&](std::uint32_t lane) { library.template atomic<kOp>(lane, 1, word_at(0), 1, &old); };
    stream(bench, library, {"atomics", op, "latency"}, 1, post);
    stream(bench, library, {"atomics", op, "rate"}, 0, post);
  }
}

template <Library L>
void atomics(Bench& bench, L& library) {
  one_atomic<Atomic::fetch_add>(bench, library, "fadd");
  one_atomic<Atomic::swap>(bench, library, "swap");
  one_atomic<Atomic::compare_swap>(bench, library, "cswap");
  one_atomic<Atomic::add>(bench, library, "add");
  one_atomic<Atomic::bit_xor>(bench, library, "xor");
  one_atomic<Atomic::bit_and>(bench, library, "and");
  one_atomic<Atomic::bit_or>(bench, library, "or");
}

// ---- both directions at once, as for UCCS -------------------------------------------------------

// Each thread of a process has its own stretch of so many bytes, to send from as well as to receive
// in. By threads, and as pairs of processes of one thread each.
template <Library L>
void duplex(Bench& bench, L& library) {
  const auto counts =
      bench.size() > 2 ? std::vector<std::uint32_t>{1} : harness::threads_or(bench.options(), harness::kDuplexThreads);
  const std::uint64_t stretch = harness::duplex_stretch(bench.options());
  const Buffer local(stretch * *std::max_element(counts.begin(), counts.end()), bench.options());
  const auto mine = [&](std::uint32_t lane) { return local.data() + lane * stretch; };
  const auto there = [&](std::uint32_t lane) { return kDataAt + lane * stretch; };
  const auto one = [&](bool put, std::uint64_t size, std::uint32_t threads) {
    const auto from = [&](std::uint32_t lane) { return put ? mine(lane) : library.own(there(lane)); };
    const auto to = [&](std::uint32_t lane) { return put ? library.own(there(lane)) : mine(lane); };
    bench.measure(
        {"duplex", put ? "put" : "get", "bandwidth", size, static_cast<double>(size) * threads * bench.size(), threads},
        {[&](std::uint64_t run) {
           for (std::uint32_t lane = 0; lane < threads; ++lane) {
             fill(from(lane), size, pattern(bench.rank(), lane, run));
             fill(to(lane), size, std::byte{0});
           }
         },
         [&](std::uint32_t lane, std::uint64_t n) {
           for (std::uint64_t i = 0; i < n; ++i) {
             if (put) {
               library.put(lane, bench.peer(), there(lane), mine(lane), size);
             } else {
               library.get(lane, bench.peer(), there(lane), mine(lane), size);
             }
           }
           library.flush(lane, bench.peer());
         },
         [&](std::uint64_t run) {
           return of_all(threads, [&](std::uint32_t lane) {
             return is_filled(to(lane), size, pattern(bench.peer(), lane, run));
           });
         }});
  };
  for (const bool put : {true, false}) {
    if (!bench.wants("duplex", put ? "put" : "get")) continue;
    for (const std::uint64_t size : harness::sizes_or(bench.options(), harness::kDuplexSizes)) {
      for (const std::uint32_t threads : counts) one(put, size, threads);
    }
  }
}

// ---- random updates of a table over both processes ----------------------------------------------

// As get, xor, put, which may lose updates to races, and as atomic xor.
template <Library L>
class Gups {
 public:
  Gups(Bench& bench, L& library)
      : bench_(bench),
        library_(library),
        words_(gups_words_per_rank(bench.options().total_words, bench.options().quick)),
        table_(reinterpret_cast<std::uint64_t*>(library.own(kDataAt))) {}

  void measure(std::uint32_t threads, bool atomic) {
    // Both processes update: the rate is that of both.
    const bool right = verify(threads, atomic);
    bench_.measure({"gups", atomic ? "atomic" : "get_put", "rate", 8, 2.0 * threads, threads},
                   {{},
                    [&](std::uint32_t lane, std::uint64_t n) { update(lane, n, atomic); },
                    [&](std::uint64_t) { return right; }});
  }

 private:
  void update(std::uint32_t lane, std::uint64_t n, bool atomic) {
    GupsStream stream(bench_.rank(), lane, words_);
    for (std::uint64_t i = 0; i < n; ++i) {
      const GupsUpdate one = stream.next();
      const std::uint64_t at = kDataAt + one.index * 8;
      if (atomic) {
        library_.template atomic<Atomic::bit_xor>(lane, one.owner, at, one.value, nullptr);
        continue;
      }
      std::uint64_t value = 0;
      if (library_.get(lane, one.owner, at, &value, 8)) library_.flush(lane, one.owner);
      value ^= one.value;
      if (library_.put(lane, one.owner, at, &value, 8)) library_.flush(lane, one.owner);
    }
    library_.quiet(lane);
  }
  // Makes the updates again, atomically. A word that differs from its first value then has lost an
  // update.
  bool verify(std::uint32_t threads, bool atomic) {
    // Enough that a lost one in a hundred would show, few enough that the check takes no time.
    const std::uint64_t check = bench_.options().quick ? 20'000 : 500'000;
    harness::Channel& channel = bench_.session().channel();
    gups_fill(table_, words_);
    channel.barrier();
    for (const bool how : {atomic, true}) {
      bench_.run(threads, check, {{}, [&](std::uint32_t lane, std::uint64_t n) { update(lane, n, how); }, {}});
    }
    channel.flag(bench_.rank()).store(gups_count_wrong(table_, words_));
    channel.barrier();
    const auto wrong = static_cast<double>(channel.flag(0).load() + channel.flag(1).load());
    channel.barrier();
    return wrong <= (atomic ? 0 : kGupsRacyBound * 2 * threads * static_cast<double>(check));
  }

  Bench& bench_;
  L& library_;
  std::uint64_t words_;
  std::uint64_t* table_;
};

template <Library L>
void gups(Bench& bench, L& library) {
  if (!bench.can_measure_atomics()) return;  // nor can its table be checked
  Gups<L> table(bench, library);
  for (const std::uint32_t threads : harness::threads_of(bench.options())) {
    table.measure(threads, false);
    table.measure(threads, true);
  }
}

// ---- programs -----------------------------------------------------------------------------------

// Rank 0 puts or gets a window, flushes, and so on; rank 1 waits in the library's barrier.
template <Library L>
void windows(Bench& bench, L& library, const char* name, bool put) {
  if (!bench.wants_program(name)) return;
  const Buffer local(kDataBytes, bench.options());
  const bool origin = bench.rank() == 0;
  for (const std::uint64_t bytes : bench.program_sizes({8, 4096, 65536})) {
    const std::uint64_t places = std::min(kWindow, kDataBytes / bytes);
    // the rank that holds the data: put 0, get 1
    std::byte* const from = put ? local.data() : library.own(kDataAt);
    std::byte* const to = put ? library.own(kDataAt) : local.data();
    bench.measure(
        bench.by_windows(bench.program(name, "bandwidth", bytes, static_cast<double>(kWindow * bytes)), 1), 1,
        {[&](std::uint64_t run) {
           const bool gives = origin == put;
           fill(gives ? from : to, places * bytes, gives ? pattern(0, 0, run) : std::byte{0});
         },
         [&](std::uint32_t lane, std::uint64_t n) {
           for (std::uint64_t i = 0; origin && i < n; ++i) {
             for (std::uint64_t k = 0; k < kWindow; ++k) {
               const std::uint64_t at = k % places * bytes;
               if (put) {
                 library.put(lane, 1, kDataAt + at, local.data() + at, bytes);
               } else {
                 library.get(lane, 1, kDataAt + at, local.data() + at, bytes);
               }
             }
             library.flush(lane, 1);
           }
         },
         [&](std::uint64_t run) { return origin == put || is_filled(to, places * bytes, pattern(0, 0, run)); }});
  }
}

// A put with a signal there and back. The receiver waits for the word.
template <Library L>
void put_latency(Bench& bench, L& library) {
  if constexpr (Signals<L>) {
    if (!bench.wants_program("put_latency")) return;
    for (const std::uint64_t bytes : bench.program_sizes({8, 4096, 65536})) {
      put_ping_pong<Watch::waits>(bench, library, bench.program("put_latency", "latency", bytes, 2));
    }
  }
}

}  // namespace heddle::bench::measure
