// The checks of the atomic operations: see table_checks.hpp. All PEs change every PE's word at the
// same time; the expected result does not depend on their order.
#pragma once

#include "table_checks.hpp"

namespace checks {

inline constexpr int kRepeats = 5;

// Sets the word of each area to `start` on every PE, runs work(call, word, pe) towards every PE,
// and then look(word's value).
template <class T, class F, class G, class Work, class Look>
void on_every_word(F plain, G with_context, T start, const Work& work, const Look& look) {
  for (int area = 0; area < kAreas; ++area) {
    T* word = part<T>(area, 0) + 1;
    word[-1] = word[1] = static_cast<T>(99);
    word[0] = start;
  }
  shmem_barrier_all();
  each_way(plain, with_context, [&](auto call, shmem_ctx_t context, int, int area) {
    for (int k = 0; k < g_job.n; ++k) work(call, part<T>(area, 0) + 1, (g_job.me + k) % g_job.n, context);
    shmem_ctx_quiet(context);
  });
  shmem_barrier_all();
  each_way(plain, with_context, [&](auto, shmem_ctx_t, int round, int area) {
    const T* word = part<T>(area, 0) + 1;
    look(word[0], round);
    EXPECT(word[-1] == static_cast<T>(99) && word[1] == static_cast<T>(99), "neighbours, round %d", round);
  });
}

template <class T, class F, class G>
void atomic_add(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{3},
      [](auto call, T* word, int pe, shmem_ctx_t) {
        for (int i = 0; i < kRepeats; ++i) call(word, static_cast<T>(g_job.me + 1), pe);
      },
      [name](T now, int round) { EXPECT_SAME(now, static_cast<T>(3 + kRepeats * g_job.n * (g_job.n + 1) / 2), name); });
}
template <class T, class F, class G>
void atomic_inc(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{3},
      [](auto call, T* word, int pe, shmem_ctx_t) {
        for (int i = 0; i < kRepeats; ++i) call(word, pe);
      },
      [name](T now, int round) { EXPECT_SAME(now, static_cast<T>(3 + kRepeats * g_job.n), name); });
}
// The values that one PE fetches from one word only grow.
template <class T, class F, class G>
void atomic_fetch_add(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{3},
      [name](auto call, T* word, int pe, shmem_ctx_t) {
        T before = 0;
        for (int i = 0; i < kRepeats; ++i) {
          const T old = call(word, T{2}, pe);
          EXPECT(old > before && old % 2 == 1, "%s on PE %d", name, pe);
          before = old;
        }
      },
      [name](T now, int round) { EXPECT_SAME(now, static_cast<T>(3 + 2 * kRepeats * g_job.n), name); });
}
template <class T, class F, class G>
void atomic_fetch_inc(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{3},
      [name](auto call, T* word, int pe, shmem_ctx_t) {
        T before = 2;
        for (int i = 0; i < kRepeats; ++i) {
          const T old = call(word, pe);
          EXPECT(old > before, "%s on PE %d", name, pe);
          before = old;
        }
      },
      [name](T now, int round) { EXPECT_SAME(now, static_cast<T>(3 + kRepeats * g_job.n), name); });
}
template <class T, class F, class G>
void atomic_fetch_add_nbi(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{3},
      [name](auto call, T* word, int pe, shmem_ctx_t context) {
        T fetched[kRepeats] = {};
        for (T& old : fetched) call(&old, word, T{2}, pe);
        shmem_ctx_quiet(context);
        for (const T old : fetched) EXPECT(old >= 3 && old % 2 == 1, "%s on PE %d", name, pe);
      },
      [name](T now, int round) { EXPECT_SAME(now, static_cast<T>(3 + 2 * kRepeats * g_job.n), name); });
}
template <class T, class F, class G>
void atomic_fetch_inc_nbi(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{3},
      [name](auto call, T* word, int pe, shmem_ctx_t context) {
        T fetched[kRepeats] = {};
        for (T& old : fetched) call(&old, word, pe);
        shmem_ctx_quiet(context);
        for (const T old : fetched) EXPECT(old >= 3, "%s on PE %d", name, pe);
      },
      [name](T now, int round) { EXPECT_SAME(now, static_cast<T>(3 + kRepeats * g_job.n), name); });
}

