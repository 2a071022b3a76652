// A thread that waits for long sleeps, in every mode, and arrivals wake it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <string>

#include "api/test_job.hpp"
#include "base/fence.hpp"

namespace heddle::test::waiting_test {
namespace {

constexpr std::chrono::milliseconds kWait{500};

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

long sleeps_of_this_thread() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

struct Case {
  const char* transport;
  heddle_sharing sharing;
};

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.transport;
  std::replace(name.begin(), name.end(), '+', '_');
  return name + "_" + std::to_string(info.param.sharing);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const heddle_sharing mode : all_modes()) all.push_back({"shm", mode});
  for (const char* transport : {"loopback", "fault+shm"}) all.push_back({transport, HEDDLE_SHARING_EXCLUSIVE});
  return all;
}

// heddle_worker_wait_for, until finished() is true.
template <class Finished>
void wait_for(heddle_worker worker, const Finished& finished) {
  const heddle_wait_condition condition{
      sizeof condition,
      [](void* arg) { return (*static_cast<const Finished*>(arg))() ? HEDDLE_DONE : HEDDLE_AGAIN; },
      const_cast<void*>(static_cast<const void*>(&finished)),
      "a test",
      nullptr,
      nullptr};
  ASSERT_EQ(heddle_worker_wait_for(worker, &condition, HEDDLE_FOREVER), HEDDLE_DONE) << heddle_last_error();
}

class Waiting : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Modes, Waiting, testing::ValuesIn(cases()), case_name);

// Processor time is counted, so others on the machine do not matter. Each kind of wait, ended by
// rank 1 after a while.
TEST_P(Waiting, ForLongCostsLittleAndEndsWithWhatArrives) {
  const Case given = GetParam();
  std::atomic<std::uint64_t> raised{0};
  std::atomic<bool> written{false};
  std::atomic<bool> written_again{false};
  Job(2, given.transport).run([&](Context& context, Worker&) {
    heddle_worker_options options{};
    options.size = sizeof options;
    options.sharing = given.sharing;
    heddle_worker worker{};
    ASSERT_EQ(heddle_worker_open(context.handle(), &options, &worker), HEDDLE_DONE) << heddle_last_error();
    ASSERT_EQ(
        heddle_am_register(
            context.handle(), 3,
            [](const heddle_am_arrival*, void* arg) { static_cast<std::atomic<std::uint64_t>*>(arg)->fetch_add(1); },
            &raised),
        HEDDLE_DONE);
    const auto meet = [&] { ASSERT_EQ(heddle_context_barrier(context.handle(), worker, HEDDLE_FOREVER), HEDDLE_DONE); };
    for (int i = 0; i < 3; ++i) meet();
    std::uint64_t got = 0;
    const std::uint64_t sent = 7;
    const heddle_peer waiter{0, 1};  // worker 0 is the job's
    const heddle_am_message message{3, 0, nullptr, nullptr, 0};
    const auto own_loop = [&](const auto& finished) {
      while (!finished()) ASSERT_EQ(heddle_worker_wait(worker, HEDDLE_FOREVER), HEDDLE_DONE) << heddle_last_error();
    };
    const std::array<std::pair<std::function<void()>, std::function<void()>>, 7> kinds = {{
        {[&] {
           const auto* word = reinterpret_cast<const std::uint64_t*>(&raised);
           EXPECT_EQ(heddle_signal_wait(worker, word, HEDDLE_EQ, 1, HEDDLE_FOREVER), HEDDLE_DONE);
         },
         [&] { EXPECT_GE(heddle_am(worker, waiter, &message, nullptr), 0) << heddle_last_error(); }},
        {[&] {
           const heddle_wanted wanted{{1, HEDDLE_ANY}, 1, UINT64_MAX};
           heddle_receive receive{};
           ASSERT_GE(heddle_recv(worker, &wanted, &got, sizeof got, &receive, nullptr), 0);
           EXPECT_EQ(heddle_recv_wait(worker, &receive, HEDDLE_FOREVER), HEDDLE_DONE);
           EXPECT_EQ(got, sent);
         },
         [&] { EXPECT_GE(heddle_send(worker, waiter, 1, &sent, sizeof sent, nullptr), 0) << heddle_last_error(); }},
        {meet, meet},
        {[&] { own_loop([&] { return raised.load() == 2; }); },
         [&] { EXPECT_GE(heddle_am(worker, waiter, &message, nullptr), 0) << heddle_last_error(); }},
        // Events that no worker reports.
        {[&] { own_loop([&] { return written.load(); }); }, [&] { written.store(true); }},
        {[&] { wait_for(worker, [&] { return raised.load() == 3; }); },
         [&] { EXPECT_GE(heddle_am(worker, waiter, &message, nullptr), 0) << heddle_last_error(); }},
        {[&] { wait_for(worker, [&] { return written_again.load(); }); }, [&] { written_again.store(true); }},
    }};
    for (const auto& [wait, end] : kinds) {
      const double before = thread_seconds();
      if (context.rank() == 0) {
        const auto begun = std::chrono::steady_clock::now();
        wait();
        const double used = thread_seconds() - before;
        // The awaited rank may be away for longer.
        const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begun;
        const double bound = 0.1 * std::max<double>(waited.count(), std::chrono::duration<double>(kWait).count()) *
                             (base::kThreadSanitizer ? 4 : 1);
        EXPECT_LT(used, bound) << "it did not sleep";
      } else {
        std::this_thread::sleep_for(kWait);  // the wait that is measured, not a synchronisation
        end();
      }
      meet();
    }
    EXPECT_EQ(heddle_worker_close(worker), HEDDLE_DONE);
    context.barrier();
  });
}

