#include "harness/stamp.hpp"

#include <algorithm>
#include <limits>

#include "harness/computation.hpp"

namespace heddle::bench::harness {

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
