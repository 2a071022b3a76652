// P: half the round trip of a word between two cache lines, one written by each core; the limit of
// every message between these cores. Prints it in nanoseconds, the median of a few. With core
// numbers as arguments, of these two; else of 0 and 1.
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

constexpr int kRounds = 20000;

struct Lines {
  alignas(128) std::atomic<int> there{0};
  alignas(128) std::atomic<int> back{0};
};

bool bind_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set) == 0;
}

double half_round_trip(int first, int second) {
  Lines lines;
  std::thread other([&] {
    if (!bind_to(second)) std::exit(2);
    for (int i = 1; i <= kRounds; ++i) {
      while (lines.there.load(std::memory_order_acquire) != i) continue;
      lines.back.store(i, std::memory_order_release);
    }
  });
  if (!bind_to(first)) std::exit(2);
  const auto before = std::chrono::steady_clock::now();
  for (int i = 1; i <= kRounds; ++i) {
    lines.there.store(i, std::memory_order_release);
    while (lines.back.load(std::memory_order_acquire) != i) continue;
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - before;
  other.join();
  return took.count() / kRounds / 2;
}

}  // namespace

int main(int argc, char** argv) {
  const int first = argc > 2 ? std::atoi(argv[1]) : 0;
  const int second = argc > 2 ? std::atoi(argv[2]) : 1;
  std::array<double, 7> times{};
  for (double& time : times) time = half_round_trip(first, second);
  std::sort(times.begin(), times.end());
  std::printf("%.1f\n", times[times.size() / 2]);
}
