// Exchanges among neighbours: cases that the common tests of operations do not have. Halos of a
// torus, lists that do not name each other, members without neighbours.
#include <array>
#include <numeric>
#include <vector>

#include "api/test_collective.hpp"

namespace heddle::test::neighbor_test {
namespace {

constexpr std::array<const char*, 3> kTransports = {"shm", "loopback", "loopback-messages"};

bool says(const char* words) {
  return std::string(heddle_last_error()).find(words) != std::string::npos;
}

// A block sent behind comes from before, also if both are the same member, or this one.
TEST(Neighbors, HaloOfARing) {
  for (const char* transport : kTransports) {
    for (const std::uint32_t ranks : {1U, 2U, 3U, 5U}) {
      run_members(ranks, transport, [&](const Member& member) {
        const std::uint32_t rank = member.rank();
        const std::uint32_t before = (rank + ranks - 1) % ranks;
        const std::uint32_t behind = (rank + 1) % ranks;
        const std::array targets = {before, behind};
        const std::array sources = {behind, before};
        const heddle_neighbors neighbors = heddle::neighbors(sources, targets);
        constexpr std::size_t kBlock = 3000;  // both together exceed the room for kept data
        const Region region = member.context.alloc(4 * kBlock * sizeof(std::uint32_t));
        const auto all = region.memory<std::uint32_t>();
        const auto send = all.first(2 * kBlock);
        const auto receive = all.subspan(2 * kBlock, 2 * kBlock);
        heddle_collective made{};
        must(heddle_neighbor_alltoall_init(member.world.handle(), &neighbors, send.data(), receive.data(),
                                           kBlock * sizeof(std::uint32_t), nullptr, &made),
             "init");
        for (std::uint32_t run = 1; run <= 20; ++run) {
          for (std::size_t i = 0; i < send.size(); ++i) {
            send[i] = run << 16 | rank << 8 | (i < kBlock ? 1U : 2U);
            receive[i] = 0;
          }
          must(heddle_collective_start(made), "start");
          must(heddle_collective_wait(made, HEDDLE_FOREVER), "wait");
          for (std::size_t i = 0; i < kBlock; ++i) {
            must_be(receive[i] == (run << 16 | behind << 8 | 1U), "from behind, what went before");
            must_be(receive[kBlock + i] == (run << 16 | before << 8 | 2U), "from before, what went behind");
          }
        }
        must(heddle_collective_free(made), "free");
      });
      ASSERT_FALSE(HasFailure()) << transport << ", " << ranks << " ranks";
    }
  }
}

// A star: one block of the middle to all, one of each to the middle; the others are no neighbours.
// The last member has none.
TEST(Neighbors, AllgatherOfAStarBesideAMemberWithoutNeighbours) {
  for (const char* transport : kTransports) {
    run_members(4, transport, [](const Member& member) {
      const std::uint32_t rank = member.rank();
      constexpr std::array<std::uint32_t, 2> kLeaves = {1, 2};
      constexpr std::array<std::uint32_t, 1> kMiddle = {0};
      heddle_neighbors neighbors{};
      if (rank == 0) neighbors = heddle::neighbors(kLeaves, kLeaves);
      if (rank == 1 || rank == 2) neighbors = heddle::neighbors(kMiddle, kMiddle);
      std::uint64_t mine = rank + 10;
      std::array<std::uint64_t, 2> got{};
      must(heddle_neighbor_allgather(member.world.handle(), &neighbors, &mine, got.data(), sizeof mine), "blocking");
      got = {};
      auto started = member.world.start<heddle_neighbor_allgather_start>(&neighbors, &mine, got.data(), sizeof mine);
      must(started.wait(), "wait");
      if (rank == 0) must_be(got == std::array<std::uint64_t, 2>{11, 12}, "of the leaves");
      if (rank == 1 || rank == 2) must_be(got == std::array<std::uint64_t, 2>{10, 0}, "of the middle");
      if (rank == 3) must_be(got == std::array<std::uint64_t, 2>{0, 0}, "nothing");
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

// Each rank gives its successor as many elements as the successor's number says, and one.
TEST(Neighbors, AlltoallvOfARingByTheWrapper) {
  for (const char* transport : kTransports) {
    run_members(3, transport, [](const Member& member) {
      const std::uint32_t rank = member.rank();
      const std::array source = {(rank + 2) % 3};
      const std::array target = {(rank + 1) % 3};
      const std::array given = {std::size_t{target[0]} + 1};
      const std::array taken = {std::size_t{rank} + 1};
      const std::vector<std::uint64_t> send(given[0], rank + 100);
      std::vector<std::uint64_t> receive(taken[0] + 1);
      must(
          member.world.neighbor_alltoallv(heddle::neighbors(source, target), send.data(), given, receive.data(), taken),
          "neighbor_alltoallv");
      for (std::size_t i = 0; i < taken[0]; ++i) must_be(receive[i] == source[0] + 100, "from before");
      must_be(receive[taken[0]] == 0, "and no more");
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

TEST(Neighbors, ListsThatDoNotNameEachOther) {
  for (const char* transport : kTransports) {
    run_members(3, transport, [](const Member& member) {
      const std::uint32_t rank = member.rank();
      constexpr std::array<std::uint32_t, 2> kTwice = {1, 1};
      constexpr std::array<std::uint32_t, 1> kFirst = {0};
      std::array<std::byte, 64> here{};
      std::array<std::byte, 64> there{};
      for (int round = 0; round < 100; ++round) {
        // 0 gives to 1 twice; 1 takes from 0 once.
        heddle_neighbors neighbors{};
        if (rank == 0) neighbors = heddle::neighbors({}, kTwice);
        if (rank == 1) neighbors = heddle::neighbors(kFirst, {});
        const Status status = heddle_neighbor_alltoall(member.world.handle(), &neighbors, here.data(), there.data(), 8);
        must_be(status == HEDDLE_ERR_ARGUMENT, heddle_status_name(status));
        if (rank == 0)
          must_be(says("rank 1 of the team lists 0 blocks to rank 0 and 1 from it; rank 0 lists 0 from rank 1 and 2"),
                  heddle_last_error());
        else if (rank == 1)
          must_be(says("rank 0 of the team lists 2 blocks to rank 1 and 0 from it; rank 1 lists 1 from rank 0 and 0"),
                  heddle_last_error());
        else
          must_be(says("of the team could not do its part"), heddle_last_error());
      }
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

TEST(Neighbors, Arguments) {
  const Context context = Context::join();
  const Team team = Team::world(context);
  std::array<std::byte, 64> here{};
  std::array<std::byte, 64> there{};
  const auto call = [&](const heddle_neighbors* neighbors, std::size_t bytes) {
    return heddle_neighbor_alltoall(team.handle(), neighbors, here.data(), there.data(), bytes);
  };
  EXPECT_EQ(call(nullptr, 8), HEDDLE_ERR_ARGUMENT);
  EXPECT_TRUE(says("neighbors is null")) << heddle_last_error();
  const std::array<std::uint32_t, 2> wrong = {0, 7};
  const std::array<std::uint32_t, 2> right = {0, 0};
  heddle_neighbors neighbors = heddle::neighbors(wrong, right);
  EXPECT_EQ(call(&neighbors, 8), HEDDLE_ERR_RANK);
  EXPECT_TRUE(says("7 in sources: the team has members 0-0")) << heddle_last_error();
  neighbors = heddle::neighbors(right, wrong);
  EXPECT_EQ(call(&neighbors, 8), HEDDLE_ERR_RANK);
  EXPECT_TRUE(says("7 in targets")) << heddle_last_error();
  neighbors = {nullptr, 1, right.data(), 1};
  EXPECT_EQ(call(&neighbors, 8), HEDDLE_ERR_ARGUMENT);
  EXPECT_TRUE(says("sources is null, and has 1 members")) << heddle_last_error();
  neighbors = heddle::neighbors(right, right);
  EXPECT_EQ(call(&neighbors, std::size_t{1} << 48), HEDDLE_ERR_SIZE);
  // Lists of one member that do not fit are no other member's affair.
  neighbors = heddle::neighbors(right, std::span(right).first(1));
  EXPECT_EQ(call(&neighbors, 8), HEDDLE_ERR_ARGUMENT);
  EXPECT_TRUE(says("lists")) << heddle_last_error();
  neighbors = heddle::neighbors(right, right);
  here[9] = std::byte{5};
  EXPECT_EQ(call(&neighbors, 8), HEDDLE_DONE) << heddle_last_error();
  EXPECT_EQ(there[9], std::byte{5});
  neighbors = {};
  EXPECT_EQ(heddle_neighbor_alltoallv(team.handle(), &neighbors, nullptr, nullptr, nullptr, nullptr), HEDDLE_DONE)
      << heddle_last_error();
}

}  // namespace
}  // namespace heddle::test::neighbor_test
