// Progress policies: helpers advance a worker whose owner computes, and cost little when nothing
// happens.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "api/test_job.hpp"
#include "api/test_loaded.hpp"
#include "base/fence.hpp"
#include "base/wait.hpp"
#include "engine/handles.hpp"
#include "queue/handover.hpp"
#include "queue/locks.hpp"
#include "worker/context.hpp"
#include "worker/helpers.hpp"

namespace heddle::test::progress_test {
namespace {

using Time = std::chrono::steady_clock;
using std::chrono::milliseconds;

using One = std::vector<std::pair<const char*, const char*>>;

constexpr std::int64_t kLong = std::chrono::nanoseconds(kFaultTime).count();

TEST(PolicyNames, AreParsed) {
  using worker::PolicyKind;
  EXPECT_EQ(worker::policy_named("none")->kind, PolicyKind::none);
  EXPECT_EQ(worker::policy_named("idle")->kind, PolicyKind::idle);
  EXPECT_EQ(worker::policy_named("adaptive")->kind, PolicyKind::adaptive);
  EXPECT_EQ(worker::policy_named("dedicated")->threads, 1U);
  EXPECT_EQ(worker::policy_named("dedicated:3")->threads, 3U);
  for (const char* wrong : {"", "dedicated:", "dedicated:0", "dedicated:257", "dedicated:1x", "dedicated:-1", "Idle"}) {
    EXPECT_FALSE(worker::policy_named(wrong).has_value()) << wrong;
  }
}

TEST(PolicyNames, AnUnknownOneIsAnErrorThatNamesIt) {
  const Variables variables(One{{"HEDDLE_PROGRESS", "sometimes"}});
  heddle_context context{};
  EXPECT_EQ(heddle_context_join(nullptr, &context), HEDDLE_ERR_CONFIG);
  EXPECT_NE(std::string(heddle_last_error()).find("sometimes"), std::string::npos);
}

// A rank of a job can be joined once. A wrong word must not use that up.
TEST(PolicyNames, AnUnknownOneDoesNotUseTheRankUp) {
  heddle_inproc_job job{};
  ASSERT_EQ(heddle_inproc_create(1, &job), HEDDLE_DONE);
  heddle_context_options options{sizeof options, "inproc", "loopback", job, 0, "sometimes"};
  heddle_context context{};
  EXPECT_EQ(heddle_context_join(&options, &context), HEDDLE_ERR_CONFIG);
  options.progress = "none";
  EXPECT_EQ(heddle_context_join(&options, &context), HEDDLE_DONE) << heddle_last_error();
  EXPECT_EQ(heddle_context_leave(context), HEDDLE_DONE);
  EXPECT_EQ(heddle_inproc_close(job), HEDDLE_DONE);
}

// A number that other threads raise. The thread that awaits it is outside the library and leaves
// its core to helpers, which under SCHED_IDLE get none otherwise.
class Tally {
 public:
  Tally& operator++() {
    const std::lock_guard lock(mutex_);
    ++value_;
    raised_.notify_all();
    return *this;
  }
  [[nodiscard]] int load() const {
    const std::lock_guard lock(mutex_);
    return value_;
  }
  // False: a fault.
  [[nodiscard]] bool reaches(int value) {
    std::unique_lock lock(mutex_);
    return raised_.wait_for(lock, kFaultTime, [&] { return value_ >= value; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable raised_;
  int value_ = 0;
};

// Until the helper of that context sleeps, if it ever does: only an adaptive one.
void await_helpers(heddle_context handle) {
  auto* context = engine::find_handle<worker::Context>(handle.id);
  ASSERT_NE(context, nullptr);
  if (context->helpers().policy().kind != worker::PolicyKind::adaptive) return;
  EXPECT_TRUE(within_time([&] { return context->helpers().asleep(); }));
}

// An owner that computes: its core is used without a break.
void burn(milliseconds time) {
  const auto end = Time::now() + time;
  while (Time::now() < end) {
  }
}

struct Case {
  const char* policy;
  Setting setting;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.policy << "_" << c.setting.name;
}

class Progress : public testing::TestWithParam<Case> {
 protected:
  Progress() : variables_(GetParam().setting.variables), policy_(One{{"HEDDLE_PROGRESS", GetParam().policy}}) {}

  Variables variables_;
  Variables policy_;
  LoadedMachine loaded_;
};

// The peer's get of registered memory is served, by messages or by a transfer, though the owner
// never calls the library.
TEST_P(Progress, AnOwnerThatComputesIsServed) {
  // the kernel would copy without the owner
  const Variables owner_needed(One{{"HEDDLE_SHM_CMA", "0"}});
  Tally answered;
  std::array<heddle_context, 2> contexts{};
  std::vector<std::uint64_t> memory(100'000, 7);
  const Job job(2, GetParam().setting.transport);
  job.run([&](Context& context, Worker& worker) {
    contexts[context.rank()] = context.handle();
    Region region = context.register_memory(std::as_writable_bytes(std::span(memory)));
    std::vector<RemoteRegion> all = context.exchange(region);
    if (context.rank() == 1) {
      burn(milliseconds(200));
      EXPECT_TRUE(answered.reaches(1)) << "nobody answered for it";
    } else {
      std::vector<std::uint64_t> copy(memory.size());
      for (int round = 0; round < 3; ++round) {
        Counter counter = context.counter();
        const heddle_completion completion{nullptr, nullptr, counter.handle(), HEDDLE_WHEN_REMOTE};
        const heddle_status status =
            heddle_get(worker.handle(), copy.data(), copy.size() * 8, {all[1].handle(), 0}, &completion);
        ASSERT_GE(status, 0) << heddle_last_error();
        if (status == HEDDLE_POSTED) {
          ASSERT_EQ(heddle_counter_wait(worker.handle(), counter.handle(), 1, kLong), HEDDLE_DONE)
              << heddle_last_error();
        }
        ASSERT_TRUE(copy == memory);
        for (const heddle_context each : contexts) await_helpers(each);
      }
      ++answered;
    }
    context.barrier(worker);
  });
}

struct Received {
  Tally count;
  std::atomic<std::uint64_t> bytes{0};
  std::thread::id thread;  // published by count
};

void receive(const heddle_am_arrival* message, void* arg) {
  auto* received = static_cast<Received*>(arg);
  received->bytes += message->payload_bytes;
  received->thread = std::this_thread::get_id();
  ++received->count;
}

// A message in many parts, whose sender computes too once it has posted it.
TEST_P(Progress, LargeMessagesArriveWhileBothSidesCompute) {
  Received received;
  Tally outside;
  const Job job(2, GetParam().setting.transport);
  job.run([&](Context& context, Worker& worker) {
    if (context.rank() == 1) {
      ASSERT_EQ(heddle_am_register(context.handle(), 3, receive, &received), HEDDLE_DONE);
    }
    context.barrier(worker);
    await_helpers(context.handle());
    if (context.rank() == 1) ++outside;
    std::vector<std::byte> payload(3'000'000);
    if (context.rank() == 0) {
      EXPECT_TRUE(outside.reaches(1)) << "rank 1 calls nothing any more";
      const heddle_am_message message{3, 0, nullptr, payload.data(), payload.size()};
      ASSERT_GE(heddle_am(worker.handle(), {1, 0}, &message, nullptr), 0) << heddle_last_error();
    }
    EXPECT_TRUE(received.count.reaches(1));
    if (context.rank() == 1) {
      EXPECT_EQ(received.bytes.load(), payload.size());
      EXPECT_NE(received.thread, std::this_thread::get_id());
    }
    context.barrier(worker);
  });
}

// An owner that comes and goes while messages stream in: each is handled once, and handlers and the
// owner's calls never overlap. `plain` is for ThreadSanitizer.
TEST_P(Progress, OwnerAndHelpersTakeTurns) {
  constexpr std::uint64_t kMessages = 3000;
  struct Plain {
    std::uint64_t count = 0;
    // relaxed: it must not order what `count` is there to find unordered
    std::atomic<std::uint64_t> handled{0};
  } plain;
  Received replies;
  const Job job(2, GetParam().setting.transport);
  job.run([&](Context& context, Worker& worker) {
    if (context.rank() == 1) {
      ASSERT_EQ(heddle_am_register(
                    context.handle(), 4,
                    [](const heddle_am_arrival* message, void* arg) {
                      auto* seen = static_cast<Plain*>(arg);
                      ++seen->count;
                      seen->handled.fetch_add(1, std::memory_order_relaxed);
                      const heddle_am_message reply{5, 0, nullptr, message->payload, message->payload_bytes};
                      static_cast<void>(heddle_try_am(message->worker, message->source, &reply, nullptr));
                    },
                    &plain),
                HEDDLE_DONE);
    } else {
      ASSERT_EQ(heddle_am_register(context.handle(), 5, receive, &replies), HEDDLE_DONE);
    }
    context.barrier(worker);
    if (context.rank() == 0) {
      const std::uint64_t word = 1;
      const heddle_am_message message{4, 0, nullptr, &word, sizeof word};
      for (std::uint64_t i = 0; i < kMessages; ++i) {
        ASSERT_GE(heddle_am(worker.handle(), {1, 0}, &message, nullptr), 0) << heddle_last_error();
        // Now and then there is nothing to do.
        if (i % 500 != 0) continue;
        EXPECT_TRUE(within_time([&] { return plain.handled.load(std::memory_order_relaxed) == i + 1; },
                                [&] { ASSERT_GE(heddle_worker_progress(worker.handle()), 0); }));
      }
      ASSERT_EQ(heddle_quiet(worker.handle()), HEDDLE_DONE);
    } else {
      heddle_worker_stats stats{};
      stats.size = sizeof stats;
      const Deadline deadline;
      for (std::uint64_t i = 0; stats.received < kMessages && !deadline.over(); ++i) {
        if (i % 3 == 0) {
          ASSERT_GE(heddle_worker_progress(worker.handle()), 0);
        }
        // Busy elsewhere and off its core, where helpers that get only free ones can run. Nothing
        // depends on how long.
        if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i % 300));
        ASSERT_EQ(heddle_worker_stats_read(worker.handle(), &stats), HEDDLE_DONE);
      }
      EXPECT_EQ(stats.received, kMessages);
      EXPECT_EQ(plain.count, kMessages);
    }
    context.barrier(worker);
  });
}

const Setting kMessagesOnly = {"loopback_messages", "loopback-messages", {}};
const Setting kShm = {"shm", "shm", {}};
const Setting kBounce = {"shm_bounce", "shm", {{"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_SHM_CMA", "0"}}};

INSTANTIATE_TEST_SUITE_P(All, Progress,
                         testing::Values(Case{"dedicated:1", kMessagesOnly}, Case{"dedicated:1", kBounce},
                                         Case{"idle", kMessagesOnly}, Case{"idle", kShm}, Case{"idle", kBounce},
                                         Case{"adaptive", kMessagesOnly}, Case{"adaptive", kShm},
                                         Case{"adaptive", kBounce}),
                         [](const auto& one) {
                           std::string name = std::string(one.param.policy) + "_" + one.param.setting.name;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

// ---- without helpers, and the exceptions --------------------------------------------------------

heddle_status get_from_a_computing_peer(const char* policy, std::uint64_t no_help, std::int64_t timeout_ns) {
  const Variables variables(One{{"HEDDLE_PROGRESS", policy}});
  Tally outside;
  Tally over;
  std::atomic<heddle_status> outcome{HEDDLE_DONE};
  std::vector<std::uint64_t> memory(64, 7);
  const Job job(2, "loopback-messages");
  std::vector<std::thread> ranks;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Context context = job.join(rank);
      heddle_worker_options options{};
      options.size = sizeof options;
      options.no_help = no_help;
      heddle_worker worker{};
      ASSERT_EQ(heddle_worker_open(context.handle(), &options, &worker), HEDDLE_DONE);
      Region region = context.register_memory(std::as_writable_bytes(std::span(memory)));
      std::vector<RemoteRegion> all = context.exchange(region);
      if (rank == 1) {
        ++outside;
        EXPECT_TRUE(over.reaches(1));
      } else {
        EXPECT_TRUE(outside.reaches(1));
        std::uint64_t copy = 0;
        Counter counter = context.counter();
        const heddle_completion completion{nullptr, nullptr, counter.handle(), HEDDLE_WHEN_REMOTE};
        EXPECT_EQ(heddle_get(worker, &copy, 8, {all[1].handle(), 0}, &completion), HEDDLE_POSTED);
        outcome.store(heddle_counter_wait(worker, counter.handle(), 1, timeout_ns));
        ++over;
        EXPECT_EQ(heddle_counter_wait(worker, counter.handle(), 1, HEDDLE_FOREVER), HEDDLE_DONE);
      }
      EXPECT_EQ(heddle_context_barrier(context.handle(), worker, HEDDLE_FOREVER), HEDDLE_DONE);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return outcome.load();
}

TEST(NoHelp, WithoutHelpersNobodyAnswers) {
  EXPECT_EQ(get_from_a_computing_peer("none", 0, 100'000'000), HEDDLE_ERR_TIMEOUT);
}
TEST(NoHelp, AWorkerCanRefuseHelp) {
  EXPECT_EQ(get_from_a_computing_peer("adaptive", 1, 100'000'000), HEDDLE_ERR_TIMEOUT);
  EXPECT_EQ(get_from_a_computing_peer("adaptive", 0, kLong), HEDDLE_DONE);
}

// An owner that only tries is not inside long enough to be caught outside, and makes no progress:
// it is helped all the same.
TEST(Helped, AnOwnerThatOnlyTriesIsHelped) {
  for (const char* policy : {"dedicated:1", "adaptive"}) {
    const Variables variables(One{{"HEDDLE_PROGRESS", policy}});
    std::vector<std::uint64_t> memory(64, 7);
    const Job job(2, "loopback-messages");
    job.run([&](Context& context, Worker& worker) {
      Region region = context.register_memory(std::as_writable_bytes(std::span(memory)));
      std::vector<RemoteRegion> all = context.exchange(region);
      if (context.rank() == 0) {
        for (int round = 0; round < 5; ++round) {
          std::uint64_t copy = 0;
          ASSERT_EQ(heddle_get(worker.handle(), &copy, 8, {all[1].handle(), 0}, nullptr), HEDDLE_POSTED);
          const Deadline deadline;
          heddle_status status = HEDDLE_AGAIN;
          for (std::uint64_t i = 0; status == HEDDLE_AGAIN && (i % 1024 != 0 || !deadline.over()); ++i) {
            status = heddle_try_quiet(worker.handle());
          }
          ASSERT_EQ(status, HEDDLE_DONE) << policy << " round " << round;
          EXPECT_EQ(copy, 7U);
        }
      }
      context.barrier(worker);
    });
  }
}

// The same for an owner that only sends, by the short way, which does not enter the worker: the
// messages that it waits for arrive.
TEST(Helped, AnOwnerThatOnlySendsIsHelped) {
  for (const char* policy : {"dedicated:1", "adaptive"}) {
    const Variables variables(One{{"HEDDLE_PROGRESS", policy}});
    Received requests;
    Received replies;
    const Job job(2, "shm");
    job.run([&](Context& context, Worker& worker) {
      const std::uint64_t word = 1;
      const heddle_am_message request{3, 0, nullptr, &word, sizeof word};
      const heddle_am_message reply{4, 0, nullptr, &word, sizeof word};
      Received& mine = context.rank() == 0 ? replies : requests;
      ASSERT_EQ(heddle_am_register(context.handle(), context.rank() == 0 ? 4 : 3, receive, &mine), HEDDLE_DONE);
      context.barrier(worker);
      if (context.rank() == 0) {
        const Deadline deadline;
        for (std::uint64_t i = 0; replies.count.load() < 5 && (i % 1024 != 0 || !deadline.over()); ++i) {
          ASSERT_GE(heddle_try_am(worker.handle(), {1, 0}, &request, nullptr), 0) << heddle_last_error();
        }
        EXPECT_GE(replies.count.load(), 5) << policy;
      } else {
        for (int round = 0; round < 5; ++round) {
          const int before = requests.count.load();
          EXPECT_TRUE(within_time([&] { return requests.count.load() > before; }, [&] { turn(worker); }));
          ASSERT_GE(heddle_am(worker.handle(), {0, 0}, &reply, nullptr), 0) << heddle_last_error();
          EXPECT_TRUE(within_time([&] { return replies.count.load() > round; }, [&] { turn(worker); })) << policy;
        }
      }
      context.barrier(worker);
    });
  }
}

// An owner that has waited for a helper moves it to its own core, perhaps only when the helper has
// gone on. The helper returns to its own core.
TEST(Helped, AHelperThatWasMovedGoesHome) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "needs two cores";
  for (const char* policy : {"dedicated:1", "adaptive"}) {
    const Variables variables(One{{"HEDDLE_PROGRESS", policy}});
    Received received;
    const Job job(1, "shm");
    Context context = job.join(0);
    Worker worker = context.open_worker();
    ASSERT_EQ(heddle_am_register(context.handle(), 3, receive, &received), HEDDLE_DONE);
    const heddle_am_message message{3, 0, nullptr, nullptr, 0};
    // It has set itself up when it has handled a message.
    ASSERT_GE(heddle_am(worker.handle(), {0, 0}, &message, nullptr), 0);
    ASSERT_TRUE(received.count.reaches(1));
    // Threads that were joined may still be listed.
    ASSERT_TRUE(within_time([] { return threads_named("heddle-progress").size() == 1; }));
    const pid_t helper = thread_named("heddle-progress");
    ASSERT_NE(helper, 0);
    cpu_set_t now;
    ASSERT_EQ(sched_getaffinity(helper, sizeof now, &now), 0);
    ASSERT_TRUE(CPU_EQUAL(&now, &all));
    std::atomic<std::uint32_t> given_back{0};
    queue::SystemHandover::wait(&given_back, 1, static_cast<std::uint32_t>(helper), 1);
    ASSERT_GE(heddle_am(worker.handle(), {0, 0}, &message, nullptr), 0);
    EXPECT_TRUE(within_time([&] { return sched_getaffinity(helper, sizeof now, &now) == 0 && CPU_EQUAL(&now, &all); }))
        << policy << ": it stays where it was brought";
  }
}

// A handler that a helper of the lowest priority runs: it is put aside there, and goes on only when
// it is brought to another core.
struct PutAside {
  std::atomic<int> inside_on{-1};  // the helper's core
  std::atomic<int> count{0};
  bool brought = false;  // published by count
};

void be_put_aside(const heddle_am_arrival*, void* arg) {
  auto* test = static_cast<PutAside*>(arg);
  if (queue::this_helper() != 0 && test->inside_on.load() < 0) {
    cpu_set_t home;
    sched_getaffinity(0, sizeof home, &home);
    test->inside_on.store(sched_getcpu());
    const auto end = Time::now() + std::chrono::seconds(60);
    cpu_set_t now = home;
    while (CPU_EQUAL(&now, &home) && Time::now() < end) {
      sched_yield();
      sched_getaffinity(0, sizeof now, &now);
    }
    test->brought = !CPU_EQUAL(&now, &home);
  }
  test->count.fetch_add(1);
}

// A helper is put aside inside a worker: a thread that posts there, or waits there, fetches it and
// goes on.
TEST(Helped, AHelperThatWasPutAsideInAnyModeIsFetched) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "needs two cores";
  for (const char* sharing : {"exclusive", "shared", "delegate"}) {
    const Variables variables({{"HEDDLE_PROGRESS", "idle"}, {"HEDDLE_SHARING", sharing}});
    PutAside test;
    const Job job(1, "shm");
    Context context = job.join(0);
    Worker worker = context.open_worker();
    ASSERT_EQ(heddle_am_register(context.handle(), 3, be_put_aside, &test), HEDDLE_DONE);
    const heddle_am_message message{3, 0, nullptr, nullptr, 0};
    ASSERT_GE(heddle_am(worker.handle(), {0, 0}, &message, nullptr), 0);
    const LoadedMachine loaded;
    base::Nap off_the_core;
    ASSERT_TRUE(within_time([&] { return test.inside_on.load() >= 0; }, [&] { off_the_core.take(); })) << sharing;
    std::thread([&] {
      cpu_set_t mine = all;
      CPU_CLR(test.inside_on.load(), &mine);
      ASSERT_EQ(sched_setaffinity(0, sizeof mine, &mine), 0);
      ASSERT_GE(heddle_am(worker.handle(), {0, 0}, &message, nullptr), 0) << heddle_last_error();
      const auto progress = [&] { ASSERT_GE(heddle_worker_progress(worker.handle()), 0); };
      EXPECT_TRUE(within_time([&] { return test.count.load() == 2; }, progress)) << sharing;
    }).join();
    EXPECT_TRUE(test.brought) << sharing << ": it was left where it was";
  }
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The promise is 0.1 % of a core. Processor time is counted, so others on the machine do not
// matter; ThreadSanitizer has a thread of its own.
TEST(Adaptive, NothingHappensAtNoCost) {
  constexpr double kSeconds = 3;
  const double bound = kSeconds * (base::kThreadSanitizer ? 0.02 : 0.001);
  for (const char* transport : {"shm", "loopback", "loopback-messages"}) {
    const Variables variables(One{{"HEDDLE_PROGRESS", "adaptive"}});
    Tally count;
    std::atomic<bool> asleep{false};
    std::atomic<bool> over{false};
    double used = 0;
    const Job job(2, transport);
    job.run([&](Context& context, Worker& worker) {
      ASSERT_EQ(
          heddle_am_register(
              context.handle(), 3, [](const heddle_am_arrival*, void* arg) { ++*static_cast<Tally*>(arg); }, &count),
          HEDDLE_DONE);
      context.barrier(worker);
      // Before this there was work: a message for each, handled by any thread.
      const heddle_am_message message{3, 0, nullptr, nullptr, 0};
      ASSERT_GE(heddle_am(worker.handle(), {1 - context.rank(), 0}, &message, nullptr), 0) << heddle_last_error();
      EXPECT_TRUE(count.reaches(2));
      await_helpers(context.handle());
      if (context.rank() == 0) {
        asleep.wait(false);
        // Helpers go to sleep when they get round to it; if they never did, no window would be
        // quiet.
        for (int window = 0; window < 5 && (window == 0 || used >= bound); ++window) {
          const double before = cpu_seconds();
          std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
          used = cpu_seconds() - before;
        }
        over.store(true);
        over.notify_one();
      } else {
        asleep.store(true);
        asleep.notify_one();
        over.wait(false);
      }
      context.barrier(worker);
    });
    std::printf("%s: %.4f %% of a core\n", transport, used / kSeconds * 100);
    EXPECT_LT(used, bound) << transport;
  }
}

TEST(ContextProgress, AnyThreadAdvancesWhatIsNotBusy) {
  const Variables variables(One{{"HEDDLE_SHARING", "shared"}});
  Received received;
  const Job job(1, "loopback");
  Context context = job.join(0);
  Worker worker = context.open_worker();
  ASSERT_EQ(heddle_am_register(context.handle(), 3, receive, &received), HEDDLE_DONE);
  const heddle_am_message message{3, 0, nullptr, nullptr, 0};
  ASSERT_GE(heddle_am(worker.handle(), {0, 0}, &message, nullptr), 0);
  int events = 0;
  std::thread other([&] { events = heddle_context_progress(context.handle()); });
  other.join();
  EXPECT_EQ(received.count.load(), 1);
  EXPECT_EQ(events, 1);
  EXPECT_EQ(heddle_context_progress({0}), HEDDLE_ERR_HANDLE);
}

// The child has no helpers and no handles; it ends, and the parent goes on.
TEST(Fork, AChildHasNoHelpers) {
  const Variables variables(One{{"HEDDLE_PROGRESS", "adaptive"}});
  Received received;
  const Job job(1, "shm");
  Context context = job.join(0);
  Worker worker = context.open_worker();
  ASSERT_EQ(heddle_am_register(context.handle(), 3, receive, &received), HEDDLE_DONE);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(heddle_worker_progress(worker.handle()) == HEDDLE_ERR_HANDLE ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const heddle_am_message message{3, 0, nullptr, nullptr, 0};
  ASSERT_GE(heddle_am(worker.handle(), {0, 0}, &message, nullptr), 0);
  EXPECT_TRUE(received.count.reaches(1));
}

}  // namespace
}  // namespace heddle::test::progress_test
