// Waits for and tests of values in this PE's symmetric memory.
//
// Loads are acquire: a thread that sees a value sees everything put before it. Partner: the peer's
// store after its fence, its atomic or its signal.
#pragma once

#include <cstdint>

#include "openshmem/patience.hpp"
#include "openshmem/state.hpp"

namespace heddle::shmem {

[[noreturn, gnu::cold]] void bad_compare(Call call, int cmp);
void explain_waited(Call call, const char* argument, const void* address, std::size_t elements, std::size_t bytes,
                    int cmp);
// Ends the job if the program cannot wait for these words. Direct and aligned words are valid;
// explain_waited() checks the rest.
[[gnu::always_inline]] inline void check_waited(Call call, const char* argument, const void* address,
                                                std::size_t elements, std::size_t bytes, int cmp) {
  std::size_t length = 0;
  if (static_cast<unsigned>(cmp) <= SHMEM_CMP_LE && is_aligned(address, bytes) &&
      !__builtin_mul_overflow(elements, bytes, &length) && direct(World{}, address, length, g_state.my_pe) != nullptr)
      [[likely]] {
    return;
  }
  explain_waited(call, argument, address, elements, bytes, cmp);
}
// The index at which a search among n > 0 begins. It changes with each call, so that every entry
// that is true is returned at some time.
std::size_t first_of(std::size_t n);

template <class T>
[[gnu::always_inline]] inline bool compares(T left, int cmp, T right) {
  switch (cmp) {
    case SHMEM_CMP_EQ:
      return left == right;
    case SHMEM_CMP_NE:
      return left != right;
    case SHMEM_CMP_GT:
      return left > right;
    case SHMEM_CMP_GE:
      return left >= right;
    case SHMEM_CMP_LT:
      return left < right;
    default:
      return left <= right;
  }
}

template <class T>
[[gnu::always_inline]] inline bool holds(const T* ivar, int cmp, T value) {
  return compares(__atomic_load_n(ivar, __ATOMIC_ACQUIRE), cmp, value);
}

// Describes a wait for its report.
struct WantedWord {
  int cmp;
  std::uint64_t value;
};
[[gnu::cold]] void tell_word(heddle_wait_facts& facts, const void* address, std::uint64_t holds, WantedWord wanted);
[[gnu::cold]] void tell_words(heddle_wait_facts& facts, const void* address, std::size_t count);

// The conditions of one call: one value for all entries, or one for each.
template <class T>
struct Conditions {
  const T* ivars;
  std::size_t nelems;
  const int* status;  // null: all entries count; else only those whose status is 0
  int cmp;
  T value;
  const T* values;  // null: `value` for all
  Call call;

