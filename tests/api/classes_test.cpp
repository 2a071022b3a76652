// Active-message classes: NETWORK handlers run in any thread that makes progress and may not wait;
// USER handlers run only in threads that call heddle_run_tasks, and may do everything. In every
// sharing mode.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>

#include "api/test_job.hpp"

namespace heddle::test::classes_test {
namespace {

constexpr std::uint32_t kUser = HEDDLE_AM_USER + 7;
constexpr std::uint32_t kNetwork = 7;

bool taken(Status status) {
  return status == HEDDLE_DONE || status == HEDDLE_POSTED;
}

// A timeout for the work of another thread; far longer than that takes.
class Deadline {
 public:
  [[nodiscard]] bool open() {
    std::this_thread::yield();
    return std::chrono::steady_clock::now() < end_;
  }

 private:
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() + std::chrono::seconds(90);
};

// Sharing mode, transport, progress policy.
using Parameter = std::tuple<heddle_sharing, const char*, const char*>;

// Two ranks of this thread, each with a worker in the mode under test. Credit for eight small
// messages.
class Classes : public testing::TestWithParam<Parameter> {
 protected:
  static constexpr int kCredit = 8;

  explicit Classes(heddle_sharing peer = mode()) {
    for (std::uint32_t rank : {0U, 1U}) {
      contexts_[rank] = job_.join(rank);
      workers_[rank] = contexts_[rank].open_worker(rank == 0 ? mode() : peer);
    }
  }
  ~Classes() override {
    for (Worker& worker : workers_) EXPECT_GE(worker.progress(), 0);
    std::thread other([this] { contexts_[1] = {}; });
    contexts_[0] = {};
    other.join();
  }
  static heddle_sharing mode() { return std::get<0>(GetParam()); }
  static bool exclusive() { return mode() == HEDDLE_SHARING_EXCLUSIVE; }

  Status try_user(std::uint32_t from, std::uint64_t value, std::uint32_t handler = kUser) {
    const heddle_am_message message{handler, sizeof value, &value, nullptr, 0};
    return workers_[from].try_am({1 - from, 0}, message);
  }
  // For a message with credit: it is refused only while a helper holds the worker.
  bool post_user(std::uint32_t from, std::uint64_t value, std::uint32_t handler = kUser) {
    for (Deadline deadline; deadline.open();) {
      const Status status = try_user(from, value, handler);
      if (status != HEDDLE_AGAIN) return taken(status);
    }
    return false;
  }
  void progress() {
    for (Worker& worker : workers_) ASSERT_GE(worker.progress(), 0) << heddle_last_error();
  }
  template <class Done>
  bool progress_until(Done&& done) {
    // Not asked again once it is true: an executor that looks at the worker makes try_quiet return
    // AGAIN for a moment.
    for (Deadline deadline; deadline.open(); progress()) {
      if (done()) return true;
    }
    return false;
  }

