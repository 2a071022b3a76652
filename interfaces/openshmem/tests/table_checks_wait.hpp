// The checks of the functions that wait and test: see table_checks.hpp. They take no context. The
// previous PE writes the entries, so that the waits do wait; the checks expect no order of its
// writes.
#pragma once

#include <algorithm>
#include <vector>

#include "table_checks.hpp"

namespace checks {

inline constexpr std::size_t kEntries = 8;

// Sets this PE's entries to 10, then calls body(entries, raise); raise(i, v) sets entry i of the
// next PE to v. Once in the heap and once in static data.
template <class T, class Body>
void with_entries(const Body& body) {
  static int turn = 0;
  T* entries = part<T>(++turn % kAreas, 0);
  fill(entries, static_cast<T>(10));
  shmem_barrier_all();
  const int next = (g_job.me + 1) % g_job.n;
  body(entries, [=](std::size_t i, int to) {
    const T what = static_cast<T>(to);
    shmem_putmem(entries + i, &what, sizeof what, next);
  });
  shmem_barrier_all();
}

// Checks that each comparison answers like the processor's, for smaller, equal and larger.
template <class T, class Answer>
void each_comparison(const char* name, const Answer& answer) {
  for (const int other : {5, 10, 20}) {
    const bool wanted[] = {10 == other, 10 != other, 10 > other, 10 >= other, 10 < other, 10 <= other};
    for (int cmp = SHMEM_CMP_EQ; cmp <= SHMEM_CMP_LE; ++cmp) {
      EXPECT(answer(cmp, static_cast<T>(other)) == wanted[cmp], "%s cmp %d with %d", name, cmp, other);
    }
  }
  if constexpr (std::is_signed_v<T>) {
    EXPECT(answer(SHMEM_CMP_GT, static_cast<T>(-1)), "%s: 10 > -1", name);
  } else {
    EXPECT(!answer(SHMEM_CMP_GT, static_cast<T>(-1)), "%s: 10 < the largest", name);
  }
}

template <class T, class F>
void test(const char* name, F call, std::nullptr_t) {
  with_entries<T>([&](T* entries, auto raise) {
    each_comparison<T>(name, [&](int cmp, T with) { return call(entries, cmp, with) == 1; });
    shmem_barrier_all();
    raise(0, 20);
    while (call(entries, SHMEM_CMP_EQ, static_cast<T>(20)) == 0) sched_yield();
  });
}
template <class T, class F>
void wait_until(const char*, F call, std::nullptr_t) {
  with_entries<T>([&](T* entries, auto raise) {
    call(entries, SHMEM_CMP_EQ, static_cast<T>(10));
    shmem_barrier_all();
    for (int round = 11; round < 30; ++round) {
      shmem_fence();  // without it the last value may be that of an earlier put
      raise(0, round);
      call(entries, SHMEM_CMP_GE, static_cast<T>(round));
    }
  });
}
template <class T, class F>
void wait(const char* name, F call, std::nullptr_t) {
  with_entries<T>([&](T* entries, auto raise) {
    raise(0, 20);
    call(entries, static_cast<T>(10));
    EXPECT(entries[0] == static_cast<T>(20), "%s", name);
  });
}

// ---- several ------------------------------------------------------------------------------------

// Entries 2 and 5 are left out.
inline constexpr int kStatus[kEntries] = {0, 0, 1, 0, 0, 7, 0, 0};

// The value, or values, that a form of the call takes: entry i is compared with v, or with v + i %
// 2.
template <class T>
struct Compared {
  std::vector<T> values;
  explicit Compared(int v) {
    for (std::size_t i = 0; i < kEntries; ++i) values.push_back(static_cast<T>(v + static_cast<int>(i % 2)));
  }
  operator T() const { return values[0]; }             // NOLINT: stands for either argument
  operator const T*() const { return values.data(); }  // NOLINT: stands for either argument
};

template <class T, class F>
void wait_until_all(const char* name, F call, std::nullptr_t) {
  with_entries<T>([&](T* entries, auto raise) {
    for (std::size_t i = 0; i < kEntries; ++i) {
      if (kStatus[i] == 0) raise(i, 31);
    }
    call(entries, kEntries, kStatus, SHMEM_CMP_GE, Compared<T>(30));
    for (std::size_t i = 0; i < kEntries; ++i)
      EXPECT(entries[i] == static_cast<T>(kStatus[i] == 0 ? 31 : 10), "%s [%zu]", name, i);
    shmem_barrier_all();
    raise(2, 31);
    raise(5, 31);
    call(entries, kEntries, nullptr, SHMEM_CMP_GE, Compared<T>(30));
    EXPECT(entries[2] == static_cast<T>(31) && entries[5] == static_cast<T>(31), "%s", name);
    call(entries, std::size_t{0}, nullptr, SHMEM_CMP_EQ, Compared<T>(1));  // nothing to wait for
  });
}
template <class T, class F>
void wait_until_all_vector(const char* name, F call, std::nullptr_t) {
  wait_until_all<T>(name, call, nullptr);
}

// Every entry that counts is found: once, if it is excluded when found, and not before it is
// raised.
template <class T, class Find>
void all_are_found(const char* name, T* entries, const Find& find) {
  std::vector<int> status(kStatus, kStatus + kEntries);
  for (std::size_t found = 0; found < kEntries - 2;) {
    for (const std::size_t i : find(status.data())) {
      EXPECT(i < kEntries && status[i] == 0 && entries[i] == static_cast<T>(31), "%s [%zu]", name, i);
      if (i >= kEntries) return;
      status[i] = 1;
      ++found;
    }
  }
  EXPECT(std::count(status.begin(), status.end(), 0) == 0, "%s", name);
}

template <class T, class F>
void wait_until_any(const char* name, F call, std::nullptr_t) {
  with_entries<T>([&](T* entries, auto raise) {
    for (std::size_t i = kEntries; i-- > 0;) {
      if (kStatus[i] == 0) raise(i, 31);
    }
    all_are_found(name, entries, [&](const int* status) {
      return std::vector<std::size_t>{call(entries, kEntries, status, SHMEM_CMP_GE, Compared<T>(30))};
    });
    const int none[kEntries] = {1, 1, 1, 1, 1, 1, 1, 1};
    EXPECT(call(entries, kEntries, none, SHMEM_CMP_EQ, Compared<T>(1)) == SIZE_MAX, "%s", name);
    EXPECT(call(entries, std::size_t{0}, nullptr, SHMEM_CMP_EQ, Compared<T>(1)) == SIZE_MAX, "%s", name);
    // If two entries are met, a series of calls returns both.
    bool seen[kEntries] = {};
    for (int k = 0; k < 64; ++k) {
      const std::size_t i = call(entries, kEntries, kStatus, SHMEM_CMP_GE, Compared<T>(30));
      if (i < kEntries) seen[i] = true;
    }
    for (std::size_t i = 0; i < kEntries; ++i) EXPECT(seen[i] == (kStatus[i] == 0), "%s [%zu]", name, i);
  });
}
template <class T, class F>
void wait_until_any_vector(const char* name, F call, std::nullptr_t) {
  wait_until_any<T>(name, call, nullptr);
}
template <class T, class F>
void wait_until_some(const char* name, F call, std::nullptr_t) {
  with_entries<T>([&](T* entries, auto raise) {
    for (std::size_t i = kEntries; i-- > 0;) {
      if (kStatus[i] == 0) raise(i, 31);
    }
    all_are_found(name, entries, [&](const int* status) {
      std::vector<std::size_t> indices(kEntries);
      indices.resize(call(entries, kEntries, indices.data(), status, SHMEM_CMP_GE, Compared<T>(30)));
      EXPECT(!indices.empty(), "%s", name);
      return indices;
    });
    std::size_t untouched = 77;
    const int none[kEntries] = {1, 1, 1, 1, 1, 1, 1, 1};
    EXPECT(call(entries, kEntries, &untouched, none, SHMEM_CMP_EQ, Compared<T>(1)) == 0, "%s", name);
    EXPECT(untouched == 77, "%s", name);
  });
}
template <class T, class F>
void wait_until_some_vector(const char* name, F call, std::nullptr_t) {
  wait_until_some<T>(name, call, nullptr);
}

template <class T, class F>
void test_all(const char* name, F call, std::nullptr_t) {
  with_entries<T>([&](T* entries, auto raise) {
    EXPECT(call(entries, kEntries, nullptr, SHMEM_CMP_GE, Compared<T>(30)) == 0, "%s", name);
    EXPECT(call(entries, std::size_t{0}, nullptr, SHMEM_CMP_GE, Compared<T>(30)) == 1, "%s", name);
    shmem_barrier_all();
    for (std::size_t i = 0; i < kEntries; ++i) {
      if (kStatus[i] == 0) raise(i, 31);
    }
    while (call(entries, kEntries, kStatus, SHMEM_CMP_GE, Compared<T>(30)) == 0) sched_yield();
    for (std::size_t i = 0; i < kEntries; ++i)
      EXPECT(kStatus[i] != 0 || entries[i] == static_cast<T>(31), "%s [%zu]", name, i);
    EXPECT(call(entries, kEntries, nullptr, SHMEM_CMP_GE, Compared<T>(30)) == 0, "%s: 2 and 5 count now", name);
  });
}
template <class T, class F>
void test_all_vector(const char* name, F call, std::nullptr_t) {
  test_all<T>(name, call, nullptr);
}
template <class T, class F>
void test_any(const char* name, F call, std::nullptr_t) {
  with_entries<T>([&](T* entries, auto raise) {
    EXPECT(call(entries, kEntries, nullptr, SHMEM_CMP_GE, Compared<T>(30)) == SIZE_MAX, "%s", name);
    shmem_barrier_all();
    for (std::size_t i = 0; i < kEntries; ++i) {
      if (kStatus[i] == 0) raise(i, 31);
    }
    all_are_found(name, entries, [&](const int* status) {
      const std::size_t i = call(entries, kEntries, status, SHMEM_CMP_GE, Compared<T>(30));
      return i == SIZE_MAX ? std::vector<std::size_t>{} : std::vector<std::size_t>{i};
    });
  });
}
template <class T, class F>
void test_any_vector(const char* name, F call, std::nullptr_t) {
  test_any<T>(name, call, nullptr);
}
template <class T, class F>
void test_some(const char* name, F call, std::nullptr_t) {
  with_entries<T>([&](T* entries, auto raise) {
    std::vector<std::size_t> found(kEntries);
    EXPECT(call(entries, kEntries, found.data(), nullptr, SHMEM_CMP_GE, Compared<T>(30)) == 0, "%s", name);
    shmem_barrier_all();
    for (std::size_t i = 0; i < kEntries; ++i) {
      if (kStatus[i] == 0) raise(i, 31);
    }
    all_are_found(name, entries, [&](const int* status) {
      std::vector<std::size_t> indices(kEntries);
      indices.resize(call(entries, kEntries, indices.data(), status, SHMEM_CMP_GE, Compared<T>(30)));
      return indices;
    });
  });
}
template <class T, class F>
void test_some_vector(const char* name, F call, std::nullptr_t) {
  test_some<T>(name, call, nullptr);
}

}  // namespace checks
