#include "protocol/tagged.hpp"

#include <gtest/gtest.h>

namespace heddle::protocol::copy_costs_test {
namespace {

constexpr std::uint64_t kBytes = 16 << 10;
constexpr std::uint64_t kNear = std::uint64_t{40} * 16;  // ns
constexpr std::uint64_t kFar = std::uint64_t{250} * 16;  // ns

// With the first lap behind it.
CopyCosts warm() {
  CopyCosts costs{};
  for (int i = 0; i < 12; ++i) costs.copied(kBytes, 1'000'000);
  return costs;
}

TEST(CopyCosts, TheFirstLapTellsNothing) {
  CopyCosts costs = warm();
  EXPECT_FALSE(costs.prefers_fetch());
  costs.copied(kBytes, kNear);
  EXPECT_FALSE(costs.prefers_fetch());
}

TEST(CopyCosts, WhatIsUnknownOrNearIsCopied) {
  CopyCosts costs = warm();
  EXPECT_FALSE(costs.prefers_fetch());
  for (int i = 0; i < 100; ++i) {
    costs.copied(kBytes, kNear);
    ASSERT_FALSE(costs.prefers_fetch());
  }
}

TEST(CopyCosts, WhatIsFarIsFetchedButForOneIn32) {
  CopyCosts costs = warm();
  for (int i = 0; i < 8; ++i) costs.copied(kBytes, kFar);
  int copied = 0;
  for (int i = 0; i < 320; ++i) {
    if (costs.prefers_fetch()) continue;
    ++copied;
    costs.copied(kBytes, kFar);
  }
  EXPECT_EQ(copied, 10);
}

TEST(CopyCosts, CoresThatAreNearAgainAreNoticed) {
  CopyCosts costs = warm();
  for (int i = 0; i < 100; ++i) costs.copied(kBytes, kFar);
  int fetched = 0;
  for (int i = 0; i < 1000; ++i) {
    if (costs.prefers_fetch()) {
      ++fetched;
    } else {
      costs.copied(kBytes, kNear);
    }
  }
  EXPECT_LE(fetched, 5 * 32);
}

TEST(CopyCosts, OneThreadThatLosesItsCoreTellsNothing) {
  CopyCosts costs = warm();
  for (int i = 0; i < 10; ++i) costs.copied(kBytes, kNear);
  costs.copied(kBytes, 3'000'000);
  EXPECT_FALSE(costs.prefers_fetch());
  CopyCosts first = warm();
  first.copied(kBytes, 3'000'000);
  EXPECT_FALSE(first.prefers_fetch()) << "nor does the first one";
}

}  // namespace
}  // namespace heddle::protocol::copy_costs_test
