// One check for each operation of the table, as a template over the element's type. It runs for
// each function of the operation: without a context, with the default, a private and a shareable
// one; to every PE; on the symmetric heap and on static data.
#pragma once

#include <sched.h>
#include <shmem.h>
#include <shmemx.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "check.h"

namespace checks {

inline constexpr int kMostPes = 16;
inline constexpr std::size_t kElements = 24;  // of one PE's part of an area

inline constexpr int kWays = 4;  // without context; with the default, a private and a shareable one
inline constexpr int kAreas = 2 * kWays;

struct Job {
  int me = 0;
  int n = 0;
  std::array<shmem_ctx_t, 3> contexts{};
  // For each way of calling, two areas of the same shape: in the heap and in static data. Each area
  // has a part for each PE that writes to it, and a signal.
  std::array<std::byte*, kAreas> areas{};
  std::array<std::uint64_t*, kAreas> signals{};
};
extern Job g_job;

template <std::size_t kBytes>
struct SizedElement {
  std::array<unsigned char, kBytes> bytes;
  bool operator==(const SizedElement&) const = default;
};
inline constexpr std::size_t kLargest = 16;

// A value that differs between PEs, elements and rounds, as far as the type allows.
template <class T>
T value(int pe, std::size_t i, int round) {
  const auto number = static_cast<unsigned>(pe * 31 + static_cast<int>(i) * 3 + round * 7) % 100 + 1;
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(number);
  } else {
    T block;
    block.bytes.fill(static_cast<unsigned char>(number));
    return block;
  }
}

// PE `writer`'s part of an area.
template <class T>
T* part(int area, int writer) {
  return reinterpret_cast<T*>(g_job.areas[area] + static_cast<std::size_t>(writer) * kElements * kLargest);
}
template <class T>
void fill(T* at, T what) {
  for (std::size_t i = 0; i < kElements; ++i) at[i] = what;
}

// Runs body(call, context, round, area) for every way of calling the function, and for both areas
// of each; call(arguments…) makes the call.
template <class F, class G, class Body>
void each_way(F plain, G with_context, const Body& body) {
  for (int area = 0; area < 2; ++area) {
    body([=](auto... arguments) { return plain(arguments...); }, SHMEM_CTX_DEFAULT, 0, area);
    if constexpr (!std::is_null_pointer_v<G>) {
      for (int round = 1; round < kWays; ++round) {
        shmem_ctx_t context = g_job.contexts[round - 1];
        body([=](auto... arguments) { return with_context(context, arguments...); }, context, round, 2 * round + area);
      }
    }
  }
}

#define EXPECT_SAME(actual, wanted, name, ...) \
  EXPECT((actual) == (wanted), "%s " __VA_OPT__("[%zu] ") "round %d", name __VA_OPT__(, ) __VA_ARGS__, round)

// ---- put ----------------------------------------------------------------------------------------

// Each PE writes its part on every PE with write(call, dest, pe). Then each PE checks all parts
// with look(part, writer).
template <class T, class F, class G, class Write, class Look>
void written_everywhere(F plain, G with_context, const Write& write, const Look& look) {
  for (int area = 0; area < kAreas; ++area) {
    for (int writer = 0; writer < g_job.n; ++writer) fill(part<T>(area, writer), T{});
  }
  shmem_barrier_all();
  each_way(plain, with_context, [&](auto call, shmem_ctx_t context, int round, int area) {
    for (int pe = 0; pe < g_job.n; ++pe) write(call, area, pe, round);
    shmem_ctx_quiet(context);
  });
  shmem_barrier_all();
  each_way(plain, with_context, [&](auto, shmem_ctx_t, int round, int area) {
    for (int writer = 0; writer < g_job.n; ++writer) look(area, writer, round);
  });
}

template <class T>
struct Source {
  T elements[kElements];
  Source(int round) {
    for (std::size_t i = 0; i < kElements; ++i) elements[i] = value<T>(g_job.me, i, round);
  }
};

