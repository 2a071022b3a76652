#include "harness/core_time.hpp"

#include <algorithm>
#include <limits>

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

namespace {

constexpr std::uint64_t kCalibrationNs = 2'000'000;
constexpr int kTries = 9;
constexpr int kPairs = 20'000;

struct Moment {
  std::uint64_t ticks;
  std::uint64_t ns;
};

// Both clocks at the same moment: the try that was interrupted least.
Moment both_clocks() {
  Moment best{};
  std::uint64_t narrowest = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t before = stamp();
    const std::uint64_t ns = now_ns();
    const std::uint64_t after = stamp();
    if (after - before >= narrowest) continue;
    narrowest = after - before;
    best = {before + narrowest / 2, ns};
  }
  return best;
}

double empty_ticks() {
  Spread spread;
  for (int i = 0; i < kPairs; ++i) {
    const std::uint64_t begin = stamp();
    spread.add(stamp() - begin);
  }
  return spread.middle_mean();
}

}  // namespace

TickRate measure_ticks() {
  const Moment begin = both_clocks();
  while (now_ns() - begin.ns < kCalibrationNs) base::cpu_relax();
  const Moment end = both_clocks();
  TickRate rate;
  rate.ns_per_tick =
      static_cast<double>(end.ns - begin.ns) / static_cast<double>(std::max<std::uint64_t>(end.ticks - begin.ticks, 1));
  rate.empty_ns = empty_ticks() * rate.ns_per_tick;
  rate.core_ghz = core_ghz();
  return rate;
}

std::vector<double> times_of(const Spread& post, const Spread& total, const TickRate& rate) {
  const auto ns = [&](const Spread& spread) {
    // Never 0: a time shorter than the stamps' own time cannot be told apart from it.
    return std::max(spread.middle_mean() * rate.ns_per_tick - rate.empty_ns, 0.01);
  };
  return {ns(post), ns(post) * rate.core_ghz, ns(total)};
}

}  // namespace heddle::bench::harness
