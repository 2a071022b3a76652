// Every collective, with every type, on teams and active sets of many shapes. Each PE computes the
// expected values itself. Calls follow each other without synchronisation, except where the
// standard requires it, so that a word reused too early is noticed.
#include <shmem.h>
#include <shmemx.h>

#include <algorithm>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "check.h"

namespace {

constexpr std::size_t kBytes = std::size_t{4} << 20U;  // of each array
// as in the library: up to this many PEs synchronise in one round
constexpr int kRadix = 8;
unsigned char* source_array;
unsigned char* dest_array;
long psyncs[2][SHMEM_SYNC_SIZE];
long work_array[1 << 16];
unsigned calls;  // number of the call; the same on all PEs of a team

// The members of a team or active set: PEs start, start + stride…
struct Shape {
  int start;
  int stride;
  int size;
  int me;
  [[nodiscard]] int world(int member) const { return start + member * stride; }
};

template <class T>
struct Value {
  static T of(unsigned x) { return static_cast<T>(x % 3 + 1); }
};
template <class F>
struct Value<std::complex<F>> {
  static std::complex<F> of(unsigned x) { return {static_cast<F>(x % 3 + 1), static_cast<F>(x % 2)}; }
};

// The value of PE `pe` at index i in call number `call`. Small, so that products of floating-point
// numbers are exact.
template <class T>
T value(int pe, std::size_t i, unsigned call) {
  return Value<T>::of(static_cast<unsigned>(pe) * 7U + static_cast<unsigned>(i) * 5U + call * 11U +
                      (static_cast<unsigned>(i) >> 7U));
}

template <class T>
T* fill(int pe, std::size_t n) {
  T* source = reinterpret_cast<T*>(source_array);
  for (std::size_t i = 0; i < n; ++i) source[i] = value<T>(pe, i, calls);
  return source;
}

// A dest that no call has used since the last barrier. All PEs get the same sequence.
std::size_t used;
template <class T>
T* next_dest(std::size_t n) {
  const std::size_t bytes = (n * sizeof(T) + 63) / 64 * 64;
  if (used + bytes > kBytes) {
    used = 0;
    shmem_barrier_all();
  }
  T* dest = reinterpret_cast<T*>(dest_array + used);
  used += bytes;
  return dest;
}

template <class T, class Expected>
void compare(const char* what, const T* got, std::size_t n, const Expected& expected) {
  for (std::size_t i = 0; i < n; ++i) {
    if (got[i] == expected(i)) continue;
    EXPECT(false, "%s of %zu elements with %zu bytes: [%zu] is wrong on PE %d in call %u", what, n, sizeof(T), i,
           shmem_my_pe(), calls);
    return;
  }
}

template <class T, class Op>
T folded(const Shape& shape, int first_members, std::size_t i, const Op& op) {
  T result = value<T>(shape.world(0), i, calls);
  for (int m = 1; m < first_members; ++m) result = static_cast<T>(op(result, value<T>(shape.world(m), i, calls)));
  return result;
}

// ---- data movement, for teams and active sets ----

// Calls: the functions broadcast(dest, source, n, root) and so on, of a team or of an active set.
template <class T, class Calls>
void check_movement(const Shape& shape, const Calls& call, std::size_t n) {
  const auto members = static_cast<std::size_t>(shape.size);
  const auto mine = static_cast<std::size_t>(shape.me);
  for (int root = 0; root < shape.size; root += std::max(1, shape.size - 1)) {
    ++calls;
    T* dest = next_dest<T>(n);
    const T before = dest[n - 1];
    call.broadcast(dest, fill<T>(shape.world(shape.me), n), n, root);
    if (call.kRootToo || shape.me != root) {
      compare("broadcast", dest, n, [&](std::size_t i) { return value<T>(shape.world(root), i, calls); });
    } else {
      EXPECT(dest[n - 1] == before, "the root's dest");
    }
  }
  ++calls;
  T* dest = next_dest<T>(n * members);
  call.fcollect(dest, fill<T>(shape.world(shape.me), n), n);
  compare("fcollect", dest, n * members,
          [&](std::size_t i) { return value<T>(shape.world(static_cast<int>(i / n)), i % n, calls); });
  ++calls;
  std::vector<T> whole;
  for (int m = 0; m < shape.size; ++m) {  // the first and every third contribute nothing
    for (std::size_t i = 0; i < n * static_cast<std::size_t>(m % 3); ++i)
      whole.push_back(value<T>(shape.world(m), i, calls));
  }
  dest = next_dest<T>(3 * n * members);
  const std::size_t own = n * static_cast<std::size_t>(shape.me % 3);
  call.collect(dest, fill<T>(shape.world(shape.me), own), own);
  compare("collect", dest, whole.size(), [&](std::size_t i) { return whole[i]; });
  ++calls;
  dest = next_dest<T>(n * members);
  call.alltoall(dest, fill<T>(shape.world(shape.me), n * members), n);
  compare("alltoall", dest, n * members,
          [&](std::size_t i) { return value<T>(shape.world(static_cast<int>(i / n)), mine * n + i % n, calls); });
  shmem_quiet();
  ++calls;
  dest = next_dest<T>(2 * n * members);
  call.alltoalls(dest, fill<T>(shape.world(shape.me), 3 * n * members), 2, 3, n);
  for (std::size_t i = 0; i < n * members; ++i) {
    const T expected = value<T>(shape.world(static_cast<int>(i / n)), (mine * n + i % n) * 3, calls);
    EXPECT(dest[2 * i] == expected, "alltoalls of %zu: element %zu", n, i);
  }
}

struct OnTeam {
  shmem_team_t team;
  static constexpr bool kRootToo = true;
  static void worked(int status) { EXPECT(status == 0, "%d", status); }
  template <class T>
  void broadcast(T* dest, const T* source, std::size_t n, int root) const {
    worked(shmem_broadcast(team, dest, source, n, root));
  }
  template <class T>
  void fcollect(T* dest, const T* source, std::size_t n) const {
    worked(shmem_fcollect(team, dest, source, n));
  }
  template <class T>
  void collect(T* dest, const T* source, std::size_t n) const {
    worked(shmem_collect(team, dest, source, n));
  }
  template <class T>
  void alltoall(T* dest, const T* source, std::size_t n) const {
    worked(shmem_alltoall(team, dest, source, n));
  }
  template <class T>
  void alltoalls(T* dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst, std::size_t n) const {
    worked(shmem_alltoalls(team, dest, source, dst, sst, n));
  }
};

// In 32 and 64 bits, with two pSync in turn and a barrier of the set between their uses.
struct OnActiveSet {
  int start;
  int log_stride;
  int size;
  static constexpr bool kRootToo = false;
  [[nodiscard]] long* psync() const {
    shmem_barrier(start, log_stride, size, psyncs[1]);
    for (const long word : psyncs[0]) EXPECT(word == SHMEM_SYNC_VALUE, "pSync holds %ld", word);
    shmem_sync(start, log_stride, size, psyncs[1]);
    return psyncs[0];
  }
#define ACTIVE(NAME, DECLARED, PASSED)                     \
  template <class T>                                       \
  void NAME DECLARED const {                               \
    if constexpr (sizeof(T) == 4) shmem_##NAME##32 PASSED; \
    if constexpr (sizeof(T) == 8) shmem_##NAME##64 PASSED; \
  }
  ACTIVE(broadcast, (T * dest, const T* source, std::size_t n, int root),
         (dest, source, n, root, start, log_stride, size, psync()))
  ACTIVE(fcollect, (T * dest, const T* source, std::size_t n), (dest, source, n, start, log_stride, size, psync()))
  ACTIVE(collect, (T * dest, const T* source, std::size_t n), (dest, source, n, start, log_stride, size, psync()))
  ACTIVE(alltoall, (T * dest, const T* source, std::size_t n), (dest, source, n, start, log_stride, size, psync()))
  ACTIVE(alltoalls, (T * dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst, std::size_t n),
         (dest, source, dst, sst, n, start, log_stride, size, psync()))
#undef ACTIVE
};

// ---- reductions ----

template <class T>
struct Ordered : std::true_type {};
template <class F>
struct Ordered<std::complex<F>> : std::false_type {};

template <class T, class Call, class Op>
void check_reduction(const char* what, const Shape& shape, std::size_t n, const Call& call, const Op& op) {
  ++calls;
  T* source = fill<T>(shape.world(shape.me), n);
  T* dest = next_dest<T>(n);
  EXPECT(call(dest, source, n) == 0, "%s", what);
  compare(what, dest, n, [&](std::size_t i) { return folded<T>(shape, shape.size, i, op); });
  // In place. When the call returns, this PE may use the vector again.
  ++calls;
  dest = next_dest<T>(n);
  for (std::size_t i = 0; i < n; ++i) dest[i] = value<T>(shape.world(shape.me), i, calls);
  EXPECT(call(dest, dest, n) == 0, "%s", what);
  compare(what, dest, n, [&](std::size_t i) { return folded<T>(shape, shape.size, i, op); });
}

template <class T>
void check_reductions(const Shape& shape, shmem_team_t team, std::size_t n) {
  const auto sum = [](T a, T b) { return a + b; };
  const auto product = [](T a, T b) { return a * b; };
#define TEAM(NAME) [=](T* dest, const T* source, std::size_t count) { return NAME(team, dest, source, count); }
  check_reduction<T>("sum", shape, n, TEAM(shmem_sum_reduce), sum);
  check_reduction<T>("product", shape, n, TEAM(shmem_prod_reduce), product);
  if constexpr (Ordered<T>::value) {
    check_reduction<T>("max", shape, n, TEAM(shmem_max_reduce), [](T a, T b) { return std::max(a, b); });
    check_reduction<T>("min", shape, n, TEAM(shmem_min_reduce), [](T a, T b) { return std::min(a, b); });
  }
  if constexpr (std::is_unsigned_v<T> || std::is_same_v<T, int> || std::is_same_v<T, long>) {
    check_reduction<T>("and", shape, n, TEAM(shmem_and_reduce), [](T a, T b) { return a & b; });
    check_reduction<T>("or", shape, n, TEAM(shmem_or_reduce), [](T a, T b) { return a | b; });
    check_reduction<T>("xor", shape, n, TEAM(shmem_xor_reduce), [](T a, T b) { return a ^ b; });
  }
#undef TEAM
  for (const bool inclusive : {false, true}) {
    for (const bool in_place : {false, true}) {
      ++calls;
      T* dest = next_dest<T>(n);
      T* source = fill<T>(shape.world(shape.me), n);
      if (in_place) source = std::copy_n(source, n, dest) - n;
      const int status =
          inclusive ? shmemx_sum_inscan(team, dest, source, n) : shmemx_sum_exscan(team, dest, source, n);
      EXPECT(status == 0, "scan");
      const int members = inclusive ? shape.me + 1 : shape.me;
      compare("scan", dest, n, [&](std::size_t i) { return members == 0 ? T{} : folded<T>(shape, members, i, sum); });
    }
  }
}

template <class... T>
void check_team_types(const Shape& shape, shmem_team_t team) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{7}, std::size_t{301}}) {
    (check_reductions<T>(shape, team, n), ...);
  }
}

