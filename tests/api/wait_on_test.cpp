// heddle_collective_wait_on: a member that waits in a collective answers its peers meanwhile.
#include <gtest/gtest.h>

#include <numeric>

#include "api/test_job.hpp"

namespace heddle::test {
namespace {

constexpr std::int64_t kLongNs = 30'000'000'000;

heddle_collective begin_barrier(heddle_team team) {
  heddle_collective barrier{};
  EXPECT_EQ(heddle_barrier_start(team, &barrier), HEDDLE_POSTED) << heddle_last_error();
  return barrier;
}

class WaitOn : public testing::TestWithParam<const char*> {};

// Rank 0 comes to the barrier only after rank 1, which waits there on an exclusive worker that
// nobody helps, has taken its messages.
TEST_P(WaitOn, AnswersPeers) {
  Job(2, GetParam()).run([](Context& context, Worker&) {
    heddle_worker_options options{};
    options.size = sizeof options;
    options.sharing = HEDDLE_SHARING_EXCLUSIVE;
    heddle_worker worker{};
    ASSERT_EQ(heddle_worker_open(context.handle(), &options, &worker), HEDDLE_DONE);
    static_cast<void>(context.exchange(std::vector<std::byte>(1)));  // both have opened it
    // the second worker that rank 1 has opened
    constexpr heddle_peer kTarget{1, 1};
    heddle_team team{};
    ASSERT_EQ(heddle_team_world(context.handle(), &team), HEDDLE_DONE) << heddle_last_error();
    std::vector<std::uint32_t> data(1U << 18);
    constexpr int kMessages = 5;
    if (context.rank() == 0) {
      std::iota(data.begin(), data.end(), 0U);
      heddle_completion matched{};
      matched.when = HEDDLE_WHEN_MATCHED;
      for (std::uint64_t tag = 0; tag < kMessages; ++tag) {
        ASSERT_GE(heddle_send(worker, kTarget, tag, data.data(), data.size() * sizeof data[0], &matched), 0)
            << heddle_last_error();
        ASSERT_EQ(heddle_quiet(worker), HEDDLE_DONE) << heddle_last_error();
      }
      EXPECT_EQ(heddle_collective_wait_on(begin_barrier(team), worker, kLongNs), HEDDLE_DONE);
    } else {
      std::vector<std::vector<std::uint32_t>> got(kMessages, std::vector<std::uint32_t>(data.size()));
      std::vector<heddle_receive> receives(kMessages);
      for (std::uint64_t tag = 0; tag < kMessages; ++tag) {
        const heddle_wanted wanted{{0, HEDDLE_ANY}, tag, ~std::uint64_t{0}};
        ASSERT_GE(heddle_recv(worker, &wanted, got[tag].data(), data.size() * sizeof data[0], &receives[tag], nullptr),
                  0);
      }
      EXPECT_EQ(heddle_collective_wait_on(begin_barrier(team), worker, kLongNs), HEDDLE_DONE) << heddle_last_error();
      for (int i = 0; i < kMessages; ++i) {
        EXPECT_EQ(receives[i].status, HEDDLE_DONE);
        EXPECT_EQ(got[i].back(), data.size() - 1);
      }
    }
    EXPECT_EQ(heddle_worker_close(worker), HEDDLE_DONE) << heddle_last_error();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, WaitOn, testing::Values("shm", "loopback-messages"),
                         [](const auto& one) { return std::string(one.param) == "shm" ? "shm" : "messages"; });

TEST(WaitOnArguments, AreChecked) {
  Job(1, "shm").run([](Context& context, Worker& worker) {
    heddle_team team{};
    ASSERT_EQ(heddle_team_world(context.handle(), &team), HEDDLE_DONE);
    EXPECT_EQ(heddle_collective_wait_on({}, worker.handle(), 0), HEDDLE_ERR_HANDLE);
    heddle_collective barrier = begin_barrier(team);
    EXPECT_EQ(heddle_collective_wait_on(barrier, {}, 0), HEDDLE_ERR_HANDLE);
    Job(1, "shm").run([&](Context&, Worker& foreign) {
      EXPECT_EQ(heddle_collective_wait_on(barrier, foreign.handle(), 0), HEDDLE_ERR_ARGUMENT);
    });
    EXPECT_EQ(heddle_collective_wait_on(barrier, worker.handle(), HEDDLE_FOREVER), HEDDLE_DONE);
  });
}

}  // namespace
}  // namespace heddle::test