template <class T, class F, class G>
void put(const char* name, F plain, G with_context) {
  static T source[kElements];
  written_everywhere<T>(
      plain, with_context,
      [](auto call, int area, int pe, int round) {
        for (std::size_t i = 0; i < kElements; ++i) source[i] = value<T>(g_job.me, i, round);
        call(part<T>(area, g_job.me) + 1, source + 1, kElements - 2, pe);
        call(part<T>(area, g_job.me), source, std::size_t{0}, pe);  // no elements
      },
      [name](int area, int writer, int round) {
        const T* at = part<T>(area, writer);
        EXPECT_SAME(at[0], T{}, name);
        EXPECT_SAME(at[kElements - 1], T{}, name);
        for (std::size_t i = 1; i + 1 < kElements; ++i) EXPECT_SAME(at[i], value<T>(writer, i, round), name, i);
      });
}
template <class T, class F, class G>
void put_nbi(const char* name, F plain, G with_context) {
  put<T>(name, plain, with_context);
}

template <class T, class F, class G>
void p(const char* name, F plain, G with_context) {
  written_everywhere<T>(
      plain, with_context,
      [](auto call, int area, int pe, int round) {
        for (std::size_t i = 0; i < kElements; ++i) call(part<T>(area, g_job.me) + i, value<T>(g_job.me, i, round), pe);
      },
      [name](int area, int writer, int round) {
        for (std::size_t i = 0; i < kElements; ++i)
          EXPECT_SAME(part<T>(area, writer)[i], value<T>(writer, i, round), name, i);
      });
}

// Element i of the source is at `sst` × i, of the target at `dst` × i; the gaps do not change.
template <class T, class F, class G>
void iput(const char* name, F plain, G with_context) {
  written_everywhere<T>(
      plain, with_context,
      [](auto call, int area, int pe, int round) {
        const Source<T> source(round);
        call(part<T>(area, g_job.me), source.elements, std::ptrdiff_t{3}, std::ptrdiff_t{2}, kElements / 3, pe);
      },
      [name](int area, int writer, int round) {
        for (std::size_t i = 0; i < kElements; ++i) {
          const T wanted = i % 3 == 0 ? value<T>(writer, i / 3 * 2, round) : T{};
          EXPECT_SAME(part<T>(area, writer)[i], wanted, name, i);
        }
      });
}

template <class T, class F, class G>
void ibput(const char* name, F plain, G with_context) {
  written_everywhere<T>(
      plain, with_context,
      [](auto call, int area, int pe, int round) {
        const Source<T> source(round);
        call(part<T>(area, g_job.me), source.elements, std::ptrdiff_t{4}, std::ptrdiff_t{2}, std::size_t{2},
             kElements / 4, pe);
      },
      [name](int area, int writer, int round) {
        for (std::size_t i = 0; i < kElements; ++i) {
          const T wanted = i % 4 < 2 ? value<T>(writer, i / 4 * 2 + i % 4, round) : T{};
          EXPECT_SAME(part<T>(area, writer)[i], wanted, name, i);
        }
      });
}

// The signal shows that the data is there, without a barrier.
template <class T, class F, class G>
void put_signal(const char* name, F plain, G with_context) {
  for (int area = 0; area < kAreas; ++area) {
    for (int writer = 0; writer < g_job.n; ++writer) fill(part<T>(area, writer), T{});
    *g_job.signals[area] = 0;
  }
  shmem_barrier_all();
  each_way(plain, with_context, [&](auto call, shmem_ctx_t context, int round, int area) {
    const Source<T> source(round);
    for (int pe = 0; pe < g_job.n; ++pe) {
      call(part<T>(area, g_job.me), source.elements, kElements, g_job.signals[area],
           std::uint64_t{1} << static_cast<unsigned>(2 * g_job.me), SHMEM_SIGNAL_ADD, pe);
    }
    for (int writer = 0; writer < g_job.n; ++writer) {
      const auto bit = std::uint64_t{1} << static_cast<unsigned>(2 * writer);
      while ((shmem_signal_fetch(g_job.signals[area]) & bit) == 0) sched_yield();
      for (std::size_t i = 0; i < kElements; ++i)
        EXPECT_SAME(part<T>(area, writer)[i], value<T>(writer, i, round), name, i);
    }
    shmem_ctx_quiet(context);
  });
  shmem_barrier_all();
  each_way(plain, with_context, [&](auto call, shmem_ctx_t context, int round, int area) {
    const Source<T> source(round);
    call(part<T>(area, g_job.me), source.elements, kElements, g_job.signals[area], std::uint64_t{777}, SHMEM_SIGNAL_SET,
         (g_job.me + 1) % g_job.n);
    EXPECT(shmem_signal_wait_until(g_job.signals[area], SHMEM_CMP_EQ, 777) == 777, "%s", name);
    shmem_ctx_quiet(context);
  });
}
template <class T, class F, class G>
void put_signal_nbi(const char* name, F plain, G with_context) {
  put_signal<T>(name, plain, with_context);
}