void check_team(shmem_team_t team, const Shape& shape) {
  const OnTeam call{team};
  check_team_types<char, signed char, short, int, long, long long, unsigned char, unsigned short, unsigned,
                   unsigned long, unsigned long long, float, double, long double, std::complex<float>,
                   std::complex<double>>(shape, team);
  check_movement<char>(shape, call, 1);
  check_movement<char>(shape, call, 57);
  check_movement<short>(shape, call, 333);
  check_movement<long double>(shape, call, 100);
  check_movement<double>(shape, call, 700);
  check_movement<unsigned long long>(shape, call, 2500);
  check_reductions<int>(shape, team, 1025);
  check_reductions<double>(shape, team, 30000);
  check_reductions<std::complex<float>>(shape, team, 10001);
  check_reductions<unsigned char>(shape, team, 70001);
}

void check_teams() {
  const int me = shmem_my_pe();
  const int n = shmem_n_pes();
  check_team(SHMEM_TEAM_WORLD, {0, 1, n, me});
  if (n <= kRadix) {  // with more PEs this team would repeat the test of the world
    shmem_team_t team = SHMEM_TEAM_INVALID;
    EXPECT(shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, nullptr, 0, &team) == 0, "reversed");
    check_team(team, {n - 1, -1, n, n - 1 - me});
    shmem_team_destroy(team);
    shmem_barrier_all();
  }
  // Rows of three PEs, all at the same time.
  shmem_team_t row = SHMEM_TEAM_INVALID;
  shmem_team_t column = SHMEM_TEAM_INVALID;
  EXPECT(shmem_team_split_2d(SHMEM_TEAM_WORLD, 3, nullptr, 0, &row, nullptr, 0, &column) == 0, "rows and columns");
  const int width = std::min(3, n);
  const unsigned before = calls;
  // The rows must not need a barrier of all PEs, which they do not reach together: few bytes.
  for (int round = 0; round < 3; ++round) {
    check_team_types<int, long double>({me / width * width, 1, shmem_team_n_pes(row), me % width}, row);
  }
  calls = before + 1000;
  shmem_barrier_all();
  for (int round = 0; round < 3; ++round) {
    check_team_types<int, long double>({me % width, width, shmem_team_n_pes(column), me / width}, column);
  }
  calls = before + 2000;
  shmem_barrier_all();
  shmem_team_destroy(row);
  shmem_team_destroy(column);
}

