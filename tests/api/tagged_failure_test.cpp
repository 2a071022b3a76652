// Tagged messages when a rank dies, a worker is closed, or arguments are wrong. One thread drives
// all ranks, so that each stage of a long message is met.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string>

#include "api/test_job.hpp"

namespace heddle::test::tagged_failure_test {
namespace {

constexpr heddle_peer kAnybody{HEDDLE_ANY, HEDDLE_ANY};
constexpr std::size_t kRanks = 3;

heddle_wanted from(std::uint32_t rank, std::uint64_t tag) {
  return {{rank, 0}, tag, UINT64_MAX};
}

// Ranks of this thread. They are closed in threads of their own, since leaving is collective.
struct Ranks {
  explicit Ranks(const char* transport) : job(kRanks, transport) {
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      contexts.push_back(job.join(rank));
      workers.push_back(contexts.back().open_worker());
    }
  }
  ~Ranks() {
    std::vector<std::thread> leaving;
    for (Context& context : contexts) leaving.emplace_back([&context] { context = {}; });
    for (std::thread& thread : leaving) thread.join();
  }
  void progress() {
    for (Worker& worker : workers) EXPECT_GE(worker.progress(), 0) << heddle_last_error();
  }
  void fail(std::uint32_t rank) const { check(heddle_inproc_fail(job.handle(), rank)); }
  // Everybody's progress until it is so; the test's own time limit is the deadline.
  template <class Condition>
  void until(Condition&& condition) {
    while (!condition()) {
      progress();
      std::this_thread::yield();
    }
  }

