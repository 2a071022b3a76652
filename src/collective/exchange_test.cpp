// Blocks as the ranks list them: proved for random lists of 1 to 64 ranks; and the proof finds
// faults in lists.
#include "collective/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "collective/algorithms/algorithms.hpp"
#include "collective/check.hpp"

namespace heddle::collective::exchange_test {
namespace {

enum class Lengths { zero, random, one_has_all };
using Random = std::mt19937_64;

std::uint64_t length(Lengths lengths, Rank from, Rank ranks, Random& random) {
  switch (lengths) {
    case Lengths::zero:
      return 0;
    case Lengths::one_has_all:
      return from == ranks / 2 ? 5 : 0;
    case Lengths::random:
      break;
  }
  return random() % 3 == 0 ? 0 : random() % 9;
}

// Gives blocks positions in a buffer, in any order, with gaps.
void place(std::vector<ListedBlock>& messages, Random& random) {
  std::vector<std::size_t> order(messages.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::shuffle(order, random);
  std::uint64_t at = 0;
  for (const std::size_t i : order) {
    messages[i].here = at + random() % 3;
    at = messages[i].here + messages[i].bytes;
  }
}

// Random lists of this many ranks that fit each other: blocks of each rank to each, and up to
// `twice` blocks between the same two.
std::vector<Exchange> lists_of(Rank ranks, Lengths lengths, std::uint64_t twice, Random& random) {
  std::vector<Exchange> all(ranks);
  for (Rank from = 0; from < ranks; ++from) {
    for (Rank to = 0; to < ranks; ++to) {
      for (std::uint64_t k = random() % (twice + 1); k < twice; ++k) {
        const std::uint64_t bytes = length(lengths, from, ranks, random);
        all[from].given.push_back({to, bytes});
        all[to].taken.push_back({from, bytes});
      }
    }
  }
  for (Rank rank = 0; rank < ranks; ++rank) {
    place(all[rank].given, random);
    place(all[rank].taken, random);
    all[rank].kept = random() % 2 == 0;
    lay_out(rank, &all[rank]);
  }
  acquaint(all);
  return all;
}

std::vector<Schedule> schedules(AlgorithmRequest request) {
  std::vector<Schedule> all;
  for (request.rank = 0; request.rank < request.ranks; ++request.rank) all.push_back(exchange_direct(request));
  return all;
}

AlgorithmRequest request_of(std::span<const Exchange> lists) {
  AlgorithmRequest request;
  request.operation = Operation::alltoallv;
  request.ranks = static_cast<Rank>(lists.size());
  request.exchanges = lists;
  return request;
}

class EveryLists : public testing::TestWithParam<Lengths> {};
INSTANTIATE_TEST_SUITE_P(Of, EveryLists, testing::Values(Lengths::zero, Lengths::random, Lengths::one_has_all));

TEST_P(EveryLists, AreProvedUpTo64Ranks) {
  Random random(7);
  for (Rank ranks = 1; ranks <= 64 && !HasFailure(); ++ranks) {
    const std::vector<Exchange> lists = lists_of(ranks, GetParam(), ranks <= 20 ? 3 : 1, random);
    const AlgorithmRequest request = request_of(lists);
    const CheckResult verdict = check(request, schedules(request), Proof::whole, ranks <= 16 ? 3 : 2);
    EXPECT_TRUE(verdict.proved()) << ranks << " ranks\n" << verdict.text();
  }
}

// ---- the proof finds faults ---------------------------------------------------------------------

class Lists : public testing::Test {
 protected:
  std::vector<Exchange> lists_ = std::vector<Exchange>(4);

  void SetUp() override {
    for (Rank rank = 0; rank < 4; ++rank) {
      lists_[rank] = {};
      for (Rank peer = 0; peer < 4; ++peer) {
        lists_[rank].given.push_back({peer, 4, peer * 4ULL});
        lists_[rank].taken.push_back({peer, 4, peer * 4ULL});
      }
      lists_[rank].kept = rank == 2;
      lay_out(rank, &lists_[rank]);
    }
    acquaint(lists_);
  }
  [[nodiscard]] std::string faults() const {
    const AlgorithmRequest request = request_of(lists_);
    return check(request, schedules(request)).text();
  }
};

TEST_F(Lists, ThatFitAreProved) {
  EXPECT_EQ(faults(), "");
}

TEST_F(Lists, BlockPutWhereAnotherBelongs) {
  std::swap(of_peer(lists_[0].given, 1)[0].there, of_peer(lists_[3].given, 1)[0].there);
  EXPECT_NE(faults().find("contents"), std::string::npos) << faults();
}

TEST_F(Lists, BlockPutBesideTheBuffer) {
  of_peer(lists_[0].given, 1)[0].there = 13;
  EXPECT_NE(faults().find("not inside"), std::string::npos) << faults();
}

TEST_F(Lists, TwoBlocksInOnePlace) {
  of_peer(lists_[0].given, 2)[0].there = of_peer(lists_[3].given, 2)[0].there;
  EXPECT_NE(faults().find("not ordered"), std::string::npos) << faults();
}

TEST_F(Lists, PeerThatHasNotBegun) {
  of_peer(lists_[0].given, 1)[0].kept = true;  // it is put to as if the peer kept it in scratch
  EXPECT_NE(faults(), "");
}

TEST_F(Lists, NewsForAnotherRank) {
  of_peer(lists_[1].taken, 0)[0].slot = 1;
  EXPECT_NE(faults().find("credits in a run"), std::string::npos) << faults();
}

}  // namespace
}  // namespace heddle::collective::exchange_test