template <class T, class Call, class Op>
void check_active_reduction(const char* what, const Shape& shape, const OnActiveSet& set, const Call& call,
                            const Op& op) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{5000}}) {
    check_reduction<T>(
        what, shape, n,
        [&](T* dest, const T* source, std::size_t count) {
          call(dest, source, static_cast<int>(count), set.start, set.log_stride, set.size,
               reinterpret_cast<T*>(work_array), set.psync());
          return 0;
        },
        op);
  }
}

void check_active_set(int start, int log_stride, int size) {
  const int stride = 1 << log_stride;
  const int distance = shmem_my_pe() - start;
  const unsigned before = calls;
  if (distance >= 0 && distance % stride == 0 && distance / stride < size) {
    const OnActiveSet set{start, log_stride, size};
    const Shape shape{start, stride, size, distance / stride};
    check_active_reduction<int>("int_sum", shape, set, shmem_int_sum_to_all, [](int a, int b) { return a + b; });
    check_active_reduction<long>("long_xor", shape, set, shmem_long_xor_to_all, [](long a, long b) { return a ^ b; });
    check_active_reduction<double>("double_max", shape, set, shmem_double_max_to_all,
                                   [](double a, double b) { return std::max(a, b); });
    check_active_reduction<short>("short_prod", shape, set, shmem_short_prod_to_all,
                                  [](short a, short b) { return a * b; });
    check_movement<int>(shape, set, 3);
    check_movement<double>(shape, set, 600);
    check_movement<long>(shape, set, 1500);
  }
  calls = before + 1000;
  EXPECT(used <= kBytes / 2, "%zu: the next set might need more, and its members alone cannot begin anew", used);
  used = 0;
  shmem_barrier_all();
}

