#include "collective/algorithms/algorithms.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace heddle::collective::givers_test {
namespace {

AlgorithmRequest request_of(Operation operation, Rank rank, Rank ranks, std::uint64_t bytes) {
  return {operation, rank, ranks, 0, bytes, 8, 0, {0, 0, 0}};
}
std::vector<std::uint32_t> all_counters(const Schedule& schedule) {
  std::vector<std::uint32_t> all(schedule.counters.size());
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

TEST(Givers, OfAFlatBarrierAreAllOthersForTheFirstAndTheFirstForThem) {
  const Algorithm& algorithm = *find_algorithm("barrier.flat");
  const AlgorithmRequest first = request_of(Operation::barrier, 0, 5, 0);
  EXPECT_EQ(givers(algorithm, first, all_counters(algorithm.schedule(first))), (std::vector<Rank>{1, 2, 3, 4}));
  const AlgorithmRequest other = request_of(Operation::barrier, 2, 5, 0);
  EXPECT_EQ(givers(algorithm, other, all_counters(algorithm.schedule(other))), (std::vector<Rank>{0}));
}

TEST(Givers, OfOneCounterAreItsOwn) {
  const Algorithm& algorithm = *find_algorithm("barrier.dissemination");
  const AlgorithmRequest request = request_of(Operation::barrier, 0, 8, 0);
  std::vector<Rank> found;
  const std::vector<std::uint32_t> counters = all_counters(algorithm.schedule(request));
  for (const std::uint32_t counter : counters) {
    const std::vector<Rank> one = givers(algorithm, request, std::span(&counter, 1));
    EXPECT_LE(one.size(), 1U) << "counter " << counter;
    found.insert(found.end(), one.begin(), one.end());
  }
  std::ranges::sort(found);
  EXPECT_EQ(found, (std::vector<Rank>{4, 6, 7})) << "those at a distance of 1, 2 and 4";
  EXPECT_TRUE(givers(algorithm, request, {}).empty());
}

TEST(Givers, AreNotLookedForInVastTeamsOrListsOfOthers) {
  const Algorithm& vast = *find_algorithm("barrier.dissemination");
  const AlgorithmRequest request = request_of(Operation::barrier, 0, kMostSearched + 1, 0);
  EXPECT_TRUE(givers(vast, request, all_counters(vast.schedule(request))).empty());
  const Algorithm& full = *find_algorithm("alltoall.kept");
  const std::uint32_t first = 0;
  EXPECT_EQ(givers(full, request_of(Operation::alltoall, 0, 64, 8), std::span(&first, 1)).size(), 63U);
  EXPECT_TRUE(givers(full, request_of(Operation::alltoall, 0, 128, 8), std::span(&first, 1)).empty());
  const Algorithm& lists = *find_algorithm("alltoallv.direct");
  const AlgorithmRequest listed = request_of(Operation::alltoallv, 0, 4, 64);
  EXPECT_TRUE(givers(lists, listed, all_counters(lists.schedule(listed))).empty());
}

}  // namespace
}  // namespace heddle::collective::givers_test
