// Sharing modes: every operation with the same meaning, whichever threads post it. The other tests
// of the API run in every mode as well (CMakeLists.txt); here are several threads on one worker.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <tuple>

#include "api/test_job.hpp"
#include "base/random.hpp"

namespace heddle::test::sharing_test {
namespace {

using Parameter = std::tuple<heddle_sharing, Setting>;

class Sharing : public testing::TestWithParam<Parameter> {
 protected:
  static constexpr std::uint32_t kThreads = 4;

  // Runs body on each of two ranks with one worker in the mode under test; then waits for
  // everybody.
  void run(const std::function<void(Context&, Worker&)>& body) {
    const auto& [sharing, setting] = GetParam();
    auto all = setting.variables;
    all.emplace_back("HEDDLE_SHARING", name_of_mode(sharing));
    const Variables variables(all);
    Job(2, setting.transport).run([&](Context& context, Worker& worker) {
      body(context, worker);
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    });
  }
  static void in_threads(std::uint32_t count, const std::function<void(std::uint32_t)>& body) {
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
    for (std::thread& thread : threads) thread.join();
  }
};

std::uint32_t peer_of(const Context& context) {
  return 1 - context.rank();
}

// Handlers sum the arrivals in plain variables: they run one at a time, and ThreadSanitizer sees if
// they do not.
struct Arrivals {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  std::uint64_t wrong = 0;
  std::atomic<std::uint64_t> seen{0};
};

void take(const heddle_am_arrival* arrival, void* arg) {
  auto& arrivals = *static_cast<Arrivals*>(arg);
  std::uint64_t value = 0;
  std::memcpy(&value, arrival->header, sizeof value);
  const auto* payload = static_cast<const unsigned char*>(arrival->payload);
  for (std::size_t i = 0; i < arrival->payload_bytes; ++i) {
    if (payload[i] != static_cast<unsigned char>(value + i)) ++arrivals.wrong;
  }
  ++arrivals.count;
  arrivals.sum += value;
  arrivals.seen.store(arrivals.count, std::memory_order_release);
}

TEST_P(Sharing, MessagesOfAllThreadsArriveOnceAndWhole) {
  constexpr std::uint64_t kEach = 400;
  run([&](Context& context, Worker& worker) {
    Arrivals arrivals;
    context.register_am(7, take, &arrivals);
    context.barrier(worker);
    in_threads(kThreads, [&](std::uint32_t thread) {
      base::Random random(1 + thread);
      const Counter counter = context.counter();
      std::uint64_t posted = 0;
      std::vector<unsigned char> payload;
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const std::uint64_t value = thread * kEach + i;
        payload.assign(random.below(8) == 0 ? random.below(6000) : random.below(64), 0);
        for (std::size_t k = 0; k < payload.size(); ++k) payload[k] = static_cast<unsigned char>(value + k);
        const heddle_am_message message{7, sizeof value, &value, payload.data(), payload.size()};
        const heddle_completion completion = counter.completion(HEDDLE_WHEN_LOCAL);
        const bool observe = random.below(2) == 0;
        const Status status = worker.am({peer_of(context), 0}, message, observe ? &completion : nullptr);
        ASSERT_GE(status, 0) << heddle_last_error();
        // The payload is overwritten next: only DONE, or the completion, permits that.
        if (status == HEDDLE_POSTED && observe) {
          ASSERT_EQ(worker.wait(counter, ++posted), HEDDLE_DONE);
        } else if (status == HEDDLE_POSTED) {
          ASSERT_EQ(worker.flush(peer_of(context)), HEDDLE_DONE);
        }
      }
    });
    while (arrivals.seen.load(std::memory_order_acquire) < kThreads * kEach) turn(worker);
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);  // also: the handlers' variables may be read now
    EXPECT_EQ(arrivals.sum, kThreads * kEach * (kThreads * kEach - 1) / 2);
    EXPECT_EQ(arrivals.wrong, 0U);
    context.barrier(worker);
  });
}