  const Variables variables_{{{"HEDDLE_AM_USER_BYTES", "4K"},
                              {"HEDDLE_WORKER_OPERATIONS", "16"},
                              {"HEDDLE_PROGRESS", std::get<2>(GetParam())}}};
  Job job_{2, std::get<1>(GetParam())};
  std::array<Context, 2> contexts_;
  std::array<Worker, 2> workers_;
};

struct Seen {
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> sum{0};
  std::atomic<std::uint64_t> astray{0};  // ran elsewhere than in the thread that runs tasks
  std::vector<std::uint64_t> order;      // for one thread
  std::thread::id runner = std::this_thread::get_id();
  bool running = false;
};

std::uint64_t value_of(const heddle_am_arrival* arrival) {
  std::uint64_t value = 0;
  std::memcpy(&value, arrival->header, sizeof value);
  return value;
}

void see(const heddle_am_arrival* arrival, void* arg) {
  auto& seen = *static_cast<Seen*>(arg);
  if (std::this_thread::get_id() != seen.runner || !seen.running) ++seen.astray;
  seen.order.push_back(value_of(arrival));
  seen.sum += value_of(arrival);
  ++seen.count;
}

void count(const heddle_am_arrival* arrival, void* arg) {
  auto& seen = *static_cast<Seen*>(arg);
  seen.sum += value_of(arrival);
  seen.count.fetch_add(1, std::memory_order_release);
}

TEST_P(Classes, UserHandlersRunOnlyInRunTasksInTheOrderOfArrival) {
  Seen user;
  Seen network;
  contexts_[1].register_am(kUser, see, &user);
  contexts_[1].register_am(kNetwork, count, &network);
  for (std::uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(post_user(0, i));
  ASSERT_TRUE(progress_until([&] { return workers_[1].stats().stored == 5; }));
  ASSERT_TRUE(post_user(0, 1, kNetwork));
  ASSERT_TRUE(progress_until([&] { return network.count.load() == 1; }));
  EXPECT_EQ(user.count.load(), 0U);
  user.running = true;
  EXPECT_EQ(workers_[1].run_tasks(3), 3);
  EXPECT_EQ(workers_[1].run_tasks(3, HEDDLE_FOREVER), 2);
  EXPECT_EQ(workers_[1].run_tasks(3), 0);
  EXPECT_EQ(workers_[1].run_tasks(3, 1'000'000), 0);
  EXPECT_EQ(user.astray.load(), 0U);
  EXPECT_EQ(user.order, (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(workers_[1].stats().tasks, 5U);
  EXPECT_EQ(workers_[1].stats().received, 1U);
  EXPECT_EQ(workers_[1].stats().stored, 0U);
}

TEST_P(Classes, AFullStoreRefusesUserMessagesAndNothingElse) {
  Seen user;
  Seen network;
  contexts_[1].register_am(kUser, count, &user);
  contexts_[1].register_am(kNetwork, count, &network);
  std::uint64_t sent = 0;
  for (Deadline deadline; sent < kCredit && deadline.open();) {
    sent += taken(try_user(0, sent)) ? 1 : 0;
    progress();
  }
  ASSERT_EQ(sent, kCredit);
  ASSERT_TRUE(progress_until([&] { return workers_[1].stats().stored == kCredit; }));
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(try_user(0, 0), HEDDLE_AGAIN);
    progress();
  }
  for (std::uint64_t i = 0; i < 100;) {
    i += taken(try_user(0, 1, kNetwork)) ? 1 : 0;
    progress();
  }
  ASSERT_TRUE(progress_until([&] { return network.count.load() == 100; }));
  ASSERT_EQ(workers_[0].quiet(), HEDDLE_DONE);
  // Each half a window that is handled is granted.
  for (Deadline deadline; sent < 1000 && deadline.open();) {
    sent += taken(try_user(0, sent)) ? 1 : 0;
    ASSERT_LE(workers_[1].stats().stored, static_cast<std::uint64_t>(kCredit));
    ASSERT_GE(workers_[1].run_tasks(2), 0);
    progress();
  }
  ASSERT_EQ(sent, 1000U);
  for (Deadline deadline; user.count.load() < 1000 && deadline.open();) {
    ASSERT_GE(workers_[1].run_tasks(100), 0);
    progress();
  }
  EXPECT_EQ(user.count.load(), 1000U);
  EXPECT_EQ(user.sum.load(), 1000U * 999 / 2);
  EXPECT_EQ(workers_[1].stats().dropped, 0U);
}

// Messages for which nobody has registered a handler are dropped at their turn, and their credit
// comes back.
TEST_P(Classes, WithoutAHandlerTheyAreDroppedAtTheirTurn) {
  std::uint64_t sent = 0;
  for (Deadline deadline; sent < 100 && deadline.open();) {
    sent += taken(try_user(0, sent)) ? 1 : 0;
    ASSERT_EQ(workers_[1].run_tasks(100), 0) << "no handler has run";
    progress();
  }
  ASSERT_EQ(sent, 100U);
  for (Deadline deadline; workers_[1].stats().dropped < 100 && deadline.open();) {
    ASSERT_EQ(workers_[1].run_tasks(100), 0) << "no handler has run";
    progress();
  }
  EXPECT_EQ(workers_[1].stats().dropped, 100U);
  EXPECT_EQ(workers_[1].stats().tasks, 0U);
}

TEST_P(Classes, LargeMessagesArriveWhole) {
  constexpr std::size_t kBytes = 300'000;
  struct Large {
    std::atomic<std::uint64_t> count{0};
    std::atomic<std::uint64_t> wrong{0};
  } large;
  contexts_[1].register_am(
      kUser,
      [](const heddle_am_arrival* arrival, void* arg) {
        auto& self = *static_cast<Large*>(arg);
        const auto* bytes = static_cast<const unsigned char*>(arrival->payload);
        const std::uint64_t value = value_of(arrival);
        bool right = arrival->payload_bytes == kBytes;
        for (std::size_t i = 0; right && i < kBytes; ++i) right = bytes[i] == static_cast<unsigned char>(i * 7 + value);
        if (!right) ++self.wrong;
        ++self.count;
      },
      &large);
  std::vector<std::vector<std::byte>> payloads(6, std::vector<std::byte>(kBytes));
  const Counter counter = contexts_[0].counter();
  const heddle_completion completion = counter.completion();
  std::uint64_t posted = 0;
  for (std::uint64_t value = 0; value < payloads.size(); ++value) {
    for (std::size_t i = 0; i < kBytes; ++i) payloads[value][i] = static_cast<std::byte>(i * 7 + value);
    const heddle_am_message message{kUser, sizeof value, &value, payloads[value].data(), kBytes};
    Status status = HEDDLE_AGAIN;
    for (Deadline deadline;
         (status = workers_[0].try_am({1, 0}, message, &completion)) == HEDDLE_AGAIN && deadline.open();) {
      progress();
      ASSERT_GE(workers_[1].run_tasks(1), 0);
    }
    ASSERT_GE(status, 0);
    posted += status == HEDDLE_POSTED ? 1 : 0;
  }
  for (Deadline deadline; large.count.load() < payloads.size() && deadline.open();) {
    progress();
    ASSERT_GE(workers_[1].run_tasks(1), 0);
  }
  EXPECT_EQ(large.count.load(), payloads.size());
  EXPECT_EQ(large.wrong.load(), 0U);
  EXPECT_TRUE(progress_until([&] { return counter.value() == posted; }));
}

// Handlers that wait for their own operations, while the other rank serves them.
TEST_P(Classes, UserHandlersMayBlock) {
  const Region region = contexts_[0].alloc(64);
  const RemoteRegion remote = contexts_[1].unpack(region.pack());
  struct Self {
    heddle_remote word;
    std::atomic<std::uint64_t> handled{0};
    std::atomic<std::uint64_t> wrong{0};
    std::atomic<std::uint64_t> replies{0};
  } self{remote.at(0)};
  contexts_[1].register_am(
      kUser,
      [](const heddle_am_arrival* arrival, void* arg) {
        auto& me = *static_cast<Self*>(arg);
        std::uint64_t old = 0;
        const heddle_fetch fetch{1, 0, &old};
        if (heddle_fetch_atomic(arrival->worker, HEDDLE_ADD64, me.word, &fetch, nullptr) < 0) ++me.wrong;
        if (heddle_quiet(arrival->worker) != HEDDLE_DONE) ++me.wrong;
        const heddle_am_message reply{kNetwork, sizeof old, &old, nullptr, 0};
        if (heddle_am(arrival->worker, arrival->source, &reply, nullptr) < 0) ++me.wrong;
        if (heddle_worker_progress(arrival->worker) < 0) ++me.wrong;
        if (heddle_run_tasks(arrival->worker, 1, 0) < 0) ++me.wrong;
        ++me.handled;
      },
      &self);
  contexts_[0].register_am(
      kNetwork, [](const heddle_am_arrival*, void* arg) { ++static_cast<Self*>(arg)->replies; }, &self);
  std::thread runner([&] {
    for (Deadline deadline; self.handled.load() < 50 && deadline.open();) {
      EXPECT_GE(workers_[1].run_tasks(4, 1'000'000), 0);
    }
  });
  std::uint64_t sent = 0;
  for (Deadline deadline; (sent < 50 || self.replies.load() < 50) && deadline.open();) {
    if (sent < 50 && taken(try_user(0, sent))) ++sent;
    EXPECT_GE(workers_[0].progress(), 0);
  }
  runner.join();
  EXPECT_EQ(self.handled.load(), 50U);
  EXPECT_EQ(self.replies.load(), 50U);
  EXPECT_EQ(self.wrong.load(), 0U);
  EXPECT_EQ(region.memory<std::uint64_t>()[0], 50U);
}

// Both ranks flood each other while several threads of each run the handlers: grants never wait
// behind messages without credit.
TEST_P(Classes, FloodsInBothDirectionsWithManyThreads) {
  constexpr std::uint64_t kMessages = 2000;
  std::array<Seen, 2> seen;
  for (std::uint32_t rank : {0U, 1U}) contexts_[rank].register_am(kUser, count, &seen[rank]);
  const auto all = [&] { return seen[0].count.load() == kMessages && seen[1].count.load() == kMessages; };
  std::vector<std::thread> threads;
  const auto send = [&](std::uint32_t rank, bool runs) {
    Deadline deadline;
    for (std::uint64_t i = 0; i < kMessages && deadline.open();) {
      const Status status = try_user(rank, i);
      EXPECT_GE(status, 0) << heddle_last_error();
      if (status == HEDDLE_AGAIN) {
        EXPECT_GE(runs ? workers_[rank].run_tasks(4) : workers_[rank].progress(), 0);
      } else {
        ++i;
      }
    }
  };
  const auto run = [&](std::uint32_t rank) {
    for (Deadline deadline; !all() && deadline.open();) EXPECT_GE(workers_[rank].run_tasks(4, 100'000), 0);
  };
  for (std::uint32_t rank : {0U, 1U}) {
    if (exclusive()) {
      threads.emplace_back([&, rank] {
        send(rank, true);
        run(rank);
      });
      continue;
    }
    threads.emplace_back([&, rank] { send(rank, false); });
    for (int i = 0; i < 3; ++i) threads.emplace_back([&, rank] { run(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Seen& one : seen) {
    EXPECT_EQ(one.count.load(), kMessages);
    EXPECT_EQ(one.sum.load(), kMessages * (kMessages - 1) / 2);
  }
}

TEST_P(Classes, WhoWaitsForCreditOfTheDeadOrClosedIsTold) {
  std::uint64_t sent = 0;
  for (Deadline deadline; sent < kCredit && deadline.open();) {
    sent += taken(try_user(0, sent)) ? 1 : 0;
    progress();
  }
  ASSERT_TRUE(progress_until([&] { return workers_[1].stats().stored == kCredit; }));
  ASSERT_EQ(try_user(0, 1), HEDDLE_AGAIN);
  testing::internal::CaptureStderr();
  workers_[1] = {};
  EXPECT_NE(testing::internal::GetCapturedStderr().find("worker 0 was closed with 8 USER messages"), std::string::npos);
  const heddle_am_message message{kUser, 0, nullptr, nullptr, 0};
  EXPECT_GE(workers_[0].am({1, 0}, message), 0)
      << "dropped, as any message to a closed worker: " << heddle_last_error();
  ASSERT_EQ(heddle_inproc_fail(job_.handle(), 1), HEDDLE_DONE);
  EXPECT_EQ(workers_[0].am({1, 0}, message), HEDDLE_ERR_PEER_FAILED);
  workers_[1] = contexts_[1].open_worker(mode());
}

// ---- what may not wait --------------------------------------------------------------------------

struct Waits {
  heddle_context context;
  heddle_worker other;  // of the same context
  heddle_remote_region remote;
  heddle_region region;
  heddle_counter counter;
  std::atomic<bool> ended{false};
  std::vector<std::pair<std::string, int>> told;
  // Memory of operations that may be accepted must live longer than the handler runs.
  alignas(8) std::uint64_t word = 0;
  std::vector<std::byte> large = std::vector<std::byte>(100'000);
  heddle_segment segment{};
};

constexpr std::size_t kPosts = 10;
constexpr std::size_t kWaits = 10;

// Every call that would have to wait: nothing is free for an operation, and those under way do not
// end.
void wait_inside(const heddle_am_arrival* arrival, void* arg) {
  auto& waits = *static_cast<Waits*>(arg);
  std::uint64_t& word = waits.word;
  const heddle_remote at{waits.remote, 0};
  const heddle_strided shape{8, 1, 8, 8};
  waits.segment = {&word, 8, at};
  const heddle_signal signal{at, 1, HEDDLE_SIGNAL_SET};
  const heddle_fetch fetch{1, 0, &word};
  const heddle_am_message message{kNetwork + 1, 0, nullptr, waits.large.data(), waits.large.size()};
  const heddle_worker own = arrival->worker;
  std::array<std::byte, 16> all;
  std::array<heddle_remote_region, 2> regions;
  for (const heddle_worker worker : {own, waits.other}) {
    waits.told.emplace_back("put", heddle_put(worker, &word, 8, at, nullptr));
    waits.told.emplace_back("get", heddle_get(worker, &word, 8, at, nullptr));
    waits.told.emplace_back("put_strided", heddle_put_strided(worker, &word, at, &shape, nullptr));
    waits.told.emplace_back("get_strided", heddle_get_strided(worker, &word, at, &shape, nullptr));
    waits.told.emplace_back("put_list", heddle_put_list(worker, &waits.segment, 1, nullptr));
    waits.told.emplace_back("get_list", heddle_get_list(worker, &waits.segment, 1, nullptr));
    waits.told.emplace_back("put_signal", heddle_put_signal(worker, &word, 8, at, &signal, nullptr));
    waits.told.emplace_back("atomic", heddle_atomic(worker, HEDDLE_ADD64, at, 1, nullptr));
    waits.told.emplace_back("fetch_atomic", heddle_fetch_atomic(worker, HEDDLE_ADD64, at, &fetch, nullptr));
    waits.told.emplace_back("am", heddle_am(worker, {1, 0}, &message, nullptr));
    waits.told.emplace_back("progress", heddle_worker_progress(worker));
    waits.told.emplace_back("context_progress", heddle_context_progress(waits.context));
    waits.told.emplace_back("run_tasks", heddle_run_tasks(worker, 1, 0));
    waits.told.emplace_back("fence", heddle_fence(worker));
    waits.told.emplace_back("flush", heddle_flush(worker, 1));
    waits.told.emplace_back("quiet", heddle_quiet(worker));
    waits.told.emplace_back("counter_wait", heddle_counter_wait(worker, waits.counter, 1, HEDDLE_FOREVER));
    waits.told.emplace_back("signal_wait", heddle_signal_wait(worker, &word, HEDDLE_EQ, 1, HEDDLE_FOREVER));
    waits.told.emplace_back("barrier", heddle_context_barrier(waits.context, worker, HEDDLE_FOREVER));
    waits.told.emplace_back("worker_close", heddle_worker_close(worker));
  }
  waits.told.emplace_back("barrier", heddle_context_barrier(waits.context, {0}, HEDDLE_FOREVER));
  waits.told.emplace_back("exchange", heddle_context_exchange(waits.context, &word, 8, all.data()));
  waits.told.emplace_back("region_exchange", heddle_region_exchange(waits.context, waits.region, regions.data()));
  waits.told.emplace_back("leave", heddle_context_leave(waits.context));
  waits.ended.store(true, std::memory_order_release);
}

class Inside : public Classes {
 protected:
  // The peer answers only when the test says so.
  Inside() : Classes(HEDDLE_SHARING_EXCLUSIVE) {}
};

TEST_P(Inside, EveryCallThatWouldWaitIsRefusedWhicheverWorkerItIsAbout) {
  const Region region = contexts_[1].alloc(64);
  const RemoteRegion remote = contexts_[0].unpack(region.pack());
  const Region own = contexts_[0].alloc(64);
  const Counter counter = contexts_[0].counter();
  Worker other = contexts_[0].open_worker(mode());
  Waits waits{};
  waits.context = contexts_[0].handle();
  waits.other = other.handle();
  waits.remote = remote.handle();
  waits.region = own.handle();
  waits.counter = counter.handle();
  contexts_[0].register_am(kNetwork, wait_inside, &waits);
  // Sixteen gets occupy each worker; rank 1 does not make progress, so they are not answered.
  std::array<std::uint64_t, 32> results{};
  for (std::size_t i = 0; i < results.size(); ++i) {
    Worker& worker = i < 16 ? workers_[0] : other;
    Status status = HEDDLE_AGAIN;
    for (Deadline deadline; status == HEDDLE_AGAIN && deadline.open();) {
      status = worker.try_fetch_add(remote.at(0), 1, &results[i]);
    }
    ASSERT_EQ(status, HEDDLE_POSTED);
  }
  // Behind them in the queue, where there is one: when it has run, they have been started.
  for (Worker* worker : {&workers_[0], &other}) {
    std::atomic<bool> started{false};
    const auto start = [](void* flag) {
      static_cast<std::atomic<bool>*>(flag)->store(true, std::memory_order_release);
    };
    ASSERT_GE(worker->run_on_engine(start, &started), 0);
    for (Deadline deadline; !started.load(std::memory_order_acquire) && deadline.open();) {
      ASSERT_GE(worker->progress(), 0);
    }
    ASSERT_TRUE(started.load());
  }
  const heddle_am_message message{kNetwork, 0, nullptr, nullptr, 0};
  ASSERT_TRUE(taken(workers_[1].try_am({0, 0}, message)));
  for (Deadline deadline; !waits.ended.load(std::memory_order_acquire) && deadline.open();) {
    ASSERT_GE(workers_[0].progress(), 0);
  }
  ASSERT_TRUE(waits.ended.load());
  EXPECT_EQ(waits.told.size(), 2 * kPosts + 2 * kWaits + 4U);
  for (std::size_t i = 0; i < waits.told.size(); ++i) {
    const auto& [call, told] = waits.told[i];
    // If an executor serves another worker, its queue takes the posted operations without a wait.
    const bool queued = mode() == HEDDLE_SHARING_OFFLOAD && i >= kPosts + kWaits && i < 2 * kPosts + kWaits;
    EXPECT_EQ(told, queued ? HEDDLE_POSTED : HEDDLE_ERR_STATE) << call << ", the " << i << "th";
  }
  EXPECT_TRUE(progress_until([&] {
    static_cast<void>(other.progress());
    return workers_[0].try_quiet() == HEDDLE_DONE && other.try_quiet() == HEDDLE_DONE;
  }));
}

// A handler that waits in its own code delays its worker, but neither other workers nor threads
// that make progress on this one.
TEST_P(Inside, AHandlerThatBlocksHoldsUpItsWorkerAlone) {
  struct Stuck {
    std::atomic<bool> in{false};
    std::atomic<bool> out{false};
    std::atomic<bool> left{false};
  } stuck;
  contexts_[0].register_am(
      kNetwork,
      [](const heddle_am_arrival*, void* arg) {
        auto& self = *static_cast<Stuck*>(arg);
        self.in.store(true);
        while (!self.out.load()) std::this_thread::yield();
        self.left.store(true);
      },
      &stuck);
  const Region region = contexts_[1].alloc(64);
  const RemoteRegion remote = contexts_[0].unpack(region.pack());
  Worker other = contexts_[0].open_worker(mode());
  const heddle_am_message message{kNetwork, 0, nullptr, nullptr, 0};
  ASSERT_TRUE(taken(workers_[1].try_am({0, 0}, message)));
  std::thread entered([&] {
    for (Deadline deadline; !stuck.in.load() && deadline.open();) EXPECT_GE(workers_[0].progress(), 0);
  });
  for (Deadline deadline; !stuck.in.load() && deadline.open();) {
  }
  EXPECT_TRUE(stuck.in.load());
  std::uint64_t old = 1;
  const Counter counter = contexts_[0].counter();
  const heddle_completion completion = counter.completion();
  EXPECT_TRUE(taken(other.fetch_atomic(HEDDLE_ADD64, remote.at(0), {1, 0, &old}, &completion)));
  for (Deadline deadline; counter.value() == 0 && deadline.open();) {
    EXPECT_GE(other.progress(), 0);
    EXPECT_GE(workers_[1].progress(), 0);
  }
  EXPECT_EQ(counter.value(), 1U);
  EXPECT_EQ(old, 0U);
  if (!exclusive()) {
    EXPECT_EQ(workers_[0].progress(), 0) << "skipped, not waited for";
    EXPECT_EQ(workers_[0].run_tasks(1, 1000), 0);
    EXPECT_EQ(workers_[0].try_quiet(), HEDDLE_DONE) << "nothing is under way, whoever is inside";
  }
  stuck.out.store(true);
  entered.join();
  // an executor may run it: it must not outlive what it reads
  while (!stuck.left.load()) std::this_thread::yield();
}

std::string name_of_parameter(const testing::TestParamInfo<Parameter>& test) {
  std::string name = std::string(name_of_mode(std::get<0>(test.param))) + "_" + std::get<1>(test.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Classes,
                         testing::Combine(testing::ValuesIn(all_modes()), testing::Values("shm", "loopback-messages"),
                                          testing::Values("none")),
                         name_of_parameter);
// Messages arrive and grants are sent on the helper's thread too.
INSTANTIATE_TEST_SUITE_P(Helped, Classes,
                         testing::Combine(testing::Values(HEDDLE_SHARING_EXCLUSIVE, HEDDLE_SHARING_SHARED),
                                          testing::Values("shm"), testing::Values("dedicated:1")),
                         name_of_parameter);
INSTANTIATE_TEST_SUITE_P(All, Inside,
                         testing::Combine(testing::ValuesIn(all_modes()), testing::Values("loopback-messages"),
                                          testing::Values("none")),
                         name_of_parameter);

}  // namespace
}  // namespace heddle::test::classes_test