// Programs use a collective for order. Here only the sync orders the PEs.
void check_order() {
  static long words[64];
  const int me = shmem_my_pe();
  const int n = std::min(shmem_n_pes(), 64);
  for (long round = 1; round <= 300; ++round) {
    for (int pe = 0; pe < n; ++pe) {
      if (me < 64) shmem_p(&words[me], round, pe);
    }
    if (round % 3 == 0) {
      shmem_barrier_all();
    } else {
      shmem_quiet();
      EXPECT((round % 3 == 1 ? shmem_sync(SHMEM_TEAM_WORLD) : shmem_team_sync(SHMEM_TEAM_WORLD)) == 0, "sync");
    }
    for (int pe = 0; pe < n; ++pe) EXPECT(words[pe] >= round, "words[%d] is %ld in round %ld", pe, words[pe], round);
    shmem_sync_all();
  }
}

}  // namespace

int main(int argc, char**) {
  // With SHMEM_THREAD_MULTIPLE, active sets never use a team.
  const bool threads = argc > 1;
  int provided = 0;
  shmem_init_thread(threads ? SHMEM_THREAD_MULTIPLE : SHMEM_THREAD_SINGLE, &provided);
  source_array = static_cast<unsigned char*>(shmem_calloc(kBytes, 1));
  dest_array = static_cast<unsigned char*>(shmem_calloc(kBytes, 1));
  EXPECT(source_array != nullptr && dest_array != nullptr, "memory");
  const int n = shmem_n_pes();
  check_order();
  if (!threads) check_teams();
  used = 0;
  shmem_barrier_all();
  check_active_set(0, 0, n);
  check_active_set(n / 2, 0, n - n / 2);
  check_active_set(0, 1, (n + 1) / 2);
  if (n > 1) check_active_set(1, 2, (n + 2) / 4);
  shmem_free(dest_array);
  shmem_free(source_array);
  if (failures == 0) std::printf("PE %d of %d: all is well\n", shmem_my_pe(), n);
  shmem_finalize();
  return failures != 0 ? 1 : 0;
}