TEST_P(Sharing, PutsGetsAndAtomicsOfAllThreads) {
  constexpr std::uint64_t kEach = 60;
  run([&](Context& context, Worker& worker) {
    const Region region = context.alloc(1 << 16);
    const auto remote = context.exchange(region);
    const RemoteRegion& there = remote[peer_of(context)];
    in_threads(kThreads, [&](std::uint32_t thread) {
      std::vector<std::byte> back(4096);
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const std::vector<std::byte> data(1 + (i * 71) % 4096, static_cast<std::byte>(thread * 64 + i));
        const heddle_remote place = there.at(4096 * (1 + std::uint64_t{thread}));
        ASSERT_GE(worker.put(data, place), 0) << heddle_last_error();
        ASSERT_EQ(worker.flush(peer_of(context)), HEDDLE_DONE);
        ASSERT_GE(worker.get(std::span(back).first(data.size()), place), 0);
        ASSERT_GE(worker.atomic(HEDDLE_ADD64, there.at(0), 1), 0);
        ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
        ASSERT_TRUE(std::equal(data.begin(), data.end(), back.begin()));
      }
    });
    context.barrier(worker);
    std::uint64_t sum = 0;
    sum = std::atomic_ref(region.memory<std::uint64_t>()[0]).load();
    EXPECT_EQ(sum, kThreads * kEach);
    const heddle_worker_stats stats = worker.stats();
    EXPECT_EQ(stats.puts, kThreads * kEach);
    EXPECT_EQ(stats.gets, kThreads * kEach);
    EXPECT_EQ(stats.atomics, kThreads * kEach);
    context.barrier(worker);
  });
}

TEST_P(Sharing, CallsRunOneAtATimeAndMayPostButNotWait) {
  struct Call {
    Worker* worker;
    std::uint64_t ran = 0;  // plain: never two at a time
    std::uint64_t refused = 0;
  };
  run([&](Context& context, Worker& worker) {
    Call call{&worker};
    const Counter done = context.counter();
    std::atomic<std::uint64_t> posted{0};
    in_threads(kThreads, [&](std::uint32_t) {
      const heddle_completion completion = done.completion();
      for (int i = 0; i < 200; ++i) {
        const Status status = worker.run_on_engine(
            [](void* arg) {
              auto& self = *static_cast<Call*>(arg);
              ++self.ran;
              if (self.worker->progress() == HEDDLE_ERR_STATE) ++self.refused;
            },
            &call, &completion);
        ASSERT_GE(status, 0) << heddle_last_error();
        if (status == HEDDLE_POSTED) posted.fetch_add(1);
      }
    });
    ASSERT_EQ(worker.wait(done, posted.load()), HEDDLE_DONE);
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    EXPECT_EQ(call.ran, kThreads * 200U);
    EXPECT_EQ(call.refused, kThreads * 200U);
    EXPECT_EQ(heddle_try_run_on_engine(worker.handle(), nullptr, nullptr, nullptr), HEDDLE_ERR_ARGUMENT);
  });
}

// Each message is answered from its handler until it has made its way; in the queueing modes the
// answers are posted by a thread that is inside.
TEST_P(Sharing, HandlersPostOnTheirOwnWorker) {
  struct Relay {
    Worker* worker;
    std::uint32_t peer;
    // of both ranks: a rank that has all its own must still pass others on
    std::atomic<std::uint64_t>* ended;
    std::mutex mutex{};
    // a handler cannot wait until there is room: other threads send these on
    std::vector<std::uint64_t> refused{};
  };
  std::atomic<std::uint64_t> ended{0};
  run([&](Context& context, Worker& worker) {
    Relay relay{&worker, peer_of(context), &ended};
    context.register_am(
        9,
        [](const heddle_am_arrival* arrival, void* arg) {
          auto& self = *static_cast<Relay*>(arg);
          std::uint64_t left = 0;
          std::memcpy(&left, arrival->header, sizeof left);
          if (left == 0) {
            self.ended->fetch_add(1, std::memory_order_release);
            return;
          }
          --left;
          // In the header, which is copied: a payload would have to outlive the handler.
          const heddle_am_message message{9, sizeof left, &left, nullptr, 0};
          if (self.worker->try_am({self.peer, 0}, message) == HEDDLE_AGAIN) {
            const std::lock_guard lock(self.mutex);
            self.refused.push_back(left);
          }
        },
        &relay);
    context.barrier(worker);
    in_threads(2, [&](std::uint32_t) {
      const std::uint64_t hops = 51;  // odd: ends at the peer
      const heddle_am_message message{9, sizeof hops, &hops, nullptr, 0};
      for (int i = 0; i < 3; ++i) ASSERT_GE(worker.am({peer_of(context), 0}, message), 0);
    });
    while (ended.load(std::memory_order_acquire) < 12) {
      turn(worker);
      std::vector<std::uint64_t> again;
      {
        const std::lock_guard lock(relay.mutex);
        again.swap(relay.refused);
      }
      for (const std::uint64_t& left : again) {
        ASSERT_GE(worker.am({peer_of(context), 0}, {9, sizeof left, &left, nullptr, 0}), 0);
      }
    }
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    context.barrier(worker);
  });
}

