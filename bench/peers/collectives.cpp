// Collectives of OpenSHMEM by 2 or more PEs: barrier, broadcasts and reductions of 8 bytes to 1
// MiB. Built over Heddle's library and over Open MPI's; compare_collectives.py runs the two by
// turns. Deprecated forms, since Open MPI 4.1 has no others.
//
//   collectives REPEATS MILLISECONDS   a line "name microseconds" for each, the median of the
//                                      repeats; "end" if all results were right
#include <shmem.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::size_t kSizes[] = {8, 64, 4096, 65536, kMostBytes};

enum class Kind { barrier, broadcast, reduce };
struct Work {
  Kind kind;
  std::size_t bytes;
};

// All in the heap: Open MPI finds static data of the executable on other PEs only where nothing is
// placed at random.
struct Memory {
  long* source;
  long* dest;
  long* work;
  long* sync[2];  // by turns, so that no barrier is needed between two uses
  long* count;
};

Memory allocate() {
  constexpr std::size_t kSync = std::max(SHMEM_BCAST_SYNC_SIZE, SHMEM_REDUCE_SYNC_SIZE);
  const auto longs = [](std::size_t n) { return static_cast<long*>(shmem_malloc(n * sizeof(long))); };
  constexpr std::size_t kMost = kMostBytes / sizeof(long);
  Memory memory{
      longs(kMost), longs(kMost), longs(kMost + SHMEM_REDUCE_MIN_WRKDATA_SIZE), {longs(kSync), longs(kSync)}, longs(1)};
  for (long* sync : memory.sync) std::fill_n(sync, kSync, SHMEM_SYNC_VALUE);
  for (std::size_t i = 0; i < kMost; ++i) memory.source[i] = static_cast<long>(i) + shmem_my_pe();
  shmem_barrier_all();
  return memory;
}

// A broadcast is followed by a barrier: without one a root may be any number of broadcasts ahead,
// which is no time of one.
void run(const Memory& memory, const Work& work, long times) {
  const int n = shmem_n_pes();
  const std::size_t longs = work.bytes / sizeof(long);
  for (long i = 0; i < times; ++i) {
    switch (work.kind) {
      case Kind::barrier:
        shmem_barrier_all();
        break;
      case Kind::broadcast:
        shmem_broadcast64(memory.dest, memory.source, longs, static_cast<int>(i % n), 0, 0, n, memory.sync[i % 2]);
        shmem_barrier_all();
        break;
      case Kind::reduce:
        shmem_long_sum_to_all(memory.dest, memory.source, static_cast<int>(longs), 0, 0, n, memory.work,
                              memory.sync[i % 2]);
        break;
    }
  }
}

// Of the last of `times` runs.
bool is_right(const Memory& memory, const Work& work, long times) {
  const int n = shmem_n_pes();
  const int root = static_cast<int>((times - 1) % n);
  if (work.kind == Kind::barrier || (work.kind == Kind::broadcast && shmem_my_pe() == root)) return true;
  for (long i = 0; i < static_cast<long>(work.bytes / sizeof(long)); ++i) {
    if (memory.dest[i] != (work.kind == Kind::broadcast ? i + root : n * i + n * (n - 1) / 2)) return false;
  }
  return true;
}

double timed(const Memory& memory, const Work& work, long times) {
  shmem_barrier_all();
  const auto begin = std::chrono::steady_clock::now();
  run(memory, work, times);
  shmem_barrier_all();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  return took.count() / static_cast<double>(times);
}

// What PE 0 finds right for all.
long times_of(const Memory& memory, const Work& work, double microseconds) {
  const double one = timed(memory, work, 20);
  *memory.count = std::max(10L, static_cast<long>(microseconds / one));
  shmem_barrier_all();
  const long times = shmem_long_g(memory.count, 0);
  shmem_barrier_all();
  return times;
}

bool measure(const Memory& memory, const Work& work, int repeats, double microseconds) {
  const long times = times_of(memory, work, microseconds);
  std::vector<double> each;
  for (int i = 0; i < repeats; ++i) each.push_back(timed(memory, work, times));
  std::nth_element(each.begin(), each.begin() + repeats / 2, each.end());
  const bool right = is_right(memory, work, times);
  constexpr const char* kNames[] = {"barrier", "broadcast", "reduce"};
  const char* name = kNames[static_cast<int>(work.kind)];
  if (!right) std::fprintf(stderr, "PE %d: wrong: %s of %zu bytes\n", shmem_my_pe(), name, work.bytes);
  if (shmem_my_pe() == 0) std::printf("%s_%zu %.3f\n", name, work.bytes, each[static_cast<std::size_t>(repeats / 2)]);
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 3;
  const double microseconds = (argc > 2 ? std::atof(argv[2]) : 15) * 1e3;
  shmem_init();
  const Memory memory = allocate();
  bool right = measure(memory, {Kind::barrier, 0}, repeats, microseconds);
  for (const Kind kind : {Kind::broadcast, Kind::reduce}) {
    for (const std::size_t bytes : kSizes) right = measure(memory, {kind, bytes}, repeats, microseconds) && right;
  }
  shmem_barrier_all();
  if (!right) shmem_global_exit(1);
  if (shmem_my_pe() == 0) std::puts("end");
  std::fflush(stdout);
  shmem_finalize();  // where Open MPI 4.1 may crash with 8 PEs
  return 0;
}