  Job job;
  std::vector<Context> contexts;
  std::vector<Worker> workers;
};

struct Outcome {
  int times = 0;
  Status status = HEDDLE_AGAIN;
  static void tell(void* arg, Status status) {
    auto* self = static_cast<Outcome*>(arg);
    ++self->times;
    self->status = status;
  }
  heddle_completion completion() { return {&tell, this, {}, HEDDLE_WHEN_REMOTE}; }
};

class TaggedFailure : public testing::TestWithParam<Setting> {
 protected:
  Variables variables_{GetParam().variables};
};

TEST_P(TaggedFailure, ReceivesFromTheDeadEndAndOthersGoOn) {
  Ranks ranks(GetParam().transport);
  Worker& worker = ranks.workers[0];
  std::uint64_t value = 5;
  std::array<std::uint64_t, 4> room{};
  std::array<heddle_receive, 4> receives{};
  std::array<Outcome, 4> outcomes;
  const auto post = [&](std::size_t i, heddle_wanted wanted) {
    const heddle_completion completion = outcomes.at(i).completion();
    return worker.try_recv(wanted, writable_bytes_of(room.at(i)), &receives.at(i), &completion);
  };
  // nobody will have received it
  ASSERT_GE(ranks.workers[1].try_send({0, 0}, 99, bytes_of(value)), 0);
  heddle_receive found;
  ranks.until([&] { return worker.try_probe(from(1, 99), &found) == HEDDLE_DONE; });
  ASSERT_EQ(post(0, from(1, 1)), HEDDLE_POSTED);
  ASSERT_EQ(post(1, {{1, HEDDLE_ANY}, 1, 0xF}), HEDDLE_POSTED);
  ASSERT_EQ(post(2, {kAnybody, 1, UINT64_MAX}), HEDDLE_POSTED);
  ranks.fail(1);
  ranks.until([&] { return outcomes[0].times > 0 && outcomes[1].times > 0; });
  EXPECT_EQ(outcomes[0].status, HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(outcomes[1].status, HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(receives[0].status, HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(heddle_recv_wait(worker.handle(), &receives[0], 0), HEDDLE_ERR_PEER_FAILED);
  EXPECT_NE(std::string(heddle_last_error()).find("rank 1"), std::string::npos) << heddle_last_error();
  EXPECT_EQ(post(3, from(1, 2)), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(worker.try_probe({kAnybody, 99, UINT64_MAX}, &found), HEDDLE_AGAIN) << "kept for a dead rank";
  ASSERT_GE(ranks.workers[2].try_send({0, 0}, 1, bytes_of(value)), 0);
  ranks.until([&] { return outcomes[2].times > 0; });
  EXPECT_EQ(outcomes[2].status, HEDDLE_DONE);
  EXPECT_EQ(room[2], 5U);
  for (const Outcome& outcome : outcomes) EXPECT_LE(outcome.times, 1);
}

// Otherwise a thread that asks until there is a message asks for ever.
TEST_P(TaggedFailure, ProbesAndClaimsOfTheDeadSaySo) {
  Ranks ranks(GetParam().transport);
  Worker& worker = ranks.workers[0];
  const std::uint64_t value = 5;
  heddle_receive found;
  EXPECT_EQ(worker.try_probe(from(1, 1), &found), HEDDLE_AGAIN);
  ranks.fail(1);
  ranks.until([&] { return worker.try_probe(from(1, 1), &found) != HEDDLE_AGAIN; });
  EXPECT_EQ(worker.try_probe(from(1, 1), &found), HEDDLE_ERR_PEER_FAILED);
  EXPECT_NE(std::string(heddle_last_error()).find("rank 1"), std::string::npos) << heddle_last_error();
  EXPECT_EQ(worker.try_claim(from(1, 1), &found), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(worker.try_probe({{1, HEDDLE_ANY}, 1, 0xF}, &found), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(worker.try_probe(from(2, 1), &found), HEDDLE_AGAIN);
  EXPECT_EQ(worker.try_probe({kAnybody, 1, UINT64_MAX}, &found), HEDDLE_AGAIN);
  ASSERT_GE(ranks.workers[2].try_send({0, 0}, 1, bytes_of(value)), 0);
  ranks.until([&] { return worker.try_claim({kAnybody, 1, UINT64_MAX}, &found) == HEDDLE_DONE; });
  EXPECT_EQ(found.source.rank, 2U);
}

// The receiver makes so many steps, then it is dead: the sender hears of it, once.
TEST_P(TaggedFailure, ALongMessageWhoseReceiverDiesInAnyStageEnds) {
  const std::vector<std::byte> source(1'000'000, std::byte{7});
  bool arrived = false;
  for (int steps = 0; steps < 40 && !arrived; ++steps) {
    std::vector<std::byte> room(source.size());
    heddle_receive receive;
    Outcome outcome;
    Ranks ranks(GetParam().transport);
    const heddle_completion completion = outcome.completion();
    ASSERT_EQ(ranks.workers[0].try_send({1, 0}, 3, source, &completion), HEDDLE_POSTED);
    Status received = HEDDLE_POSTED;
    if (steps > 0) received = ranks.workers[1].try_recv(from(0, 3), room, &receive);
    for (int i = 1; i < steps && outcome.times == 0; ++i) {
      ASSERT_GE(ranks.workers[1].progress(), 0);
      ASSERT_GE(ranks.workers[0].progress(), 0);
    }
    arrived = outcome.times == 1;
    ranks.fail(1);
    while (outcome.times == 0) {
      ASSERT_GE(ranks.workers[0].progress(), 0);
      std::this_thread::yield();
    }
    EXPECT_EQ(outcome.status, arrived ? HEDDLE_DONE : HEDDLE_ERR_PEER_FAILED) << "after " << steps << " steps";
    EXPECT_EQ(ranks.workers[0].try_quiet(), HEDDLE_DONE);
    EXPECT_EQ(outcome.times, 1);
    if (steps > 0 && received == HEDDLE_POSTED) {
      EXPECT_TRUE(receive.status == HEDDLE_POSTED || receive.status == HEDDLE_DONE);
      static_cast<void>(ranks.workers[1].try_cancel(&receive));
    }
    ranks.fail(0);  // so that the dead rank's worker, which is still here, waits for nobody
    ranks.workers[1] = {};
  }
  EXPECT_TRUE(arrived) << "the last stage was not reached";
}

TEST_P(TaggedFailure, ALongMessageWhoseSenderDiesInAnyStageEnds) {
  const std::vector<std::byte> source(1'000'000, std::byte{7});
  bool arrived = false;
  for (int steps = 0; steps < 40 && !arrived; ++steps) {
    std::vector<std::byte> room(source.size());
    heddle_receive receive;
    Outcome outcome;
    Outcome sent;
    Ranks ranks(GetParam().transport);
    const heddle_completion completion = outcome.completion();
    const heddle_completion sending = sent.completion();
    ASSERT_EQ(ranks.workers[1].try_recv(from(0, 3), room, &receive, &completion), HEDDLE_POSTED);
    ASSERT_EQ(ranks.workers[0].try_send({1, 0}, 3, source, &sending), HEDDLE_POSTED);
    for (int i = 0; i < steps && outcome.times == 0; ++i) {
      ASSERT_GE(ranks.workers[1].progress(), 0);
      if (outcome.times == 0) {
        ASSERT_GE(ranks.workers[0].progress(), 0);
      }
    }
    arrived = outcome.times == 1;
    ranks.fail(0);
    while (outcome.times == 0) {
      ASSERT_GE(ranks.workers[1].progress(), 0);
      std::this_thread::yield();
    }
    // Data that is reported as received has arrived: a receive from a sender that died after its
    // data was on its way may still be DONE.
    EXPECT_TRUE(outcome.status == HEDDLE_DONE || (!arrived && outcome.status == HEDDLE_ERR_PEER_FAILED))
        << heddle_status_name(outcome.status) << " after " << steps << " steps";
    if (outcome.status == HEDDLE_DONE) {
      EXPECT_EQ(room, source);
    }
    EXPECT_EQ(receive.status, outcome.status);
    EXPECT_EQ(outcome.times, 1);
    ranks.fail(1);  // so that the dead rank's worker, which is still here, waits for nobody
    ranks.workers[0] = {};
    EXPECT_EQ(sent.times, 1);
  }
  EXPECT_TRUE(arrived) << "the last stage was not reached";
}

TEST_P(TaggedFailure, ClosingAWorkerEndsItsReceivesAndTellsItsSenders) {
  Ranks ranks(GetParam().transport);
  std::uint64_t value = 1;
  std::vector<std::byte> large(1'000'000);
  std::array<heddle_receive, 2> receives{};
  Outcome outcome;
  Outcome offered;
  const heddle_completion completion = outcome.completion();
  const heddle_completion offering = offered.completion();
  std::uint64_t room = 0;
  ASSERT_EQ(ranks.workers[1].try_recv(from(0, 1), writable_bytes_of(room), &receives[0], &completion), HEDDLE_POSTED);
  ASSERT_EQ(ranks.workers[1].try_recv({kAnybody, 2, 3}, {}, &receives[1]), HEDDLE_POSTED);
  ASSERT_EQ(ranks.workers[0].try_send({1, 0}, 5, large, &offering), HEDDLE_POSTED);
  heddle_receive claimed;
  ranks.until([&] { return ranks.workers[1].try_claim(from(0, 5), &claimed) == HEDDLE_DONE; });
  ranks.workers[1] = {};
  EXPECT_EQ(outcome.times, 1);
  EXPECT_EQ(outcome.status, HEDDLE_ERR_CANCELLED);
  EXPECT_EQ(receives[0].status, HEDDLE_ERR_CANCELLED);
  EXPECT_EQ(receives[1].status, HEDDLE_ERR_CANCELLED);
  while (offered.times == 0) {
    ASSERT_GE(ranks.workers[0].progress(), 0);
    std::this_thread::yield();
  }
  EXPECT_EQ(offered.status, HEDDLE_ERR_CANCELLED);
  // Short messages are dropped; when the credit is used up, the sender learns that nobody will ever
  // receive them.
  Status status = HEDDLE_DONE;
  while (status >= 0) {
    status = ranks.workers[0].try_send({1, 0}, 1, bytes_of(value));
    ASSERT_GE(ranks.workers[0].progress(), 0);
  }
  EXPECT_EQ(status, HEDDLE_ERR_CANCELLED) << heddle_last_error();
}

// A cancelled receive of one callback may be posted again by it, and others may be posted and
// cancelled.
TEST_P(TaggedFailure, CompletionsMayPostAndCancelReceives) {
  struct State {
    Worker* worker;
    heddle_receive first, second, third;
    std::uint64_t room = 0;
    int ended = 0;
  } state{};  // outlives the worker, which ends the third
  Ranks ranks(GetParam().transport);
  state.worker = &ranks.workers[0];
  const heddle_completion completion{
      [](void* arg, Status) {
        auto* self = static_cast<State*>(arg);
        ++self->ended;
        EXPECT_GE(self->worker->try_cancel(&self->second), 0);
        EXPECT_EQ(self->worker->try_recv(from(1, 8), writable_bytes_of(self->room), &self->first), HEDDLE_POSTED);
        EXPECT_EQ(heddle_recv_wait(self->worker->handle(), &self->first, 0), HEDDLE_ERR_STATE);
      },
      &state,
      {},
      HEDDLE_WHEN_REMOTE};
  ASSERT_EQ(state.worker->try_recv(from(1, 7), {}, &state.first, &completion), HEDDLE_POSTED);
  ASSERT_EQ(state.worker->try_recv(from(1, 7), {}, &state.second), HEDDLE_POSTED);
  ASSERT_EQ(state.worker->try_recv(from(1, 7), {}, &state.third), HEDDLE_POSTED);
  EXPECT_GE(state.worker->try_cancel(&state.first), 0);
  EXPECT_EQ(state.ended, 1);
  EXPECT_EQ(state.second.status, HEDDLE_ERR_CANCELLED);
  EXPECT_EQ(state.third.status, HEDDLE_POSTED);
  const std::uint64_t value = 3;
  ASSERT_GE(ranks.workers[1].try_send({0, 0}, 8, bytes_of(value)), 0);
  ranks.until([&] { return state.first.status != HEDDLE_POSTED; });
  EXPECT_EQ(state.room, 3U);
}

INSTANTIATE_TEST_SUITE_P(Transports, TaggedFailure,
                         testing::Values(Setting{"shm", "shm", {}},
                                         Setting{"shm_bounce", "shm", {{"HEDDLE_SHM_CMA", "0"}}},
                                         Setting{"loopback", "loopback", {}},
                                         Setting{"loopback_messages", "loopback-messages", {}}),
                         name_of);

void expect_error(Status status, Status expected, const char* words) {
  EXPECT_EQ(status, expected) << heddle_status_name(status) << ": " << heddle_last_error();
  EXPECT_NE(std::string(heddle_last_error()).find(words), std::string::npos) << heddle_last_error();
}

TEST(TaggedArguments, AreChecked) {
  Context context = Context::join();
  Worker worker = context.open_worker();
  std::uint64_t value = 1;
  heddle_receive receive;
  const auto room = writable_bytes_of(value);
  expect_error(worker.try_send({1, 0}, 1, room), HEDDLE_ERR_RANK, "rank 1");
  expect_error(worker.try_send({0, 4000}, 1, room), HEDDLE_ERR_RANK, "worker 4000");
  expect_error(heddle_try_send(worker.handle(), {0, 0}, 1, nullptr, 8, nullptr), HEDDLE_ERR_ARGUMENT, "data");
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 300, (std::size_t{1} << 56) + 1}) {
    expect_error(heddle_try_send(worker.handle(), {0, 0}, 1, &value, bytes, nullptr), HEDDLE_ERR_SIZE, "bytes");
    expect_error(heddle_send(worker.handle(), {0, 0}, 1, &value, bytes, nullptr), HEDDLE_ERR_SIZE, "bytes");
  }
  EXPECT_EQ(worker.try_quiet(), HEDDLE_DONE);
  expect_error(worker.try_recv(from(7, 1), room, &receive), HEDDLE_ERR_RANK, "rank 7");
  EXPECT_EQ(receive.status, HEDDLE_ERR_RANK) << "who looks at it must not wait";
  heddle_completion foreign{nullptr, nullptr, {~std::uint64_t{0}}, HEDDLE_WHEN_REMOTE};
  expect_error(worker.try_recv(from(0, 1), room, &receive, &foreign), HEDDLE_ERR_HANDLE, "counter");
  EXPECT_EQ(receive.status, HEDDLE_ERR_HANDLE);
  expect_error(worker.try_recv({{0, 4000}, 1, 1}, room, &receive), HEDDLE_ERR_RANK, "worker 4000");
  expect_error(worker.try_recv({{HEDDLE_ANY, 0}, 1, 1}, room, &receive), HEDDLE_ERR_ARGUMENT, "HEDDLE_ANY for both");
  expect_error(worker.try_recv(from(0, 1), room, nullptr), HEDDLE_ERR_ARGUMENT, "receive");
  expect_error(heddle_try_recv(worker.handle(), nullptr, &value, 8, &receive, nullptr), HEDDLE_ERR_ARGUMENT, "wanted");
  const heddle_wanted wanted = from(0, 1);
  expect_error(heddle_try_recv(worker.handle(), &wanted, nullptr, 8, &receive, nullptr), HEDDLE_ERR_ARGUMENT, "data");
  expect_error(worker.try_probe(wanted, nullptr), HEDDLE_ERR_ARGUMENT, "found");
  expect_error(worker.try_claim(from(3, 1), &receive), HEDDLE_ERR_RANK, "rank 3");
  expect_error(worker.try_cancel(nullptr), HEDDLE_ERR_ARGUMENT, "receive");
  ASSERT_EQ(worker.try_recv(wanted, room, &receive), HEDDLE_POSTED);
  expect_error(worker.wait(receive, 1000), HEDDLE_ERR_TIMEOUT, "1000 ns");
  ASSERT_EQ(worker.try_cancel(&receive), HEDDLE_DONE);
  expect_error(worker.wait(receive), HEDDLE_ERR_CANCELLED, "HEDDLE_ERR_CANCELLED");
  expect_error(worker.try_recv_claimed(room, &receive), HEDDLE_ERR_ARGUMENT, "claimed");
  const auto closed = worker.handle();
  ASSERT_EQ(worker.try_recv(wanted, room, &receive), HEDDLE_POSTED);
  worker = {};
  EXPECT_EQ(receive.status, HEDDLE_ERR_CANCELLED);
  expect_error(heddle_recv_wait(closed, &receive, HEDDLE_FOREVER), HEDDLE_ERR_HANDLE, "worker");
  expect_error(heddle_try_send(closed, {0, 0}, 1, &value, 8, nullptr), HEDDLE_ERR_HANDLE, "worker");
  expect_error(heddle_try_recv(closed, &wanted, &value, 8, &receive, nullptr), HEDDLE_ERR_HANDLE, "worker");
}

// While another thread is inside a shared worker, a receive that cannot be posted now also has
// AGAIN as its status.
TEST(TaggedArguments, AReceiveThatWasNotPostedSaysSo) {
  const Variables variables(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_SHARING", "shared"}});
  Context context = Context::join();
  Worker worker = context.open_worker();
  std::atomic<int> stage{0};
  const auto wait_for = [&stage](int wanted) {
    return within_time([&] { return stage.load(std::memory_order_acquire) >= wanted; }, [] {});
  };
  const auto hold = [](void* arg) {
    auto* self = static_cast<std::atomic<int>*>(arg);
    self->store(1, std::memory_order_release);
    while (self->load(std::memory_order_acquire) < 2) std::this_thread::yield();
  };
  std::thread holder([&] { EXPECT_EQ(heddle_run_on_engine(worker.handle(), hold, &stage, nullptr), HEDDLE_DONE); });
  ASSERT_TRUE(wait_for(1));
  std::uint64_t value = 0;
  heddle_receive receive{};
  EXPECT_EQ(worker.try_recv(from(0, 1), writable_bytes_of(value), &receive), HEDDLE_AGAIN);
  EXPECT_EQ(receive.status, HEDDLE_AGAIN);
  expect_error(worker.wait(receive), HEDDLE_ERR_ARGUMENT, "AGAIN");
  stage.store(2, std::memory_order_release);
  holder.join();
}

TEST(TaggedArguments, TheWindowIsChecked) {
  for (const char* bytes : {"1K", "2G"}) {
    const Variables variables(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_TAG_CREDIT_BYTES", bytes}});
    heddle_context context{};
    expect_error(heddle_context_join(nullptr, &context), HEDDLE_ERR_CONFIG, "HEDDLE_TAG_CREDIT_BYTES");
  }
}

}  // namespace
}  // namespace heddle::test::tagged_failure_test
