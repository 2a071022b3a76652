#include "tools/run/spawn.hpp"

#include <gtest/gtest.h>

namespace heddle::tools::run::spawn_test {
namespace {

TEST(placement, gives_each_rank_cores_of_its_own_as_long_as_there_are_some) {
  bool wrapped = true;
  const auto one = place(1, 1, &wrapped);
  ASSERT_TRUE(one.ok()) << base::last_message();
  EXPECT_FALSE(wrapped);
  EXPECT_GE(CPU_COUNT(&(*one)[0]), 1);
  const auto many = place(1024, 4, &wrapped);
  ASSERT_TRUE(many.ok());
  EXPECT_TRUE(wrapped);
  for (const cpu_set_t& set : *many) EXPECT_GE(CPU_COUNT(&set), 1);
}

TEST(descriptors, a_rank_has_one_for_each_peer_as_far_as_the_hard_limit_goes) {
  const auto soft = [](rlim_t given, rlim_t hard, std::uint32_t ranks) {
    const rlimit files = rank_descriptors({given, hard}, ranks);
    EXPECT_EQ(files.rlim_max, hard);
    return files.rlim_cur;
  };
  EXPECT_EQ(soft(1024, 1 << 20, 64), 1024U) << "no need to change anything";
  EXPECT_EQ(soft(1024, 1 << 20, 768), 1024U);
  EXPECT_EQ(soft(1024, 1 << 20, 1000), 2024U);
  EXPECT_EQ(soft(10, 1 << 20, 1000), 1256U);
  EXPECT_EQ(soft(1024, 1500, 1000), 1500U);
  EXPECT_EQ(soft(1024, 1024, 1000), 1024U);
  EXPECT_EQ(soft(RLIM_INFINITY, RLIM_INFINITY, 1024), RLIM_INFINITY);
}

}  // namespace
}  // namespace heddle::tools::run::spawn_test