// What ends the wait rings, so the thread sleeps for longer and longer. With naps of a millisecond
// it would give its core away 500 times. A yield that finds nobody else on the core is none of
// these.
TEST(Waiting, SleepsLongForWhatRings) {
  Job(2, "shm").run([&](Context& context, Worker&) {
    heddle_worker worker{};
    heddle_team team{};
    ASSERT_EQ(heddle_worker_open(context.handle(), nullptr, &worker), HEDDLE_DONE) << heddle_last_error();
    ASSERT_EQ(heddle_team_world(context.handle(), &team), HEDDLE_DONE) << heddle_last_error();
    const auto meet = [&] { ASSERT_EQ(heddle_barrier(team), HEDDLE_DONE) << heddle_last_error(); };
    const std::uint64_t sent = 7;
    std::uint64_t got = 0;
    const auto receive = [&] {
      const heddle_wanted wanted{{1, HEDDLE_ANY}, 1, UINT64_MAX};
      heddle_receive request{};
      ASSERT_GE(heddle_recv(worker, &wanted, &got, sizeof got, &request, nullptr), 0);
      EXPECT_EQ(heddle_recv_wait(worker, &request, HEDDLE_FOREVER), HEDDLE_DONE);
    };
    const auto send = [&] {
      EXPECT_GE(heddle_send(worker, {0, 1}, 1, &sent, sizeof sent, nullptr), 0) << heddle_last_error();
    };
    const std::array<std::pair<std::function<void()>, std::function<void()>>, 2> kinds = {
        {{meet, meet}, {receive, send}}};
    for (const auto& [wait, end] : kinds) {
      meet();
      if (context.rank() == 1) {
        std::this_thread::sleep_for(kWait);  // the wait that is measured, not a synchronisation
        end();
        continue;
      }
      const auto begun = std::chrono::steady_clock::now();
      const long before = sleeps_of_this_thread();
      wait();
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begun;
      EXPECT_LT(static_cast<double>(sleeps_of_this_thread() - before), 100 + 60 * waited.count());
    }
    EXPECT_EQ(got, context.rank() == 0 ? sent : 0);
    meet();
    EXPECT_EQ(heddle_team_free(team), HEDDLE_DONE);
    EXPECT_EQ(heddle_worker_close(worker), HEDDLE_DONE);
    context.barrier();
  });
}

// ---- heddle_worker_wait_for ---------------------------------------------------------------------

// Answers as it is told, and counts its calls.
struct Condition {
  heddle_status answer = HEDDLE_AGAIN;
  int calls = 0;
  int last = 0;  // this call is the last; 0: none is
  heddle_worker worker{};

  [[nodiscard]] heddle_status wait(std::int64_t timeout_ns) {
    const heddle_wait_condition condition{sizeof condition, &look, this, nullptr, nullptr, nullptr};
    return heddle_worker_wait_for(worker, &condition, timeout_ns);
  }
  static heddle_status look(void* self) {
    auto& condition = *static_cast<Condition*>(self);
    return ++condition.calls == condition.last ? HEDDLE_DONE : condition.answer;
  }
};

