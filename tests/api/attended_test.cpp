// A rank that waits for others in a barrier, an exchange or a collective makes progress on its
// workers meanwhile: peers wait for answers that only these workers can give. There are no helpers
// (HEDDLE_PROGRESS=none).
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "api/test_job.hpp"
#include "engine/handles.hpp"
#include "worker/worker.hpp"

namespace heddle::test::attended_test {
namespace {

struct Mode {
  const char* name;
  heddle_sharing sharing;
  std::uint64_t no_help;
};

std::ostream& operator<<(std::ostream& out, const Mode& mode) {
  return out << mode.name;
}

constexpr std::array kModes = {Mode{"exclusive", HEDDLE_SHARING_EXCLUSIVE, 0},
                               Mode{"exclusive_no_help", HEDDLE_SHARING_EXCLUSIVE, 1},
                               Mode{"auto", HEDDLE_SHARING_AUTO, 0}, Mode{"shared", HEDDLE_SHARING_SHARED, 0},
                               Mode{"delegate", HEDDLE_SHARING_DELEGATE, 0}};
constexpr std::array kTransports = {"shm", "loopback-messages"};
constexpr std::size_t kLong = 3'000'000;

heddle_worker open_worker(const Context& context, const Mode& mode) {
  heddle_worker_options options{};
  options.size = sizeof options;
  options.sharing = mode.sharing;
  options.no_help = mode.no_help;
  heddle_worker worker{};
  EXPECT_EQ(heddle_worker_open(context.handle(), &options, &worker), HEDDLE_DONE) << heddle_last_error();
  return worker;
}

// A rank, its only worker, and its registered memory: worker 0 executes the operations of peers
// there.
struct Place {
  Place(const Job& job, std::uint32_t number, const Mode& mode)
      : context(job.join(number)), worker(open_worker(context, mode)) {
    check(heddle_region_register(context.handle(), words.data(), sizeof words, &region));
    check(heddle_region_exchange(context.handle(), region, remotes.data()));
    check(heddle_team_world(context.handle(), &team));
  }
  Context context;
  heddle_worker worker{};
  alignas(8) std::array<std::uint64_t, 8> words{};
  heddle_region region{};
  std::array<heddle_remote_region, 2> remotes{};
  heddle_team team{};
};

// Progress on the worker alone until the counter has its value.
bool awaits(heddle_worker worker, heddle_counter counter, std::uint64_t value) {
  const std::int64_t longest = std::chrono::nanoseconds(kFaultTime).count();
  return heddle_counter_wait(worker, counter, value, longest) == HEDDLE_DONE;
}

// Rank 0 adds to a word of rank 1.
bool adds(Place& mine) {
  heddle_counter counter{};
  heddle_counter_options options{};
  options.size = sizeof options;
  options.counts_done = 1;
  check(heddle_counter_create(mine.context.handle(), &options, &counter));
  std::uint64_t old = 1;
  heddle_fetch fetch{};
  fetch.operand = 7;
  fetch.result = &old;
  heddle_completion completion{};
  completion.counter = counter;
  EXPECT_GE(heddle_fetch_atomic(mine.worker, HEDDLE_ADD64, {mine.remotes[1], 16}, &fetch, &completion), 0)
      << heddle_last_error();
  const bool came = awaits(mine.worker, counter, 1);
  EXPECT_EQ(old, came ? 0U : 1U);
  return came;
}

struct Call {
  const char* name;
  heddle_status (*make)(Place& mine);
};

std::ostream& operator<<(std::ostream& out, const Call& call) {
  return out << call.name;
}

heddle_status make_team(Place& mine) {
  heddle_team half{};
  const heddle_status status = heddle_team_split(mine.team, 0, mine.context.rank(), &half);
  return status == HEDDLE_DONE ? heddle_team_free(half) : status;
}

heddle_status exchange_regions(Place& mine) {
  std::array<heddle_remote_region, 2> all{};
  return heddle_region_exchange(mine.context.handle(), mine.region, all.data());
}

heddle_status exchange(Place& mine) {
  const std::uint32_t rank = mine.context.rank();
  std::array<std::uint32_t, 2> all{};
  return heddle_context_exchange(mine.context.handle(), &rank, sizeof rank, all.data());
}

heddle_status start_and_wait(Place& mine) {
  heddle_collective barrier{};
  const heddle_status status = heddle_barrier_start(mine.team, &barrier);
  return status < 0 ? status : heddle_collective_wait(barrier, HEDDLE_FOREVER);
}

constexpr std::array kCalls = {
    Call{"context_barrier",
         [](Place& mine) { return heddle_context_barrier(mine.context.handle(), heddle_worker{}, HEDDLE_FOREVER); }},
    Call{"context_exchange", exchange},
    Call{"region_exchange", exchange_regions},
    Call{"barrier", [](Place& mine) { return heddle_barrier(mine.team); }},
    Call{"collective_wait", start_and_wait},
    Call{"team_split", make_team},
    Call{"context_leave", [](Place& mine) { return heddle_context_leave(mine.context.handle()); }}};

class Attended : public testing::TestWithParam<std::tuple<const char*, Mode, Call>> {
 protected:
  // Runs the body once per rank; then both make the call, rank 1 at once.
  void run(const std::function<bool(Place&)>& of_rank_0, const std::function<void(Place&)>& of_rank_1) {
    const auto& [transport, mode, call] = GetParam();
    const std::vector<std::pair<const char*, const char*>> settings = {{"HEDDLE_PROGRESS", "none"}};
    const Variables none(settings);
    const Job job(2, transport);
    std::array<std::thread, 2> threads;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      threads[rank] = std::thread([&, rank, &how = mode, &waits = call] {
        try {
          Place mine(job, rank, how);
          if (rank == 0) {
            EXPECT_TRUE(of_rank_0(mine)) << "rank 1 makes no progress in its call";
          } else {
            of_rank_1(mine);
          }
          EXPECT_EQ(waits.make(mine), HEDDLE_DONE) << heddle_last_error();
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

// Rank 0 comes to the call only after rank 1, which is in it, has answered the request of rank 0.
TEST_P(Attended, WorkersCarryOutWhatPeersAsk) {
  run(adds, [](Place&) {});
}

// A long message needs several steps of the receiver.
TEST_P(Attended, WorkersFetchLongMessages) {
  std::vector<char> sent(kLong, 's');
  std::vector<char> got(kLong, 'g');
  heddle_receive receive{};
  const auto send = [&](Place& mine) {
    heddle_counter counter{};
    check(heddle_counter_create(mine.context.handle(), nullptr, &counter));
    heddle_completion completion{};
    completion.counter = counter;
    completion.when = HEDDLE_WHEN_MATCHED;
    const heddle_status status = heddle_send(mine.worker, {1, 0}, 5, sent.data(), sent.size(), &completion);
    EXPECT_GE(status, 0) << heddle_last_error();
    return status == HEDDLE_DONE || awaits(mine.worker, counter, 1);
  };
  run(send, [&](Place& mine) {
    const heddle_wanted wanted{{0, HEDDLE_ANY}, 5, ~std::uint64_t{0}};
    EXPECT_GE(heddle_recv(mine.worker, &wanted, got.data(), got.size(), &receive, nullptr), 0) << heddle_last_error();
  });
  EXPECT_EQ(receive.status, HEDDLE_DONE);
  EXPECT_EQ(got, sent);
}

// The thread that opened an exclusive worker may make progress on it in a wait, until another
// thread has posted an operation on it that raises a counter, even if that is done at once.
TEST(Ownership, GoesWithTheCounterOfAWorker) {
  const Job job(1, "shm");
  const Context context = job.join(0);
  const heddle_worker worker = open_worker(context, kModes[1]);
  heddle_region region{};
  check(heddle_region_alloc(context.handle(), 64, &region));
  heddle_remote_region remote{};
  check(heddle_region_exchange(context.handle(), region, &remote));
  heddle_counter_options options{};
  options.size = sizeof options;
  options.worker = worker;
  options.counts_done = 1;
  heddle_counter counter{};
  check(heddle_counter_create(context.handle(), &options, &counter));
  auto* const inner = engine::find_handle<worker::Worker>(worker.id);
  ASSERT_NE(inner, nullptr);
  EXPECT_TRUE(inner->ownership().attend([] {}));
  std::thread([&] {
    heddle_completion completion{};
    completion.counter = counter;
    const std::uint64_t word = 7;
    EXPECT_EQ(heddle_put(worker, &word, sizeof word, {remote, 0}, &completion), HEDDLE_DONE) << heddle_last_error();
  }).join();
  EXPECT_FALSE(inner->ownership().attend([] {}));
  EXPECT_GE(heddle_worker_progress(worker), 0);
  EXPECT_TRUE(inner->ownership().attend([] {})) << "it has come back";
}

INSTANTIATE_TEST_SUITE_P(Waits, Attended,
                         testing::Combine(testing::ValuesIn(kTransports), testing::ValuesIn(kModes),
                                          testing::ValuesIn(kCalls)),
                         [](const auto& one) {
                           const std::string transport = std::get<0>(one.param);
                           return (transport == "shm" ? "shm_" : "messages_") +
                                  std::string(std::get<1>(one.param).name) + "_" + std::get<2>(one.param).name;
                         });

}  // namespace
}  // namespace heddle::test::attended_test
