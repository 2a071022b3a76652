#include "transport/shm/layout.hpp"

#include <gtest/gtest.h>

#include "queue/record_ring.hpp"

namespace heddle::transport::shm::layout_test {
namespace {

TEST(Layout, RingsAreAsLongAsTheJobPermits) {
  const auto longest = [](std::uint32_t ranks) {
    return queue::largest_record(queue::ring_capacity(ring_bytes_for(ranks)));
  };
  constexpr std::uint32_t kTag = 8;
  for (const std::uint32_t ranks : {1U, 2U, 33U}) EXPECT_GE(longest(ranks), (32U << 10) + kTag) << ranks;
  for (const std::uint32_t ranks : {34U, 65U}) {
    EXPECT_GE(longest(ranks), (16U << 10) + kTag) << ranks;
    EXPECT_LT(longest(ranks), 32U << 10) << ranks;
  }
  for (const std::uint32_t ranks : {66U, 1024U}) {
    EXPECT_GE(longest(ranks), (8U << 10) + kTag) << ranks;
    EXPECT_LT(longest(ranks), 16U << 10) << ranks;
  }
}

}  // namespace
}  // namespace heddle::transport::shm::layout_test