TEST(WaitFor, ReturnsWhatTheConditionReturns) {
  Job(1, "loopback").run([&](Context&, Worker& worker) {
    Condition condition;
    condition.worker = worker.handle();
    condition.answer = HEDDLE_ERR_CANCELLED;
    EXPECT_EQ(condition.wait(HEDDLE_FOREVER), HEDDLE_ERR_CANCELLED);
    EXPECT_EQ(condition.calls, 1);
    for (const heddle_status answer : {HEDDLE_AGAIN, HEDDLE_POSTED}) {
      condition.answer = answer;
      condition.calls = 0;
      EXPECT_EQ(condition.wait(0), HEDDLE_ERR_TIMEOUT);
      EXPECT_EQ(condition.calls, 1);
      EXPECT_NE(std::string(heddle_last_error()).find("heddle_worker_wait_for"), std::string::npos);
      EXPECT_EQ(condition.wait(3'000'000), HEDDLE_ERR_TIMEOUT);
      EXPECT_GT(condition.calls, 2);
      condition.calls = 0;
      condition.last = 100;
      EXPECT_EQ(condition.wait(HEDDLE_FOREVER), HEDDLE_DONE);
      EXPECT_EQ(condition.calls, condition.last);
      condition.last = 0;
    }
  });
}

TEST(WaitFor, ChecksItsArguments) {
  Job(1, "loopback").run([&](Context& context, Worker& worker) {
    heddle_wait_condition condition{};
    condition.size = sizeof condition;
    EXPECT_EQ(heddle_worker_wait_for(worker.handle(), &condition, 0), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_worker_wait_for(worker.handle(), nullptr, 0), HEDDLE_ERR_ARGUMENT);
    condition.ready = [](void*) { return HEDDLE_DONE; };
    EXPECT_EQ(heddle_worker_wait_for(worker.handle(), &condition, 0), HEDDLE_DONE);
    EXPECT_EQ(heddle_worker_wait_for({context.handle().id}, &condition, 0), HEDDLE_ERR_HANDLE);
    // less than the first version had
    condition.size = offsetof(heddle_wait_condition, rings) - sizeof(void*);
    EXPECT_EQ(heddle_worker_wait_for(worker.handle(), &condition, 0), HEDDLE_ERR_ARGUMENT);
  });
}

TEST(WaitFor, IsRefusedInAHandler) {
  Job(1, "loopback").run([&](Context& context, Worker& worker) {
    static heddle_status inside;
    inside = HEDDLE_DONE;
    ASSERT_EQ(heddle_am_register(
                  context.handle(), 3,
                  [](const heddle_am_arrival* arrival, void*) {
                    Condition condition;
                    condition.worker = arrival->worker;
                    inside = condition.wait(0);
                  },
                  nullptr),
              HEDDLE_DONE);
    const heddle_am_message message{3, 0, nullptr, nullptr, 0};
    ASSERT_GE(heddle_am(worker.handle(), {0, 0}, &message, nullptr), 0);
    wait_for(worker.handle(), [] { return inside != HEDDLE_DONE; });
    EXPECT_EQ(inside, HEDDLE_ERR_STATE);
  });
}

// ---- heddle_worker_wait: what another thread has moved ------------------------------------------

// Long enough never to be reached; not HEDDLE_FOREVER, which returns now and then.
constexpr std::int64_t kLong = 100'000'000'000;

// A thread's waits on one worker remember what it has seen there, however many others it waits on
// between.
TEST(WaitingOnMany, WhatWasSeenOnceIsNotToldAgain) {
  constexpr std::uint32_t kWorkers = 12;
  Job(1, "loopback").run([&](Context& context, Worker&) {
    std::array<heddle_worker, kWorkers> workers{};
    std::uint32_t handled = 0;
    const auto count = [](const heddle_am_arrival*, void* arg) { ++*static_cast<std::uint32_t*>(arg); };
    ASSERT_EQ(heddle_am_register(context.handle(), 3, count, &handled), HEDDLE_DONE);
    const heddle_am_message message{3, 0, nullptr, nullptr, 0};
    for (heddle_worker& worker : workers) {
      ASSERT_EQ(heddle_worker_open(context.handle(), nullptr, &worker), HEDDLE_DONE) << heddle_last_error();
      std::uint32_t index = 0;
      ASSERT_EQ(heddle_worker_index(worker, &index), HEDDLE_DONE);
      ASSERT_GE(heddle_am(worker, {0, index}, &message, nullptr), 0) << heddle_last_error();
    }
    const auto told = [&] {
      std::uint32_t done = 0;
      for (const heddle_worker& worker : workers) done += heddle_worker_wait(worker, 0) == HEDDLE_DONE ? 1 : 0;
      return done;
    };
    const Deadline deadline;
    while (handled < kWorkers && !deadline.over()) static_cast<void>(told());
    ASSERT_EQ(handled, kWorkers);
    while (told() != 0 && !deadline.over()) continue;  // reported at the ends of their operations
    EXPECT_FALSE(deadline.over()) << "some worker says for ever that it has moved";
  });
}