// Used as a counter: each PE's loop succeeds kRepeats times.
template <class T, class F, class G>
void atomic_compare_swap(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{3},
      [](auto call, T* word, int pe, shmem_ctx_t) {
        T seen = 3;
        for (int done = 0; done < kRepeats;) {
          const T old = call(word, seen, static_cast<T>(seen + 1), pe);
          done += old == seen ? 1 : 0;
          seen = old == seen ? static_cast<T>(seen + 1) : old;
        }
      },
      [name](T now, int round) { EXPECT_SAME(now, static_cast<T>(3 + kRepeats * g_job.n), name); });
}
template <class T, class F, class G>
void atomic_compare_swap_nbi(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{3},
      [](auto call, T* word, int pe, shmem_ctx_t context) {
        T seen = 3;
        for (int done = 0; done < kRepeats;) {
          T old = 0;
          call(&old, word, seen, static_cast<T>(seen + 1), pe);
          shmem_ctx_quiet(context);
          done += old == seen ? 1 : 0;
          seen = old == seen ? static_cast<T>(seen + 1) : old;
        }
      },
      [name](T now, int round) { EXPECT_SAME(now, static_cast<T>(3 + kRepeats * g_job.n), name); });
}

template <class T>
bool is_of_a_pe(T value) {
  for (int pe = 0; pe < g_job.n; ++pe) {
    if (value == static_cast<T>(10 + pe)) return true;
  }
  return false;
}
template <class T, class F, class G>
void atomic_set(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{3},
      [](auto call, T* word, int pe, shmem_ctx_t) { call(word, static_cast<T>(10 + g_job.me), pe); },
      [name](T now, int round) { EXPECT(is_of_a_pe(now), "%s round %d", name, round); });
}
// The first PE gets `start`; every other value is fetched by at most one PE.
template <class T, class F, class G>
void atomic_swap(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{3},
      [name](auto call, T* word, int pe, shmem_ctx_t) {
        const T old = call(word, static_cast<T>(10 + g_job.me), pe);
        EXPECT(old == T{3} || (is_of_a_pe(old) && old != static_cast<T>(10 + g_job.me)), "%s on PE %d", name, pe);
      },
      [name](T now, int round) { EXPECT(is_of_a_pe(now), "%s round %d", name, round); });
}
template <class T, class F, class G>
void atomic_swap_nbi(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{3},
      [name](auto call, T* word, int pe, shmem_ctx_t context) {
        T old = 0;
        call(&old, word, static_cast<T>(10 + g_job.me), pe);
        shmem_ctx_quiet(context);
        EXPECT(old == T{3} || is_of_a_pe(old), "%s on PE %d", name, pe);
      },
      [name](T now, int round) { EXPECT(is_of_a_pe(now), "%s round %d", name, round); });
}
template <class T, class F, class G>
void atomic_fetch(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{42},
      [name](auto call, T* word, int pe, shmem_ctx_t) { EXPECT(call(word, pe) == T{42}, "%s", name); },
      [name](T now, int round) { EXPECT_SAME(now, T{42}, name); });
}
template <class T, class F, class G>
void atomic_fetch_nbi(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{42},
      [name](auto call, T* word, int pe, shmem_ctx_t context) {
        T old = 0;
        call(&old, word, pe);
        shmem_ctx_quiet(context);
        EXPECT(old == T{42}, "%s", name);
      },
      [name](T now, int round) { EXPECT_SAME(now, T{42}, name); });
}

