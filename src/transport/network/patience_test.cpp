#include "transport/network/losses.hpp"

#include <gtest/gtest.h>

namespace heddle::transport::network::patience_test {
namespace {

constexpr std::uint64_t kMost = 3000;

TEST(Patience, EndsAfterTheTimeInWhichItWasTried) {
  Patience patience;
  std::uint64_t now = 50;
  EXPECT_FALSE(patience.over(now, kMost));
  for (int i = 0; i < 29; ++i) EXPECT_FALSE(patience.over(now += 100, kMost)) << i;
  EXPECT_TRUE(patience.over(now += 100, kMost));
}

TEST(Patience, APauseIsNoTry) {
  Patience patience;
  EXPECT_FALSE(patience.over(50, kMost));
  EXPECT_FALSE(patience.over(1'000'000, kMost)) << "the process was stopped";
  EXPECT_FALSE(patience.over(1'001'000, kMost));
  EXPECT_TRUE(patience.over(1'002'000, kMost));
}

TEST(Patience, WhatHasGoneWellBeginsAnew) {
  Patience patience;
  for (std::uint64_t now = 50; now < 3000; now += 500) EXPECT_FALSE(patience.over(now, kMost));
  patience.renew();
  EXPECT_FALSE(patience.over(3500, kMost));
  EXPECT_FALSE(patience.over(4000, kMost));
}

}  // namespace
}  // namespace heddle::transport::network::patience_test
