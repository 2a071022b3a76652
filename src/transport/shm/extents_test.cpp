#include "transport/shm/segment.hpp"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/random.hpp"

namespace heddle::transport::shm::extents_test {
namespace {

constexpr std::uint64_t kPage = 4096;

TEST(Extents, FirstFitReusesTheLowestHole) {
  Extents extents(kPage, 100 * kPage, kPage);
  const auto a = extents.take(1, kPage);
  const auto b = extents.take(3 * kPage, kPage);
  const auto c = extents.take(kPage, kPage);
  EXPECT_EQ(a, kPage);
  EXPECT_EQ(b, 2 * kPage);
  EXPECT_EQ(c, 5 * kPage);
  extents.give(*b, 3 * kPage);
  EXPECT_EQ(extents.take(2 * kPage, kPage), 2 * kPage);
  EXPECT_EQ(extents.take(2 * kPage, kPage), 6 * kPage) << "one page is left of the hole, that is too little";
  EXPECT_EQ(extents.take(kPage, kPage), 4 * kPage);
}

// A fresh place does not overlap a hole at the end either, though that hole is merged with the
// unused space.
TEST(Extents, FreshPlacesWereNeverUsed) {
  Extents extents(4096, 4096 * 16, 4096);
  const auto low = extents.take(4096, 4096);
  const auto high = extents.take(3 * 4096, 4096);
  ASSERT_TRUE(low && high);
  extents.give(*low, 4096);
  extents.give(*high, 3 * 4096);
  EXPECT_EQ(extents.take_fresh(4096, 4096), 5 * 4096U);
  EXPECT_EQ(extents.take_fresh(4096, 4096), 6 * 4096U);
  EXPECT_EQ(extents.take(4096, 4096), 4096U);
  EXPECT_EQ(extents.take_fresh(10 * 4096, 4096), std::nullopt) << "there are nine fresh pages";
  EXPECT_EQ(extents.take_fresh(9 * 4096, 4096), 7 * 4096U);
}

TEST(Extents, RefusesWhatDoesNotFit) {
  Extents extents(0, 4 * kPage, kPage);
  EXPECT_FALSE(extents.take(5 * kPage, kPage));
  EXPECT_FALSE(extents.take(~std::uint64_t{0}, kPage)) << "rounding up must not wrap";
  EXPECT_FALSE(extents.take(0, kPage));
  EXPECT_TRUE(extents.take(4 * kPage, kPage));
  EXPECT_FALSE(extents.take(1, kPage));
}

TEST(Extents, AlignmentLeavesUsableHoles) {
  Extents extents(kPage, 1024 * kPage, kPage);
  EXPECT_EQ(extents.take(kPage, 16 * kPage), 16 * kPage);
  EXPECT_EQ(extents.take(15 * kPage, kPage), kPage);
}

TEST(Extents, RandomUseNeverOverlapsAndComesBackWhole) {
  base::Random random(7);
  Extents extents(0, 4096 * kPage, kPage);
  std::map<std::uint64_t, std::uint64_t> used;
  for (int step = 0; step < 20000; ++step) {
    if (random.below(2) == 0) {
      const std::uint64_t bytes = 1 + random.below(40 * kPage);
      const std::uint64_t alignment = kPage << random.below(5);
      const auto at = extents.take(bytes, alignment);
      if (!at) continue;
      ASSERT_EQ(*at % alignment, 0U);
      const auto next = used.lower_bound(*at);
      ASSERT_TRUE(next == used.end() || *at + bytes <= next->first);
      ASSERT_TRUE(next == used.begin() || std::prev(next)->first + std::prev(next)->second <= *at);
      used.emplace(*at, bytes);
    } else if (!used.empty()) {
      auto victim = used.begin();
      std::advance(victim, static_cast<long>(random.below(used.size())));
      extents.give(victim->first, victim->second);
      used.erase(victim);
    }
  }
  for (const auto& [at, bytes] : used) extents.give(at, bytes);
  EXPECT_EQ(extents.holes(), 1U);
  EXPECT_EQ(extents.take(4096 * kPage, kPage), 0U);
}

}  // namespace
}  // namespace heddle::transport::shm::extents_test