TEST_P(Sharing, SleepingExecutorsAndIdleWorkersWakeForEveryPost) {
  run([&](Context& context, Worker& worker) {
    Arrivals arrivals;
    context.register_am(7, take, &arrivals);
    context.barrier(worker);
    base::Random random(5);
    const std::uint64_t value = 1;
    const heddle_am_message message{7, sizeof value, &value, nullptr, 0};
    for (std::uint64_t i = 0; i < 300; ++i) {
      ASSERT_GE(worker.am({peer_of(context), 0}, message), 0);
      // Around the time after which an executor goes to sleep.
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random.below(60));
      while (std::chrono::steady_clock::now() < until) {
      }
    }
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    while (arrivals.seen.load(std::memory_order_acquire) < 300) turn(worker);
    context.barrier(worker);
  });
}

std::vector<Setting> settings() {
  std::vector<Setting> chosen;
  for (const Setting& setting : all_settings()) {
    const std::string name = setting.name;
    if (name == "shm" || name == "shm_commands" || name == "loopback_few_slots" || name == "fault_messages" ||
        name == "given") {
      chosen.push_back(setting);
    }
  }
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(All, Sharing,
                         testing::Combine(testing::ValuesIn(shared_modes()), testing::ValuesIn(settings())),
                         [](const testing::TestParamInfo<Parameter>& test) {
                           return std::string(name_of_mode(std::get<0>(test.param))) + "_" +
                                  std::get<1>(test.param).name;
                         });

// Two ranks in one thread, over messages, so that the test says when the peer does its part.
class QueueingMode : public testing::TestWithParam<heddle_sharing> {
 protected:
  void TearDown() override {
    remote_ = {};
    region_ = {};
    worker_ = {};
    std::thread other([this] {
      peer_ = {};
      owner_ = {};
    });
    origin_ = {};
    other.join();
  }

  const Variables variables_{{{"HEDDLE_MAX_WORKERS", "64"}}};
  Job job_{2, "loopback-messages"};
  Context origin_ = job_.join(0);
  Context owner_ = job_.join(1);
  Worker worker_ = origin_.open_worker(GetParam());
  Worker peer_ = owner_.open_worker(HEDDLE_SHARING_EXCLUSIVE);
  Region region_ = owner_.alloc(4096);
  RemoteRegion remote_ = origin_.unpack(region_.pack());
};

TEST_P(QueueingMode, FromInsideSeesWhatIsQueuedAndNotItself) {
  struct Call {
    Worker* worker;
    std::atomic<bool> running{false};
    std::atomic<bool> posted{false};
    Status quiet = HEDDLE_DONE;
    Status flush = HEDDLE_DONE;
  };
  const auto look = [](void* arg) {
    auto& call = *static_cast<Call*>(arg);
    call.running.store(true, std::memory_order_release);
    while (!call.posted.load(std::memory_order_acquire)) std::this_thread::yield();
    call.quiet = call.worker->try_quiet();
    call.flush = call.worker->try_flush(1);
  };
  Call behind{&worker_};
  std::thread other([&] { EXPECT_GE(worker_.run_on_engine(look, &behind), 0); });
  EXPECT_TRUE(within_time([&] { return behind.running.load(std::memory_order_acquire); }, [] {}));
  const std::uint64_t value = 1;
  EXPECT_GE(worker_.try_am({1, 0}, {7, sizeof value, &value, nullptr, 0}), 0);
  behind.posted.store(true, std::memory_order_release);
  other.join();
  ASSERT_EQ(worker_.quiet(), HEDDLE_DONE);
  EXPECT_EQ(behind.quiet, HEDDLE_AGAIN) << "a message that was queued has not been posted yet";
  EXPECT_EQ(behind.flush, HEDDLE_AGAIN);

  Call alone{&worker_};
  alone.posted.store(true);
  ASSERT_GE(worker_.run_on_engine(look, &alone), 0);
  ASSERT_EQ(worker_.quiet(), HEDDLE_DONE);
  EXPECT_EQ(alone.quiet, HEDDLE_DONE) << "nothing but the call itself is queued";
  EXPECT_EQ(alone.flush, HEDDLE_DONE);
}

// A handler that ran on another thread posts past the queue, so no producer wakes the executor for
// it.
TEST_P(QueueingMode, SleepingExecutorTakesUpWhatAHandlerPostedElsewhere) {
  if (GetParam() != HEDDLE_SHARING_OFFLOAD) GTEST_SKIP() << "there is an executor in offload mode only";
  struct Relay {
    Worker* worker;
    heddle_remote place;
    heddle_completion completion;
    std::uint64_t old = 0;
    Status status = HEDDLE_AGAIN;
    std::atomic<bool> ran{false};
  };
  const Counter counter = origin_.counter();
  Relay relay{&worker_, remote_.at(0), counter.completion()};
  origin_.register_am(
      7,
      [](const heddle_am_arrival*, void* arg) {
        auto& self = *static_cast<Relay*>(arg);
        self.status = self.worker->try_fetch_add(self.place, 1, &self.old, &self.completion);
        self.ran.store(true, std::memory_order_release);
      },
      &relay);
  const pid_t executor = thread_named("heddle-exec");
  ASSERT_NE(executor, 0);
  ASSERT_TRUE(await_asleep(executor));
  ASSERT_GE(peer_.am({0, 0}, {7, 0, nullptr, nullptr, 0}), 0);
  ASSERT_TRUE(within_time([&] { return relay.ran.load(std::memory_order_acquire); },
                          [&] { ASSERT_GE(worker_.progress(), 0); }));
  ASSERT_EQ(relay.status, HEDDLE_POSTED);
  // From here on only the executor looks after the worker.
  EXPECT_TRUE(within_time([&] { return counter.value() == 1; }, [&] { ASSERT_GE(peer_.progress(), 0); }));
  origin_.register_am(7, nullptr, nullptr);
}

// Messages arrive before the worker is open, and until it is closed; the executor, where there is
// one, runs their handlers.
TEST_P(QueueingMode, HandlersKnowTheirWorkerFromOpeningToClosing) {
  struct Seen {
    std::atomic<std::uint64_t> all{0};
    std::atomic<std::uint64_t> nameless{0};
    std::atomic<std::uint64_t> progressed{0};
  } seen;
  origin_.register_am(
      7,
      [](const heddle_am_arrival* arrival, void* arg) {
        auto& self = *static_cast<Seen*>(arg);
        if (arrival->worker.id == 0) ++self.nameless;
        if (heddle_worker_progress(arrival->worker) != HEDDLE_ERR_STATE) ++self.progressed;
        self.all.fetch_add(1, std::memory_order_release);
      },
      &seen);
  std::atomic<std::uint32_t> target{1};
  std::atomic<std::uint32_t> tried{0};  // the last worker that a message was sent to
  std::thread sender([&] {
    for (std::uint32_t to = 0; (to = target.load()) < 60;) {
      static_cast<void>(peer_.try_am({0, to}, {7, 0, nullptr, nullptr, 0}));
      peer_.progress();
      tried.store(to);
    }
  });
  for (std::uint32_t i = 1; i < 60; ++i) {
    EXPECT_TRUE(within_time([&] { return tried.load() == i; }));
    const std::uint64_t before = seen.all.load();
    Worker worker = origin_.open_worker(GetParam());
    EXPECT_TRUE(within_time([&] { return seen.all.load() > before + 3; }, [&] { ASSERT_GE(worker.progress(), 0); }));
    worker = {};
    target.store(i + 1);
  }
  sender.join();
  EXPECT_EQ(seen.nameless.load(), 0U);
  EXPECT_EQ(seen.progressed.load(), 0U);
  origin_.register_am(7, nullptr, nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, QueueingMode, testing::Values(HEDDLE_SHARING_OFFLOAD, HEDDLE_SHARING_DELEGATE),
                         [](const testing::TestParamInfo<heddle_sharing>& test) {
                           return std::string(name_of_mode(test.param));
                         });

TEST(SharingNames, UnknownModeAndUnknownNameAreErrors) {
  const Job job(1, "loopback");
  const Context context = job.join(0);
  heddle_worker worker{};
  const auto beyond = static_cast<heddle_sharing>(all_modes().back() + 1);
  heddle_worker_options options{sizeof options, beyond, 0, HEDDLE_CHOICE_DEFAULT, nullptr, 0};
  EXPECT_EQ(heddle_worker_open(context.handle(), &options, &worker), HEDDLE_ERR_UNSUPPORTED);
  const std::vector<std::pair<const char*, const char*>> many{{"HEDDLE_SHARING", "many"}};
  const Variables variables(many);
  const Job second(1, "loopback");
  const heddle_context_options join{sizeof join, "inproc", "loopback", second.handle(), 0, nullptr};
  heddle_context other{};
  EXPECT_EQ(heddle_context_join(&join, &other), HEDDLE_ERR_CONFIG);
  EXPECT_NE(std::strstr(heddle_last_error(), "many"), nullptr);
}

}  // namespace
}  // namespace heddle::test::sharing_test