// ---- get ----------------------------------------------------------------------------------------

// Each PE fills its own part, reads every PE's part with read(call, part, pe, round, into), and
// then checks it with look(into, pe, round).
template <class T, class F, class G, class Read, class Look>
void read_from_everywhere(F plain, G with_context, const Read& read, const Look& look) {
  for (int area = 0; area < kAreas; ++area) {
    for (std::size_t i = 0; i < kElements; ++i) part<T>(area, 0)[i] = value<T>(g_job.me, i, area / 2);
  }
  shmem_barrier_all();
  each_way(plain, with_context, [&](auto call, shmem_ctx_t context, int round, int area) {
    for (int pe = 0; pe < g_job.n; ++pe) {
      T into[kElements];
      fill(into, T{});
      read(call, part<T>(area, 0), pe, into);
      shmem_ctx_quiet(context);
      look(into, pe, round);
    }
  });
  shmem_barrier_all();
}

template <class T, class F, class G>
void get(const char* name, F plain, G with_context) {
  read_from_everywhere<T>(
      plain, with_context,
      [](auto call, const T* from, int pe, T* into) { call(into + 1, from + 1, kElements - 2, pe); },
      [name](const T* into, int pe, int round) {
        EXPECT_SAME(into[0], T{}, name);
        EXPECT_SAME(into[kElements - 1], T{}, name);
        for (std::size_t i = 1; i + 1 < kElements; ++i) EXPECT_SAME(into[i], value<T>(pe, i, round), name, i);
      });
}
template <class T, class F, class G>
void get_nbi(const char* name, F plain, G with_context) {
  get<T>(name, plain, with_context);
}
template <class T, class F, class G>
void g(const char* name, F plain, G with_context) {
  read_from_everywhere<T>(
      plain, with_context,
      [](auto call, const T* from, int pe, T* into) {
        for (std::size_t i = 0; i < kElements; ++i) into[i] = call(from + i, pe);
      },
      [name](const T* into, int pe, int round) {
        for (std::size_t i = 0; i < kElements; ++i) EXPECT_SAME(into[i], value<T>(pe, i, round), name, i);
      });
}
template <class T, class F, class G>
void iget(const char* name, F plain, G with_context) {
  read_from_everywhere<T>(
      plain, with_context,
      [](auto call, const T* from, int pe, T* into) {
        call(into, from, std::ptrdiff_t{3}, std::ptrdiff_t{2}, kElements / 3, pe);
      },
      [name](const T* into, int pe, int round) {
        for (std::size_t i = 0; i < kElements; ++i)
          EXPECT_SAME(into[i], i % 3 == 0 ? value<T>(pe, i / 3 * 2, round) : T{}, name, i);
      });
}
template <class T, class F, class G>
void ibget(const char* name, F plain, G with_context) {
  read_from_everywhere<T>(
      plain, with_context,
      [](auto call, const T* from, int pe, T* into) {
        call(into, from, std::ptrdiff_t{4}, std::ptrdiff_t{2}, std::size_t{2}, kElements / 4, pe);
      },
      [name](const T* into, int pe, int round) {
        for (std::size_t i = 0; i < kElements; ++i)
          EXPECT_SAME(into[i], i % 4 < 2 ? value<T>(pe, i / 4 * 2 + i % 4, round) : T{}, name, i);
      });
}

}  // namespace checks
