#include "harness/computation.hpp"

#include <algorithm>

#include "harness/channel.hpp"

namespace heddle::bench::harness {

namespace {

constexpr int kTries = 20;
constexpr std::uint64_t kSteps = 50'000;

}  // namespace

Computation::Computation() {
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t begin = now_ns();
    steps(kSteps);
    const std::uint64_t took = std::max<std::uint64_t>(now_ns() - begin, 1);
    best = std::max(best, static_cast<double>(kSteps) / static_cast<double>(took));
  }
  steps_per_ns_ = best;
}

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