  [[nodiscard]] bool counts(std::size_t i) const { return status == nullptr || status[i] == 0; }
  [[nodiscard]] bool meets(std::size_t i) const { return holds(ivars + i, cmp, values == nullptr ? value : values[i]); }
  [[nodiscard]] bool empty() const {
    for (std::size_t i = 0; i < nelems; ++i) {
      if (counts(i)) return false;
    }
    return true;
  }
  // The first unmet entry from `i` on; nelems: there is none.
  [[nodiscard]] std::size_t unmet(std::size_t i) const {
    while (i < nelems && (!counts(i) || meets(i))) ++i;
    return i;
  }
  [[nodiscard]] std::size_t any() const {
    if (nelems == 0) return SIZE_MAX;
    std::size_t i = first_of(nelems);
    for (std::size_t k = 0; k < nelems; ++k, i = i + 1 == nelems ? 0 : i + 1) {
      if (counts(i) && meets(i)) return i;
    }
    return SIZE_MAX;
  }
  [[nodiscard]] std::size_t some(std::size_t* indices) const {
    std::size_t found = 0;
    for (std::size_t i = 0; i < nelems; ++i) {
      if (counts(i) && meets(i)) indices[found++] = i;
    }
    return found;
  }
};

template <class T>
inline Conditions<T> conditions(Call call, const T* ivars, std::size_t nelems, const int* status, int cmp, T value,
                                const T* values) {
  check_waited(call, "ivars", ivars, nelems, sizeof(T), cmp);
  return {ivars, nelems, status, cmp, value, values, call};
}

template <class T>
void wait_all(const Conditions<T>& set) {
  std::size_t i = 0;
  // An entry that was met once counts as met: the standard waits for each entry, not for all at the
  // same time.
  wait_until_true(
      set.call, default_context().worker, [&] { return (i = set.unmet(i)) == set.nelems; },
      [&](heddle_wait_facts& facts) { tell_words(facts, set.ivars, set.nelems); });
}
template <class T>
std::size_t wait_any(const Conditions<T>& set) {
  if (set.empty()) return SIZE_MAX;
  std::size_t i = SIZE_MAX;
  wait_until_true(
      set.call, default_context().worker, [&] { return (i = set.any()) != SIZE_MAX; },
      [&](heddle_wait_facts& facts) { tell_words(facts, set.ivars, set.nelems); });
  return i;
}
template <class T>
std::size_t wait_some(const Conditions<T>& set, std::size_t* indices) {
  if (set.empty()) return 0;
  std::size_t found = 0;
  wait_until_true(
      set.call, default_context().worker, [&] { return (found = set.some(indices)) != 0; },
      [&](heddle_wait_facts& facts) { tell_words(facts, set.ivars, set.nelems); });
  return found;
}
template <class T>
[[gnu::noinline]] void failed_look(const Conditions<T>& set) {
  failed_test(set.call, [&](heddle_wait_facts& facts) { tell_words(facts, set.ivars, set.nelems); });
}
template <class T>
int look_all(const Conditions<T>& set) {
  if (set.unmet(0) == set.nelems) return 1;
  failed_look(set);
  return 0;
}
template <class T>
std::size_t look_any(const Conditions<T>& set) {
  const std::size_t i = set.any();
  if (i == SIZE_MAX) failed_look(set);
  return i;
}
template <class T>
std::size_t look_some(const Conditions<T>& set, std::size_t* indices) {
  const std::size_t found = set.some(indices);
  if (found == 0) failed_look(set);
  return found;
}

// The condition that is awaited of a word.
template <class T>
auto telling(const T* ivar, int cmp, T value) {
  return [=](heddle_wait_facts& facts) {
    tell_word(facts, ivar, static_cast<std::uint64_t>(__atomic_load_n(ivar, __ATOMIC_RELAXED)),
              {cmp, static_cast<std::uint64_t>(value)});
  };
}

// Not inlined, so that the case where the value is already there needs no stack.
template <class T>
[[gnu::noinline]] void wait_longer(Call call, const T* ivar, int cmp, T value) {
  wait_until_true(call, default_context().worker, [=] { return holds(ivar, cmp, value); }, telling(ivar, cmp, value));
}
template <class T>
inline void wait_until(Call call, T* ivar, int cmp, T value) {
  check_waited(call, "ivar", ivar, 1, sizeof(T), cmp);
  if (!holds(ivar, cmp, value)) wait_longer(call, ivar, cmp, value);
}
template <class T>
inline void wait(Call call, T* ivar, T value) {
  wait_until(call, ivar, SHMEM_CMP_NE, value);
}
template <class T>
inline int test(Call call, T* ivar, int cmp, T value) {
  check_waited(call, "ivar", ivar, 1, sizeof(T), cmp);
  if (holds(ivar, cmp, value)) return 1;
  failed_test(call, telling(ivar, cmp, value));
  return 0;
}

template <class T>
inline void wait_until_all(Call call, T* ivars, std::size_t nelems, const int* status, int cmp, T value) {
  wait_all(conditions<T>(call, ivars, nelems, status, cmp, value, nullptr));
}
template <class T>
inline void wait_until_all_vector(Call call, T* ivars, std::size_t nelems, const int* status, int cmp,
                                  const T* values) {
  wait_all(conditions<T>(call, ivars, nelems, status, cmp, T{}, values));
}
template <class T>
inline std::size_t wait_until_any(Call call, T* ivars, std::size_t nelems, const int* status, int cmp, T value) {
  return wait_any(conditions<T>(call, ivars, nelems, status, cmp, value, nullptr));
}
template <class T>
inline std::size_t wait_until_any_vector(Call call, T* ivars, std::size_t nelems, const int* status, int cmp,
                                         const T* values) {
  return wait_any(conditions<T>(call, ivars, nelems, status, cmp, T{}, values));
}
template <class T>
inline std::size_t wait_until_some(Call call, T* ivars, std::size_t nelems, std::size_t* indices, const int* status,
                                   int cmp, T value) {
  return wait_some(conditions<T>(call, ivars, nelems, status, cmp, value, nullptr), indices);
}
template <class T>
inline std::size_t wait_until_some_vector(Call call, T* ivars, std::size_t nelems, std::size_t* indices,
                                          const int* status, int cmp, const T* values) {
  return wait_some(conditions<T>(call, ivars, nelems, status, cmp, T{}, values), indices);
}
template <class T>
inline int test_all(Call call, T* ivars, std::size_t nelems, const int* status, int cmp, T value) {
  return look_all(conditions<T>(call, ivars, nelems, status, cmp, value, nullptr));
}
template <class T>
inline int test_all_vector(Call call, T* ivars, std::size_t nelems, const int* status, int cmp, const T* values) {
  return look_all(conditions<T>(call, ivars, nelems, status, cmp, T{}, values));
}
template <class T>
inline std::size_t test_any(Call call, T* ivars, std::size_t nelems, const int* status, int cmp, T value) {
  return look_any(conditions<T>(call, ivars, nelems, status, cmp, value, nullptr));
}
template <class T>
inline std::size_t test_any_vector(Call call, T* ivars, std::size_t nelems, const int* status, int cmp,
                                   const T* values) {
  return look_any(conditions<T>(call, ivars, nelems, status, cmp, T{}, values));
}
template <class T>
inline std::size_t test_some(Call call, T* ivars, std::size_t nelems, std::size_t* indices, const int* status, int cmp,
                             T value) {
  return look_some(conditions<T>(call, ivars, nelems, status, cmp, value, nullptr), indices);
}
template <class T>
inline std::size_t test_some_vector(Call call, T* ivars, std::size_t nelems, std::size_t* indices, const int* status,
                                    int cmp, const T* values) {
  return look_some(conditions<T>(call, ivars, nelems, status, cmp, T{}, values), indices);
}

inline std::uint64_t signal_fetch(Call call, const std::uint64_t* sig_addr) {
  check_waited(call, "sig_addr", sig_addr, 1, sizeof(std::uint64_t), SHMEM_CMP_EQ);
  // Programs spin on it: its value may not yet be the one that they wait for.
  const std::uint64_t seen = __atomic_load_n(sig_addr, __ATOMIC_RELAXED);
  failed_test(call, telling(sig_addr, SHMEM_CMP_NE, seen));
  return __atomic_load_n(sig_addr, __ATOMIC_ACQUIRE);
}
inline std::uint64_t signal_wait_until(Call call, std::uint64_t* sig_addr, int cmp, std::uint64_t value) {
  check_waited(call, "sig_addr", sig_addr, 1, sizeof(std::uint64_t), cmp);
  std::uint64_t seen = 0;
  wait_until_true(
      call, default_context().worker,
      [&] {
        seen = __atomic_load_n(sig_addr, __ATOMIC_ACQUIRE);
        return compares(seen, cmp, value);
      },
      [&](heddle_wait_facts& facts) { tell_word(facts, sig_addr, seen, {cmp, value}); });
  return seen;
}

}  // namespace heddle::shmem
