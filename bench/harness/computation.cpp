#include "harness/computation.hpp"

#include <algorithm>

#include "harness/channel.hpp"

namespace heddle::bench::harness {

namespace {

constexpr std::uint64_t kSteps = 1U << 16;

// Steps per nanosecond in the fastest of several tries, which nothing interrupted.
template <class Steps>
double fastest(Steps&& steps) {
  double best = 0;
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t begin = now_ns();
    steps(kSteps);
    const std::uint64_t took = std::max<std::uint64_t>(now_ns() - begin, 1);
    best = std::max(best, static_cast<double>(kSteps) / static_cast<double>(took));
  }
  return best;
}

}  // namespace

double core_ghz() {
  return fastest([](std::uint64_t count) {
    std::uint64_t sum = 0;
    std::uint64_t step = 1;
    for (std::uint64_t n = 0; n < count; n += 16) {
      for (int unrolled = 0; unrolled < 16; ++unrolled) {
        // The compiler knows neither of them, so each sum needs the one before.
        asm volatile("" : "+r"(sum), "+r"(step));
        sum += step;
      }
    }
    asm volatile("" : : "r"(sum));
  });
}

Computation::Computation() : steps_per_ns_(fastest([this](std::uint64_t count) { steps(count); })) {}

void Computation::run(std::uint64_t ns) {
  steps(static_cast<std::uint64_t>(static_cast<double>(ns) * steps_per_ns_));
}

// Each needs the one before; the compiler knows none of them.
void Computation::steps(std::uint64_t count) {
  std::uint64_t state = state_;
  for (std::uint64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    asm volatile("" : "+r"(state));
  }
  state_ = state;
}

}  // namespace heddle::bench::harness
