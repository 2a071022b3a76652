#include "protocol/credits.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace heddle::protocol::user_credits_test {
namespace {

TEST(UserCredits, AMessageNeverCountsMoreThanHalfAWindow) {
  EXPECT_EQ(credit_charge(0, 0, 4096), 448U);
  EXPECT_EQ(credit_charge(0, 256, 4096), 448U);
  EXPECT_EQ(credit_charge(9, 257, 4096), 192U + 16 + 257);
  EXPECT_EQ(credit_charge(64, 1U << 30, 4096), 2048U);
}

TEST(UserCredits, AreUsedUpAndGrantedBackForEachTargetAlone) {
  for (const bool one_thread : {true, false}) {
    UserCredits credits(3, 2, 1000, one_thread);
    EXPECT_TRUE(credits.take({1, 1}, 600));
    EXPECT_FALSE(credits.take({1, 1}, 401));
    EXPECT_TRUE(credits.take({1, 0}, 401)) << "another worker of the rank";
    EXPECT_TRUE(credits.take({1, 1}, 400));
    EXPECT_EQ(credits.used({1, 1}), 1000U);
    EXPECT_TRUE(credits.grant({1, 1}, 500));
    EXPECT_TRUE(credits.take({1, 1}, 500));
    credits.give_back({1, 1}, 1000);
    EXPECT_EQ(credits.used({1, 1}), 0U);
    EXPECT_EQ(credits.used({2, 0}), 0U);
  }
}

TEST(UserCredits, GrantsOfWhatWasNotUsedAreRefused) {
  UserCredits credits(2, 2, 1000, false);
  EXPECT_FALSE(credits.grant({1, 0}, 1)) << "nothing was ever sent to that rank";
  ASSERT_TRUE(credits.take({1, 0}, 100));
  EXPECT_FALSE(credits.grant({1, 0}, 101));
  EXPECT_FALSE(credits.grant({1, 1}, 1));
  EXPECT_FALSE(credits.grant({2, 0}, 1)) << "no such rank";
  EXPECT_FALSE(credits.grant({1, 2}, 1)) << "no such worker";
  EXPECT_EQ(credits.used({1, 0}), 100U);
}

// Threads race for rows that nobody has allocated yet; together they never take more than the
// window.
TEST(UserCredits, ThreadsTakeTogetherNoMoreThanThereIs) {
  for (int round = 0; round < 200; ++round) {
    UserCredits credits(2, 1, 1000, false);
    std::array<std::uint64_t, 4> taken{};
    std::vector<std::thread> threads;
    for (std::uint64_t& own : taken) {
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) own += credits.take({1, 0}, 7) ? 7 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(taken[0] + taken[1] + taken[2] + taken[3], 994U);
    EXPECT_EQ(credits.used({1, 0}), 994U);
  }
}

}  // namespace
}  // namespace heddle::protocol::user_credits_test
