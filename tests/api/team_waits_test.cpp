// A thread that waits on one worker answers peers at its other workers meanwhile: in
// waits on a team with heddle_team_set_waits, and in all waits of a worker that was opened with
// heddle_worker_options.attends.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "api/test_job.hpp"

namespace heddle::test::team_waits_test {
namespace {

constexpr std::int64_t kLongNs = 30'000'000'000;

heddle_collective begin_barrier(heddle_team team) {
  heddle_collective barrier{};
  EXPECT_EQ(heddle_barrier_start(team, &barrier), HEDDLE_POSTED) << heddle_last_error();
  return barrier;
}

// Waits for a barrier, with progress on the worker.
heddle_status meet_on(heddle_team team, heddle_worker worker) {
  heddle_team_waits waits{};
  waits.size = sizeof waits;
  waits.worker = worker;
  EXPECT_EQ(heddle_team_set_waits(team, &waits), HEDDLE_DONE) << heddle_last_error();
  return heddle_collective_wait(begin_barrier(team), kLongNs);
}

class TeamWaits : public testing::TestWithParam<const char*> {};

// Rank 0 comes to the barrier only after rank 1, which waits there on an exclusive worker that
// nobody helps, has taken its messages.
TEST_P(TeamWaits, AnswersPeers) {
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
      EXPECT_EQ(meet_on(team, worker), HEDDLE_DONE);
    } else {
      std::vector<std::vector<std::uint32_t>> got(kMessages, std::vector<std::uint32_t>(data.size()));
      std::vector<heddle_receive> receives(kMessages);
      for (std::uint64_t tag = 0; tag < kMessages; ++tag) {
        const heddle_wanted wanted{{0, HEDDLE_ANY}, tag, ~std::uint64_t{0}};
        ASSERT_GE(heddle_recv(worker, &wanted, got[tag].data(), data.size() * sizeof data[0], &receives[tag], nullptr),
                  0);
      }
      EXPECT_EQ(meet_on(team, worker), HEDDLE_DONE) << heddle_last_error();
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

// Requests of peers to the other workers take little longer: the wait polls these workers about as
// often.
TEST_P(TeamWaits, TheOtherWorkersAreLookedAtToo) {
  Job(2, GetParam()).run([](Context& context, Worker& other) {
    constexpr int kQuestions = 300;
    constexpr std::uint64_t kRarer = 16;  // at most, and at first
    heddle_worker_options options{};
    options.size = sizeof options;
    options.sharing = HEDDLE_SHARING_EXCLUSIVE;
    heddle_worker beside{};
    ASSERT_EQ(heddle_worker_open(context.handle(), &options, &beside), HEDDLE_DONE);
    // Registered: the owner's worker 0 executes the operations of peers there.
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
    EXPECT_EQ(meet_on(team, beside), HEDDLE_DONE) << heddle_last_error();
    if (context.rank() == 1) {
      EXPECT_EQ(words[1], kQuestions);
      EXPECT_LE(polls_of(beside) - polls_beside, kRarer * (polls_of(other.handle()) - polls_other) + 128);
    }
    EXPECT_EQ(heddle_worker_close(beside), HEDDLE_DONE) << heddle_last_error();
  });
}

// A member with registered memory; its worker 0 executes the operations of peers there.
struct Registered {
  explicit Registered(const Context& context) {
    EXPECT_EQ(heddle_region_register(context.handle(), words.data(), sizeof words, &region), HEDDLE_DONE);
    EXPECT_EQ(heddle_region_exchange(context.handle(), region, remotes.data()), HEDDLE_DONE);
  }
  std::array<std::uint64_t, 8> words{};
  heddle_region region{};
  std::array<heddle_remote_region, 2> remotes{};
};

void ask(heddle_worker worker, heddle_remote_region of, std::uint64_t questions) {
  for (std::uint64_t i = 0; i < questions; ++i) {
    std::uint64_t old = 0;
    heddle_fetch fetch{};
    fetch.operand = 1;
    fetch.result = &old;
    ASSERT_EQ(heddle_fetch_atomic_wait(worker, HEDDLE_ADD64, {of, 8}, &fetch), HEDDLE_DONE) << heddle_last_error();
    ASSERT_EQ(old, i);
  }
}

heddle_worker open_auto(const Context& context, std::uint64_t attends) {
  heddle_worker_options options{};
  options.size = sizeof options;
  options.sharing = HEDDLE_SHARING_AUTO;
  options.attends = attends;
  heddle_worker worker{};
  EXPECT_EQ(heddle_worker_open(context.handle(), &options, &worker), HEDDLE_DONE) << heddle_last_error();
  return worker;
}

using Wait = void (*)(heddle_worker worker, heddle_receive& receive);
void wait_for_message(heddle_worker worker, heddle_receive& receive) {
  EXPECT_EQ(heddle_recv_wait(worker, &receive, kLongNs), HEDDLE_DONE) << heddle_last_error();
}
// A loop of the program's own, which checks its condition between two waits.
void wait_for_any_move(heddle_worker worker, heddle_receive& receive) {
  while (std::atomic_ref(receive.status).load(std::memory_order_acquire) == HEDDLE_POSTED)
    ASSERT_EQ(heddle_worker_wait(worker, kLongNs), HEDDLE_DONE) << heddle_last_error();
}

// Rank 1 waits on another worker than the one that rank 0 asks, for a message that comes when all
// questions have been answered: it looks at that one about as often.
TEST_P(TeamWaits, WaitsOfAWorkerThatAttendsLookAtTheOthers) {
  for (const Wait wait : {&wait_for_message, &wait_for_any_move}) {
    Job(2, GetParam()).run([wait](Context& context, Worker& other) {
      constexpr int kQuestions = 300;
      constexpr std::uint64_t kRarer = 64;  // at most, while it spins
      const heddle_worker beside = open_auto(context, 1);
      Registered mine(context);
      if (context.rank() == 0) {
        ask(other.handle(), mine.remotes[1], kQuestions);
        ASSERT_GE(heddle_send(beside, {1, 1}, 1, nullptr, 0, nullptr), 0) << heddle_last_error();
        ASSERT_EQ(heddle_quiet(beside), HEDDLE_DONE);
      } else {
        const std::uint64_t polls_beside = polls_of(beside);
        const std::uint64_t polls_other = polls_of(other.handle());
        heddle_receive receive{};
        const heddle_wanted wanted{{0, HEDDLE_ANY}, 1, ~std::uint64_t{0}};
        ASSERT_GE(heddle_recv(beside, &wanted, nullptr, 0, &receive, nullptr), 0);
        wait(beside, receive);
        EXPECT_EQ(mine.words[1], kQuestions);
        EXPECT_LE(polls_of(beside) - polls_beside, kRarer * (polls_of(other.handle()) - polls_other) + 256);
      }
      static_cast<void>(context.exchange(std::vector<std::byte>(1)));
      EXPECT_EQ(heddle_worker_close(beside), HEDDLE_DONE) << heddle_last_error();
    });
  }
}

// A receive of a worker that belongs to another thread, which does something else meanwhile: the
// calling thread's waits on `beside` have to move it.
void await_owned(const Context& context, heddle_worker beside, std::atomic<bool>& sleeps) {
  heddle_receive receive{};
  heddle_worker owned{};
  std::atomic<int> step{0};
  std::thread owner([&] {
    owned = open_auto(context, 0);
    const heddle_wanted wanted{{0, HEDDLE_ANY}, 1, ~std::uint64_t{0}};
    EXPECT_GE(heddle_recv(owned, &wanted, nullptr, 0, &receive, nullptr), 0) << heddle_last_error();
    EXPECT_EQ(heddle_worker_progress(owned), 0);
    step.store(1, std::memory_order_release);
    step.notify_all();
    step.wait(1, std::memory_order_acquire);
  });
  step.wait(0, std::memory_order_acquire);
  static_cast<void>(context.exchange(std::vector<std::byte>(1)));
  const auto until = std::chrono::steady_clock::now() + kFaultTime;
  int returned = 0;
  while (std::atomic_ref(receive.status).load(std::memory_order_acquire) == HEDDLE_POSTED &&
         std::chrono::steady_clock::now() < until) {
    ASSERT_EQ(heddle_worker_wait(beside, HEDDLE_FOREVER), HEDDLE_DONE) << heddle_last_error();
    if (++returned == 3) sleeps = true;  // the looks of its beginning are over
  }
  EXPECT_EQ(receive.status, HEDDLE_DONE);
  step.store(2, std::memory_order_release);
  step.notify_all();
  owner.join();
  EXPECT_EQ(heddle_worker_close(owned), HEDDLE_DONE) << heddle_last_error();
}

// A loop without end goes on with the naps of the wait before: it looks at the others before each.
TEST_P(TeamWaits, ALoopOfWaitsLooksAtWorkersOfOtherThreads) {
  const std::vector<std::pair<const char*, const char*>> settings = {{"HEDDLE_PROGRESS", "none"}};
  const Variables none(settings);
  std::atomic<bool> sleeps{false};
  Job(2, GetParam()).run([&sleeps](Context& context, Worker& other) {
    const heddle_worker beside = open_auto(context, 1);
    if (context.rank() == 1) {
      await_owned(context, beside, sleeps);
    } else {
      static_cast<void>(context.exchange(std::vector<std::byte>(1)));
      while (!sleeps) std::this_thread::yield();
      ASSERT_GE(heddle_send(other.handle(), {1, 2}, 1, nullptr, 0, nullptr), 0) << heddle_last_error();
      ASSERT_EQ(heddle_quiet(other.handle()), HEDDLE_DONE);
    }
    static_cast<void>(context.exchange(std::vector<std::byte>(1)));
    EXPECT_EQ(heddle_worker_close(beside), HEDDLE_DONE) << heddle_last_error();
  });
}

// If another thread moves the worker between two waits of this one, the second wait ends.
TEST_P(TeamWaits, WhatAnotherThreadHasMovedEndsAWait) {
  const std::vector<std::pair<const char*, const char*>> settings = {{"HEDDLE_PROGRESS", "none"}};
  const Variables none(settings);
  Job(1, GetParam()).run([](Context& context, Worker&) {
    constexpr std::int64_t kShortNs = 20'000'000;
    const heddle_worker beside = open_auto(context, 1);
    const heddle_worker moved = open_auto(context, 0);
    while (heddle_worker_wait(beside, kShortNs) == HEDDLE_DONE) {
    }
    std::thread([moved] {
      heddle_receive receive{};
      const heddle_wanted wanted{{0, HEDDLE_ANY}, 1, ~std::uint64_t{0}};
      EXPECT_GE(heddle_recv(moved, &wanted, nullptr, 0, &receive, nullptr), 0) << heddle_last_error();
      EXPECT_GE(heddle_send(moved, {0, 2}, 1, nullptr, 0, nullptr), 0) << heddle_last_error();
      EXPECT_EQ(heddle_recv_wait(moved, &receive, kLongNs), HEDDLE_DONE) << heddle_last_error();
    }).join();
    EXPECT_EQ(heddle_worker_wait(beside, kShortNs), HEDDLE_DONE);
    EXPECT_EQ(heddle_worker_wait(beside, kShortNs), HEDDLE_ERR_TIMEOUT);
    for (const heddle_worker worker : {beside, moved}) EXPECT_EQ(heddle_worker_close(worker), HEDDLE_DONE);
  });
}

// Without that a wait costs the other workers nothing.
TEST_P(TeamWaits, OtherWaitsLookAtOneWorker) {
  Job(2, GetParam()).run([](Context& context, Worker& other) {
    const heddle_worker beside = open_auto(context, 0);
    const std::uint64_t before = polls_of(other.handle());
    EXPECT_EQ(heddle_worker_wait(beside, 20'000'000), HEDDLE_ERR_TIMEOUT);
    heddle_receive receive{};
    const heddle_wanted wanted{{HEDDLE_ANY, HEDDLE_ANY}, 1, ~std::uint64_t{0}};
    ASSERT_GE(heddle_recv(beside, &wanted, nullptr, 0, &receive, nullptr), 0);
    EXPECT_EQ(heddle_recv_wait(beside, &receive, 20'000'000), HEDDLE_ERR_TIMEOUT);
    EXPECT_EQ(polls_of(other.handle()), before);
    EXPECT_EQ(heddle_recv_cancel(beside, &receive), HEDDLE_DONE) << heddle_last_error();
    EXPECT_EQ(heddle_worker_close(beside), HEDDLE_DONE) << heddle_last_error();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, TeamWaits, testing::Values("shm", "loopback-messages"),
                         [](const auto& one) { return std::string(one.param) == "shm" ? "shm" : "messages"; });

TEST(TeamWaitsArguments, AreChecked) {
  Job(1, "shm").run([](Context& context, Worker& worker) {
    heddle_team team{};
    ASSERT_EQ(heddle_team_world(context.handle(), &team), HEDDLE_DONE);
    heddle_team_waits waits{};
    EXPECT_EQ(heddle_team_set_waits(team, &waits), HEDDLE_ERR_ARGUMENT);  // no size
    waits.size = sizeof waits;
    EXPECT_EQ(heddle_team_set_waits({}, &waits), HEDDLE_ERR_HANDLE);
    waits.worker = {worker.handle().id + 1'000'000};
    EXPECT_EQ(heddle_team_set_waits(team, &waits), HEDDLE_ERR_HANDLE);
    Job(1, "shm").run([&](Context&, Worker& foreign) {
      waits.worker = foreign.handle();
      EXPECT_EQ(heddle_team_set_waits(team, &waits), HEDDLE_ERR_ARGUMENT);
    });
    waits.worker = worker.handle();
    EXPECT_EQ(heddle_team_set_waits(team, &waits), HEDDLE_DONE) << heddle_last_error();
    EXPECT_EQ(heddle_barrier(team), HEDDLE_DONE);
    EXPECT_EQ(heddle_team_set_waits(team, nullptr), HEDDLE_DONE);
    EXPECT_EQ(heddle_barrier(team), HEDDLE_DONE);
  });
}

// Rank 0 comes to the broadcast only when rank 1 has tried from there what it may not.
TEST(TeamWaitsProgress, MayNotUseTheTeam) {
  Job(2, "shm").run([](Context& context, Worker& worker) {
    heddle_team team{};
    ASSERT_EQ(heddle_team_world(context.handle(), &team), HEDDLE_DONE) << heddle_last_error();
    struct State {
      heddle_worker worker;
      heddle_team team;
      bool tried = false;
    } state{worker.handle(), team};
    const auto progress = [](void* self) {
      auto& one = *static_cast<State*>(self);
      if (std::exchange(one.tried, true)) return 0;
      EXPECT_EQ(heddle_barrier(one.team), HEDDLE_ERR_STATE);
      EXPECT_EQ(heddle_team_free(one.team), HEDDLE_ERR_STATE);
      EXPECT_GE(heddle_send(one.worker, {0, 0}, 7, nullptr, 0, nullptr), 0);
      return -1;
    };
    std::array<std::uint64_t, 4096> all{};
    if (context.rank() == 1) {
      heddle_team_waits waits{};
      waits.size = sizeof waits;
      waits.worker = worker.handle();
      waits.progress = progress;
      waits.arg = &state;
      ASSERT_EQ(heddle_team_set_waits(team, &waits), HEDDLE_DONE) << heddle_last_error();
    } else {
      heddle_receive receive{};
      constexpr heddle_wanted kTried{{1, HEDDLE_ANY}, 7, ~std::uint64_t{0}};
      ASSERT_GE(heddle_recv(worker.handle(), &kTried, nullptr, 0, &receive, nullptr), 0);
      ASSERT_EQ(heddle_recv_wait(worker.handle(), &receive, kLongNs), HEDDLE_DONE) << heddle_last_error();
      all.fill(9);
    }
    EXPECT_EQ(heddle_broadcast(team, all.data(), sizeof all, 0), HEDDLE_DONE) << heddle_last_error();
    EXPECT_EQ(all.back(), 9U);
    EXPECT_EQ(state.tried, context.rank() == 1);
    EXPECT_EQ(heddle_team_set_waits(team, nullptr), HEDDLE_DONE);
  });
}

// What only the caller can move is moved while a thread waits in a blocking call: rank 0 comes to
// it only after rank 1 has answered twice from there.
TEST(TeamWaitsProgress, TheCallersOwnProgressIsMade) {
  Job(2, "shm").run([](Context& context, Worker& worker) {
    heddle_team team{};
    ASSERT_EQ(heddle_team_world(context.handle(), &team), HEDDLE_DONE) << heddle_last_error();
    ASSERT_EQ(heddle_barrier(team), HEDDLE_DONE);
    struct State {
      heddle_worker worker;
      std::uint64_t question = 0;
      heddle_receive receive{};
      int answered = 0;
      bool posted = false;
    } state{worker.handle()};
    const auto progress = [](void* self) {
      auto& one = *static_cast<State*>(self);
      constexpr heddle_wanted kQuestion{{0, HEDDLE_ANY}, 7, ~std::uint64_t{0}};
      if (!one.posted) {
        EXPECT_GE(heddle_recv(one.worker, &kQuestion, &one.question, 8, &one.receive, nullptr), 0);
        one.posted = true;
      }
      if (std::atomic_ref(one.receive.status).load(std::memory_order_acquire) == HEDDLE_POSTED) return 0;
      one.posted = false;
      ++one.answered;
      const std::uint64_t answer = one.question + 1;
      EXPECT_GE(heddle_send(one.worker, {0, 0}, 8, &answer, sizeof answer, nullptr), 0);
      return 1;
    };
    if (context.rank() == 1) {
      heddle_team_waits waits{};
      waits.size = sizeof waits;
      waits.worker = worker.handle();
      waits.progress = progress;
      waits.arg = &state;
      ASSERT_EQ(heddle_team_set_waits(team, &waits), HEDDLE_DONE) << heddle_last_error();
    } else {
      for (const std::uint64_t question : {3U, 5U}) {
        ASSERT_GE(heddle_send(worker.handle(), {1, 0}, 7, &question, sizeof question, nullptr), 0);
        std::uint64_t answer = 0;
        heddle_receive receive{};
        constexpr heddle_wanted kAnswer{{1, HEDDLE_ANY}, 8, ~std::uint64_t{0}};
        ASSERT_GE(heddle_recv(worker.handle(), &kAnswer, &answer, sizeof answer, &receive, nullptr), 0);
        ASSERT_EQ(heddle_recv_wait(worker.handle(), &receive, kLongNs), HEDDLE_DONE) << heddle_last_error();
        EXPECT_EQ(answer, question + 1);
      }
    }
    std::array<std::uint64_t, 4096> all{};
    if (context.rank() == 0) all.fill(9);
    EXPECT_EQ(heddle_broadcast(team, all.data(), sizeof all, 0), HEDDLE_DONE) << heddle_last_error();
    EXPECT_EQ(all.back(), 9U);
    if (context.rank() == 1) {
      EXPECT_EQ(state.answered, 2);
      ASSERT_EQ(heddle_team_set_waits(team, nullptr), HEDDLE_DONE);
      if (state.posted) {
        EXPECT_EQ(heddle_recv_cancel(worker.handle(), &state.receive), HEDDLE_DONE);
      }
    }
  });
}

}  // namespace
}  // namespace heddle::test::team_waits_test
