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

void answer(Lines& lines, int rounds) {
  for (int i = 1; i <= rounds; ++i) {
    while (lines.there.load(std::memory_order_acquire) != i) continue;
    lines.back.store(i, std::memory_order_release);
  }
}

std::chrono::duration<double, std::nano> ask(Lines& lines, int from, int to) {
  const auto before = std::chrono::steady_clock::now();
  for (int i = from; i <= to; ++i) {
    lines.there.store(i, std::memory_order_release);
    while (lines.back.load(std::memory_order_acquire) != i) continue;
  }
  return std::chrono::steady_clock::now() - before;
}

double half_round_trip(int first, int second) {
  constexpr int kWarm = kRounds / 10;  // until the other thread runs on its core
  Lines lines;
  std::thread other([&lines, second] {
    if (!bind_to(second)) std::exit(2);
    answer(lines, kWarm + kRounds);
  });
  if (!bind_to(first)) std::exit(2);
  ask(lines, 1, kWarm);
  const auto took = ask(lines, kWarm + 1, kWarm + kRounds);
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
