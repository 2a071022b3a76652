#include "harness/spread.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "harness/stamp.hpp"

namespace heddle::bench::harness {
namespace {

TEST(Spread, NothingIsNothing) {
  EXPECT_EQ(Spread().middle_mean(), 0);
  EXPECT_EQ(Spread().count(), 0U);
}

TEST(Spread, EqualValuesAreTheirMeanWhateverTheirSize) {
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
// out.
TEST(Spread, InterruptionsAreLeftOut) {
  Spread spread;
  for (std::uint64_t i = 0; i < 18; ++i) spread.add(20 + i);
  spread.add(0);
  spread.add(4'000'000);
  EXPECT_DOUBLE_EQ(spread.middle_mean(), 28.5);
}

// Between two ticks of a coarse counter lies what neither of them says.
TEST(Spread, AMixtureOfTicksIsBetweenThem) {
  Spread spread;
  for (int i = 0; i < 300; ++i) spread.add(i % 3 == 0 ? 44 : 22);
  EXPECT_GT(spread.middle_mean(), 26);
  EXPECT_LT(spread.middle_mean(), 32);
}

TEST(Spread, PartsMakeTheWhole) {
  const auto whole = std::make_unique<Spread>();
  const auto left = std::make_unique<Spread>();
  const auto right = std::make_unique<Spread>();
  for (std::uint64_t i = 0; i < 1000; ++i) {
    whole->add(i * i);
    (i % 2 == 0 ? left : right)->add(i * i);
  }
  left->merge(*right);
  EXPECT_EQ(left->count(), 1000U);
  EXPECT_DOUBLE_EQ(left->middle_mean(), whole->middle_mean());
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
}  // namespace heddle::bench::harness
