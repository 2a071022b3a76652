// heddle_collective_wait_on: a member that waits in a collective answers its peers meanwhile.
#include <gtest/gtest.h>

#include <array>
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

std::uint64_t polls_of(heddle_worker worker) {
  heddle_worker_stats stats{};
  stats.size = sizeof stats;
  EXPECT_EQ(heddle_worker_stats_read(worker, &stats), HEDDLE_DONE) << heddle_last_error();
  return stats.polls;
}

// What peers ask of the other workers takes little longer: these are looked at about as often.
TEST_P(WaitOn, TheOtherWorkersAreLookedAtToo) {
  Job(2, GetParam()).run([](Context& context, Worker& other) {
    constexpr int kQuestions = 300;
    constexpr std::uint64_t kRarer = 16;  // at most, and at first
    heddle_worker_options options{};
    options.size = sizeof options;
    options.sharing = HEDDLE_SHARING_EXCLUSIVE;
    heddle_worker beside{};
    ASSERT_EQ(heddle_worker_open(context.handle(), &options, &beside), HEDDLE_DONE);
    // Registered: the owner's worker 0 carries out what peers do there.
    std::array<std::uint64_t, 8> words{};
    heddle_region region{};
    std::array<heddle_remote_region, 2> remotes{};
    ASSERT_EQ(heddle_region_register(context.handle(), words.data(), sizeof words, &region), HEDDLE_DONE);
    ASSERT_EQ(heddle_region_exchange(context.handle(), region, remotes.data()), HEDDLE_DONE);
    heddle_team team{};
    ASSERT_EQ(heddle_team_world(context.handle(), &team), HEDDLE_DONE) << heddle_last_error();
    if (context.rank() == 0) {
      for (std::uint64_t i = 0; i < kQuestions; ++i) {
        std::uint64_t old = 0;
        heddle_fetch fetch{};
        fetch.operand = 1;
        fetch.result = &old;
        ASSERT_EQ(heddle_fetch_atomic_wait(other.handle(), HEDDLE_ADD64, {remotes[1], 8}, &fetch), HEDDLE_DONE);
        EXPECT_EQ(old, i);
      }
    }
    const std::uint64_t polls_beside = polls_of(beside);
    const std::uint64_t polls_other = polls_of(other.handle());
    EXPECT_EQ(heddle_collective_wait_on(begin_barrier(team), beside, kLongNs), HEDDLE_DONE) << heddle_last_error();
    if (context.rank() == 1) {
      EXPECT_EQ(words[1], kQuestions);
      EXPECT_LE(polls_of(beside) - polls_beside, kRarer * (polls_of(other.handle()) - polls_other) + 128);
    }
    EXPECT_EQ(heddle_worker_close(beside), HEDDLE_DONE) << heddle_last_error();
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