// PE i changes bit i (and bit 20 + i, so that more than one byte changes).
template <class T>
T bits_of_pe(int pe) {
  return static_cast<T>((T{1} << pe) | (T{1} << (20 + pe % 10)));
}
template <class T>
T bits_of_all() {
  T all = 0;
  for (int pe = 0; pe < g_job.n; ++pe) all = static_cast<T>(all | bits_of_pe<T>(pe));
  return all;
}
template <class T, class F, class G>
void atomic_or(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{0},
      [](auto call, T* word, int pe, shmem_ctx_t) { call(word, bits_of_pe<T>(g_job.me), pe); },
      [name](T now, int round) { EXPECT_SAME(now, bits_of_all<T>(), name); });
}
template <class T, class F, class G>
void atomic_and(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, static_cast<T>(~T{0}),
      [](auto call, T* word, int pe, shmem_ctx_t) { call(word, static_cast<T>(~bits_of_pe<T>(g_job.me)), pe); },
      [name](T now, int round) { EXPECT_SAME(now, static_cast<T>(~bits_of_all<T>()), name); });
}
template <class T>
T folded_by_xor() {
  T all = 0;
  for (int pe = 0; pe < g_job.n; ++pe) all = static_cast<T>(all ^ bits_of_pe<T>(pe));
  return all;
}
template <class T, class F, class G>
void atomic_xor(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{0},
      [](auto call, T* word, int pe, shmem_ctx_t) { call(word, bits_of_pe<T>(g_job.me), pe); },
      [name](T now, int round) { EXPECT_SAME(now, folded_by_xor<T>(), name); });
}
// In the fetched value, the PE's own lowest bit is clear (or, xor) or set (and).
template <class T, class F, class G>
void atomic_fetch_or(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{0},
      [name](auto call, T* word, int pe, shmem_ctx_t) {
        const T old = call(word, bits_of_pe<T>(g_job.me), pe);
        EXPECT((old & (T{1} << g_job.me)) == 0, "%s on PE %d", name, pe);
      },
      [name](T now, int round) { EXPECT_SAME(now, bits_of_all<T>(), name); });
}
template <class T, class F, class G>
void atomic_fetch_and(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, static_cast<T>(~T{0}),
      [name](auto call, T* word, int pe, shmem_ctx_t) {
        const T old = call(word, static_cast<T>(~bits_of_pe<T>(g_job.me)), pe);
        EXPECT((old & (T{1} << g_job.me)) != 0, "%s on PE %d", name, pe);
      },
      [name](T now, int round) { EXPECT_SAME(now, static_cast<T>(~bits_of_all<T>()), name); });
}
template <class T, class F, class G>
void atomic_fetch_xor(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{0},
      [name](auto call, T* word, int pe, shmem_ctx_t) {
        const T old = call(word, bits_of_pe<T>(g_job.me), pe);
        EXPECT((old & (T{1} << g_job.me)) == 0, "%s on PE %d", name, pe);
      },
      [name](T now, int round) { EXPECT_SAME(now, folded_by_xor<T>(), name); });
}
// The nonblocking forms: the same, but the fetched value is valid after quiet.
template <class T, class F, class G>
void atomic_fetch_or_nbi(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{0},
      [name](auto call, T* word, int pe, shmem_ctx_t context) {
        T old = static_cast<T>(~T{0});
        call(&old, word, bits_of_pe<T>(g_job.me), pe);
        shmem_ctx_quiet(context);
        EXPECT((old & (T{1} << g_job.me)) == 0, "%s on PE %d", name, pe);
      },
      [name](T now, int round) { EXPECT_SAME(now, bits_of_all<T>(), name); });
}
template <class T, class F, class G>
void atomic_fetch_and_nbi(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, static_cast<T>(~T{0}),
      [name](auto call, T* word, int pe, shmem_ctx_t context) {
        T old = 0;
        call(&old, word, static_cast<T>(~bits_of_pe<T>(g_job.me)), pe);
        shmem_ctx_quiet(context);
        EXPECT((old & (T{1} << g_job.me)) != 0, "%s on PE %d", name, pe);
      },
      [name](T now, int round) { EXPECT_SAME(now, static_cast<T>(~bits_of_all<T>()), name); });
}
template <class T, class F, class G>
void atomic_fetch_xor_nbi(const char* name, F plain, G with_context) {
  on_every_word<T>(
      plain, with_context, T{0},
      [name](auto call, T* word, int pe, shmem_ctx_t context) {
        T old = static_cast<T>(~T{0});
        call(&old, word, bits_of_pe<T>(g_job.me), pe);
        shmem_ctx_quiet(context);
        EXPECT((old & (T{1} << g_job.me)) == 0, "%s on PE %d", name, pe);
      },
      [name](T now, int round) { EXPECT_SAME(now, folded_by_xor<T>(), name); });
}

}  // namespace checks