struct Moved {
  const char* name;
  heddle_sharing sharing;
  const char* progress;  // HEDDLE_PROGRESS
  bool second_thread;    // it makes progress; else an executor or a helper does
};

class MovedByAnother : public testing::TestWithParam<Moved> {
 protected:
  // Until nothing moves any more that this thread has not seen.
  static void settle(heddle_worker worker) {
    const Deadline deadline;
    heddle_status status = HEDDLE_DONE;
    while (status == HEDDLE_DONE && !deadline.over()) status = heddle_worker_wait(worker, 0);
    ASSERT_EQ(status, HEDDLE_ERR_TIMEOUT);
  }
  static void expect_told(heddle_worker worker, const char* by) {
    EXPECT_EQ(heddle_worker_wait(worker, kLong), HEDDLE_DONE) << by << ": " << heddle_last_error();
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, MovedByAnother,
                         testing::Values(Moved{"shared", HEDDLE_SHARING_SHARED, "none", true},
                                         Moved{"delegate", HEDDLE_SHARING_DELEGATE, "none", true},
                                         Moved{"auto", HEDDLE_SHARING_AUTO, "none", true},
                                         Moved{"offload", HEDDLE_SHARING_OFFLOAD, "none", false},
                                         Moved{"helped", HEDDLE_SHARING_EXCLUSIVE, "dedicated:1", false}),
                         [](const auto& moved) { return moved.param.name; });

// An event between the look at a flag and the wait ends the wait: each kind of end that another
// thread may cause.
TEST_P(MovedByAnother, BeforeTheWaitBeginsIsNotMissed) {
  const Moved given = GetParam();
  const Variables variables(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_PROGRESS", given.progress}});
  Job(1, "shm").run([&](Context& context, Worker&) {
    heddle_worker_options options{};
    options.size = sizeof options;
    options.sharing = given.sharing;
    heddle_worker worker{};
    ASSERT_EQ(heddle_worker_open(context.handle(), &options, &worker), HEDDLE_DONE) << heddle_last_error();
    std::atomic<std::uint32_t> flag{0};
    const auto raise = [](const heddle_am_arrival*, void* arg) {
      static_cast<std::atomic<std::uint32_t>*>(arg)->fetch_add(1);
    };
    const auto told = [](void* arg, heddle_status) { static_cast<std::atomic<std::uint32_t>*>(arg)->fetch_add(1); };
    ASSERT_EQ(heddle_am_register(context.handle(), 3, raise, &flag), HEDDLE_DONE);
    ASSERT_EQ(heddle_am_register(context.handle(), HEDDLE_AM_USER, raise, &flag), HEDDLE_DONE);
    // Another thread, till the flag is raised; this one is outside of calls on the worker
    // meanwhile.
    const auto others = [&](std::uint32_t wanted, const std::function<void()>& step) {
      std::thread other([&] {
        const Deadline deadline;
        while (flag.load() != wanted && !deadline.over()) step();
      });
      other.join();
      ASSERT_EQ(flag.load(), wanted);
    };
    const auto progress = [&] {
      if (given.second_thread) {
        ASSERT_GE(heddle_worker_progress(worker), 0);
      }
      std::this_thread::yield();
    };
    const heddle_peer self{0, 1};  // worker 0 is the job's
    const heddle_am_message message{3, 0, nullptr, nullptr, 0};
    settle(worker);
    ASSERT_GE(heddle_am(worker, self, &message, nullptr), 0) << heddle_last_error();
    others(1, progress);
    expect_told(worker, "a handler");

    settle(worker);
    const heddle_completion completion{told, &flag, {}, HEDDLE_WHEN_REMOTE};
    const heddle_wanted wanted{{0, HEDDLE_ANY}, 1, UINT64_MAX};
    std::uint64_t got = 0;
    heddle_receive receive{};
    ASSERT_GE(heddle_recv(worker, &wanted, &got, sizeof got, &receive, &completion), 0);
    const std::uint64_t sent = 7;
    ASSERT_GE(heddle_send(worker, self, 1, &sent, sizeof sent, nullptr), 0) << heddle_last_error();
    others(2, progress);
    expect_told(worker, "a receive");

    const heddle_am_message task{HEDDLE_AM_USER, 0, nullptr, nullptr, 0};
    ASSERT_GE(heddle_am(worker, self, &task, nullptr), 0) << heddle_last_error();
    heddle_worker_stats stats{};
    stats.size = sizeof stats;
    for (const Deadline deadline; stats.stored == 0 && !deadline.over();) {
      ASSERT_EQ(heddle_worker_stats_read(worker, &stats), HEDDLE_DONE);
      ASSERT_GE(heddle_worker_progress(worker), 0);
    }
    settle(worker);
    others(3, [&] { ASSERT_GE(heddle_run_tasks(worker, 1, 0), 0); });
    expect_told(worker, "a USER handler");

    if (given.sharing != HEDDLE_SHARING_EXCLUSIVE) {
      ASSERT_GE(heddle_recv(worker, &wanted, &got, sizeof got, &receive, &completion), 0);
      settle(worker);
      std::thread other([&] { ASSERT_GE(heddle_recv_cancel(worker, &receive), 0) << heddle_last_error(); });
      other.join();
      if (given.sharing == HEDDLE_SHARING_OFFLOAD) others(4, progress);
      ASSERT_EQ(flag.load(), 4U);
      expect_told(worker, "a cancelled receive");
    }
    settle(worker);
    EXPECT_EQ(heddle_worker_wait(worker, 1'000'000), HEDDLE_ERR_TIMEOUT) << "nothing has moved";
    EXPECT_EQ(heddle_worker_close(worker), HEDDLE_DONE);
  });
}

TEST(WorkerWait, IsToldOfADeadPeer) {
  const Job job(2, "shm");
  const Context context = job.join(0);
  Worker worker = context.open_worker();
  std::atomic<int> ended{HEDDLE_POSTED};
  const auto told = [](void* arg, heddle_status status) { static_cast<std::atomic<int>*>(arg)->store(status); };
  const heddle_completion completion{told, &ended, {}, HEDDLE_WHEN_REMOTE};
  const heddle_wanted wanted{{1, HEDDLE_ANY}, 1, UINT64_MAX};
  std::uint64_t got = 0;
  heddle_receive receive{};
  ASSERT_EQ(heddle_recv(worker.handle(), &wanted, &got, sizeof got, &receive, &completion), HEDDLE_POSTED);
  while (worker.wait(0) == HEDDLE_DONE) continue;
  ASSERT_EQ(heddle_inproc_fail(job.handle(), 1), HEDDLE_DONE);
  while (ended.load() == HEDDLE_POSTED) ASSERT_EQ(worker.wait(kLong), HEDDLE_DONE) << heddle_last_error();
  EXPECT_EQ(ended.load(), HEDDLE_ERR_PEER_FAILED);
}

TEST(WorkerWait, IsRefusedInHandlersAndOnClosedWorkers) {
  Job(1, "shm").run([](Context& context, Worker& worker) {
    struct Inside {
      heddle_worker worker;
      heddle_status none = HEDDLE_POSTED;
      heddle_status forever = HEDDLE_POSTED;
    } inside{worker.handle()};
    ASSERT_EQ(heddle_am_register(
                  context.handle(), 3,
                  [](const heddle_am_arrival*, void* arg) {
                    auto* in = static_cast<Inside*>(arg);
                    in->none = heddle_worker_wait(in->worker, 0);
                    in->forever = heddle_worker_wait(in->worker, HEDDLE_FOREVER);
                  },
                  &inside),
              HEDDLE_DONE);
    const heddle_am_message message{3, 0, nullptr, nullptr, 0};
    ASSERT_GE(heddle_am(worker.handle(), {0, 0}, &message, nullptr), 0);
    while (inside.forever == HEDDLE_POSTED) ASSERT_EQ(worker.wait(kLong), HEDDLE_DONE) << heddle_last_error();
    EXPECT_EQ(inside.none, HEDDLE_ERR_STATE);
    EXPECT_EQ(inside.forever, HEDDLE_ERR_STATE);
    while (worker.wait(0) == HEDDLE_DONE) continue;
    EXPECT_EQ(worker.wait(0), HEDDLE_ERR_TIMEOUT);
    EXPECT_EQ(worker.wait(2'000'000), HEDDLE_ERR_TIMEOUT);
    EXPECT_NE(std::string(heddle_last_error()).find("2000000 ns"), std::string::npos) << heddle_last_error();
    heddle_worker closed{};
    ASSERT_EQ(heddle_worker_open(context.handle(), nullptr, &closed), HEDDLE_DONE);
    ASSERT_EQ(heddle_worker_close(closed), HEDDLE_DONE);
    EXPECT_EQ(heddle_worker_wait(closed, 0), HEDDLE_ERR_HANDLE);
    EXPECT_EQ(heddle_worker_wait({}, HEDDLE_FOREVER), HEDDLE_ERR_HANDLE);
  });
}

}  // namespace
}  // namespace heddle::test::waiting_test
