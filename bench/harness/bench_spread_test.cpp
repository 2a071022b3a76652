#include "harness/statistics.hpp"

#include <gtest/gtest.h>

#include <cstdint>

#include "harness/core_time.hpp"

namespace heddle::bench::harness::bench_spread_test {
namespace {

TEST(Spread, EqualValuesAreTheirMeanWhateverTheirSize) {
  EXPECT_EQ(Spread().middle_mean(), 0);
  for (const std::uint64_t value :
       {0ULL, 1ULL, 63ULL, 64ULL, 65ULL, 127ULL, 128ULL, 1'000'003ULL, (1ULL << 62) + 12345}) {
    Spread spread;
    for (int i = 0; i < 3; ++i) spread.add(value);
    EXPECT_NEAR(spread.middle_mean(), static_cast<double>(value), 1e-9 * static_cast<double>(value)) << value;
  }
  Spread largest;
  largest.add(~0ULL);
  EXPECT_EQ(largest.count(), 1U) << "the last class is there";
}

// 20 of 20 to 39 cycles, one of a lost time slice, one of 0: the twentieths at both ends are left
// out. The spread is made of two parts that were collected apart.
TEST(Spread, InterruptionsAreLeftOut) {
  Spread parts[2];
  for (std::uint64_t i = 0; i < 18; ++i) parts[i % 2].add(20 + i);
  parts[0].add(0);
  parts[1].add(4'000'000);
  parts[0].merge(parts[1]);
  EXPECT_EQ(parts[0].count(), 20U);
  EXPECT_DOUBLE_EQ(parts[0].middle_mean(), 28.5);
}

TEST(Stamp, TicksAreTime) {
  const TickRate rate = measure_ticks();
  EXPECT_GT(rate.empty_ns, 0);
  EXPECT_GT(rate.core_ghz, 0.01);
  const std::uint64_t ticks = stamp();
  const std::uint64_t begin = now_ns();
  std::uint64_t end = begin;
  while (end - begin < 20'000'000) end = now_ns();
  const double measured = static_cast<double>(stamp() - ticks) * rate.ns_per_tick;
  // The stamps are outside of the clock's times, so it is longer by what interrupts them; never
  // shorter.
  EXPECT_GT(measured, 0.98 * static_cast<double>(end - begin));
}

}  // namespace
}  // namespace heddle::bench::harness::bench_spread_test
