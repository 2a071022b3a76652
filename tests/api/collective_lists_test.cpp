// Blocks of any lengths: both members of a wrong block report both values. Also cases that the
// common tests of operations do not have: lists that change, elements of different lengths, runs
// and handles.
#include <array>
#include <numeric>
#include <random>

#include "api/test_collective.hpp"

namespace heddle::test::collective_lists_test {
namespace {

constexpr std::array<const char*, 3> kTransports = {"shm", "loopback", "loopback-messages"};

bool says(const char* words) {
  return std::string(heddle_last_error()).find(words) != std::string::npos;
}

void expect_error(Status status, Status expected, const char* words) {
  EXPECT_EQ(status, expected) << heddle_status_name(status) << ": " << heddle_last_error();
  EXPECT_TRUE(says(words)) << heddle_last_error();
}

class ListArguments : public testing::Test {
 protected:
  Context context_ = Context::join();
  Team team_ = Team::world(context_);
  std::array<std::byte, 64> here_{};
  std::array<std::byte, 64> there_{};
  std::array<std::size_t, 1> count_{8};
  std::array<std::size_t, 1> at_{0};
  heddle_blocks blocks_{count_.data(), at_.data(), 1};
  heddle_collective made_{};
};

TEST_F(ListArguments, Lists) {
  expect_error(heddle_allgatherv(team_.handle(), here_.data(), there_.data(), nullptr), HEDDLE_ERR_ARGUMENT,
               "heddle_allgatherv: the blocks of receive: null");
  blocks_.counts = nullptr;
  expect_error(heddle_gatherv_start(team_.handle(), here_.data(), 8, there_.data(), &blocks_, 0, &made_),
               HEDDLE_ERR_ARGUMENT, "counts is null");
  blocks_ = {count_.data(), nullptr, 0};
  expect_error(heddle_scatterv_init(team_.handle(), here_.data(), &blocks_, there_.data(), 8, 0, nullptr, &made_),
               HEDDLE_ERR_ARGUMENT, "heddle_scatterv_init: the blocks of send: element_bytes is 0");
  count_[0] = SIZE_MAX / 2;
  blocks_.element_bytes = 8;
  expect_error(heddle_allgatherv(team_.handle(), here_.data(), there_.data(), &blocks_), HEDDLE_ERR_SIZE, "block 0");
  count_[0] = 1;
  at_[0] = SIZE_MAX / 8;
  blocks_.displacements = at_.data();
  expect_error(heddle_allgatherv(team_.handle(), here_.data(), there_.data(), &blocks_), HEDDLE_ERR_SIZE, "2^48");
  expect_error(heddle_gatherv(team_.handle(), here_.data(), (std::size_t{1} << 48) + 1, there_.data(), &blocks_, 0),
               HEDDLE_ERR_SIZE, "2^48");
  EXPECT_EQ(made_.id, 0U);
}

TEST_F(ListArguments, HandlesAndRoots) {
  expect_error(heddle_alltoallv({}, here_.data(), &blocks_, there_.data(), &blocks_), HEDDLE_ERR_HANDLE, "null handle");
  expect_error(heddle_alltoallv_start(team_.handle(), here_.data(), &blocks_, there_.data(), &blocks_, nullptr),
               HEDDLE_ERR_ARGUMENT, "heddle_alltoallv_start: collective is null");
  expect_error(heddle_gatherv(team_.handle(), here_.data(), 8, there_.data(), &blocks_, 3), HEDDLE_ERR_RANK, "root 3");
}

TEST_F(ListArguments, Buffers) {
  expect_error(heddle_alltoallv(team_.handle(), nullptr, &blocks_, there_.data(), &blocks_), HEDDLE_ERR_ARGUMENT,
               "heddle_alltoallv: send is null, and this member needs it for 8 bytes");
  expect_error(heddle_alltoallv(team_.handle(), here_.data(), &blocks_, nullptr, &blocks_), HEDDLE_ERR_ARGUMENT,
               "receive is null");
  expect_error(heddle_alltoallv(team_.handle(), here_.data(), &blocks_, here_.data() + 7, &blocks_),
               HEDDLE_ERR_ARGUMENT, "sent to member 0 and the one that is received from member 0 overlap");
  expect_error(heddle_alltoallv(team_.handle(), here_.data(), &blocks_, here_.data(), &blocks_), HEDDLE_ERR_ARGUMENT,
               "overlap");
  EXPECT_EQ(heddle_allgatherv(team_.handle(), here_.data(), here_.data(), &blocks_), HEDDLE_DONE)
      << heddle_last_error();
  count_[0] = 0;
  EXPECT_EQ(heddle_alltoallv(team_.handle(), nullptr, &blocks_, nullptr, &blocks_), HEDDLE_DONE) << heddle_last_error();
}

// Blocks may stand between each other; those that are received do not overlap.
TEST(Lists, OverlapIsFoundBlockByBlock) {
  run_members(2, "loopback", [](const Member& member) {
    std::array<std::byte, 16> all{};
    const std::array<std::size_t, 2> counts = {4, 4};
    std::array<std::size_t, 2> sent = {0, 8};
    std::array<std::size_t, 2> received = {4, 12};
    const heddle_blocks from{counts.data(), sent.data(), 1};
    const heddle_blocks to{counts.data(), received.data(), 1};
    must(heddle_alltoallv(member.world.handle(), all.data(), &from, all.data(), &to), "blocks in turns");
    received = {7, 4};
    const Status status = heddle_alltoallv(member.world.handle(), all.data(), &from, all.data(), &to);
    must_be(status == HEDDLE_ERR_ARGUMENT && says("received from member 1 and the one that is received from member 0"),
            heddle_last_error());
    sent = {3, 3};  // blocks of a send buffer may overlap
    received = {12, 8};
    must(heddle_alltoallv(member.world.handle(), all.data(), &from, all.data(), &to), "the same sent twice");
  });
}

// Lists that do not fit: both members report both lengths, the others name the two members; the
// team goes on.
TEST(Lists, ThatDoNotFitAreToldToAllMembers) {
  for (const char* transport : kTransports) {
    run_members(4, transport, [](const Member& member) {
      const std::uint32_t rank = member.rank();
      std::array<std::byte, 400> here{};
      std::array<std::byte, 400> there{};
      for (int round = 0; round < 200; ++round) {
        std::array<std::size_t, 4> sent = {10, 10, 10, 10};
        std::array<std::size_t, 4> received = {10, 10, 10, 10};
        if (rank == 2) sent[1] = 24;
        const heddle_blocks from{sent.data(), nullptr, 1};
        const heddle_blocks to{received.data(), nullptr, 2};  // whose elements are longer
        for (std::size_t& count : received) count = 5;
        const Status status = heddle_alltoallv(member.world.handle(), here.data(), &from, there.data(), &to);
        must_be(status == HEDDLE_ERR_ARGUMENT, heddle_status_name(status));
        if (rank == 1 || rank == 2)
          must_be(says("rank 2 of the team gives 24 bytes to rank 1, which takes 10 bytes"), heddle_last_error());
        else
          must_be(says("rank 1 of the team could not do its part (HEDDLE_ERR_ARGUMENT)"), heddle_last_error());
      }
      Part part(member.context, member.world, {Operation::alltoallv, 100, 0, Memory::allocated, false, nullptr, 0});
      part.run(Form::persistent, 2);
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

TEST(Lists, LengthsOfAnAllgathervOnWhichMembersDiffer) {
  run_members(3, "shm", [](const Member& member) {
    std::array<std::byte, 64> here{};
    std::array<std::byte, 64> there{};
    std::array<std::size_t, 3> counts = {4, 5, 6};
    if (member.rank() == 0) counts[2] = 7;
    const heddle_blocks blocks{counts.data(), nullptr, 1};
    heddle_collective made{};
    const Status status =
        heddle_allgatherv_init(member.world.handle(), here.data(), there.data(), &blocks, nullptr, &made);
    must_be(status == HEDDLE_ERR_ARGUMENT && made.id == 0, heddle_status_name(status));
    if (member.rank() != 1) {
      must_be(says("rank 2 of the team gives 6 bytes to rank 0, which takes 7 bytes"), heddle_last_error());
    }
  });
}

TEST(Lists, AnotherOperationOfOneMember) {
  run_members(3, "shm", [](const Member& member) {
    std::array<std::byte, 64> here{};
    std::array<std::byte, 64> there{};
    const std::array<std::size_t, 3> counts = {4, 4, 4};
    const heddle_blocks blocks{counts.data(), nullptr, 1};
    const Status status = member.rank() == 1
                              ? heddle_alltoall(member.world.handle(), here.data(), there.data(), 4)
                              : heddle_alltoallv(member.world.handle(), here.data(), &blocks, there.data(), &blocks);
    must_be(status == HEDDLE_ERR_ARGUMENT && says("calls alltoallv with lists of blocks"), heddle_last_error());
  });
}

// Each call has other lengths: of all, of some, with elements of other lengths on the two sides.
TEST(Lists, ChangeFromCallToCall) {
  for (const char* transport : kTransports) {
    run_members(3, transport, [](const Member& member) {
      const std::uint32_t rank = member.rank();
      std::mt19937_64 random(5);  // the same at all members
      for (std::uint64_t call = 0; call < 60; ++call) {
        std::array<std::array<std::size_t, 3>, 3> counts{};
        for (auto& row : counts)
          for (std::size_t& count : row) count = random() % 3 == 0 ? 0 : random() % 40;
        std::array<std::size_t, 3> received{};
        for (std::size_t from = 0; from < 3; ++from) received[from] = counts[from][rank] * 8;
        std::vector<std::uint64_t> here(120);
        std::vector<std::uint64_t> there(120);
        for (std::size_t i = 0; i < here.size(); ++i) here[i] = call << 32 | rank << 16 | i;
        const heddle_blocks from{counts[rank].data(), nullptr, 8};
        const heddle_blocks to{received.data(), nullptr, 1};
        must(heddle_alltoallv(member.world.handle(), here.data(), &from, there.data(), &to), "alltoallv");
        std::size_t at = 0;
        for (std::uint32_t peer = 0; peer < 3; ++peer) {
          const std::size_t begin = std::accumulate(counts[peer].begin(), counts[peer].begin() + rank, std::size_t{0});
          for (std::size_t i = 0; i < counts[peer][rank]; ++i)
            must_be(there[at++] == (call << 32 | peer << 16 | (begin + i)), "each element in its place");
        }
        must_be(std::all_of(there.begin() + static_cast<std::ptrdiff_t>(at), there.end(),
                            [](std::uint64_t value) { return value == 0; }),
                "nothing beyond");
      }
    });
    ASSERT_FALSE(HasFailure()) << transport;
  }
}

TEST(Lists, StartTwiceAndFreeWhileARunIsUnderWay) {
  run_members(2, "shm", [](const Member& member) {
    Part part(member.context, member.world, {Operation::alltoallv, 20'000, 0, Memory::allocated, false, nullptr, 0});
    heddle_collective made{};
    must(part.init(&made), "init");
    // It cannot end before the other one starts, which waits for the barrier.
    if (member.rank() == 0) {
      part.fill(1);
      must(heddle_collective_start(made), "start");
      must_be(heddle_collective_start(made) == HEDDLE_ERR_STATE && says("under way"), heddle_last_error());
      must_be(heddle_collective_free(made) == HEDDLE_ERR_STATE && says("under way"), heddle_last_error());
    }
    must(heddle_barrier(member.world.handle()), "barrier");
    if (member.rank() == 1) {
      part.fill(1);
      must(heddle_collective_start(made), "start");
    }
    must(heddle_collective_wait(made, HEDDLE_FOREVER), "wait");
    part.verify(1);
    must(heddle_collective_free(made), "free");
  });
}

}  // namespace
}  // namespace heddle::test::collective_lists_test
