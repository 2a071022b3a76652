// Quiet, flush and fence by their short way, in which one word tells that nothing is under way: no
// error is lost, ends on other threads are seen, and stores have left the core.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "api/test_job.hpp"

namespace heddle::test::quiet_test {
namespace {

// All ranks in the test's thread: the others do nothing but live, or fail.
class Quiet : public testing::TestWithParam<heddle_sharing> {
 protected:
  static constexpr std::uint32_t kRanks = 3;

  Quiet() {
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) contexts_.push_back(job_.join(rank));
    workers_.push_back(contexts_[0].open_worker(GetParam()));
    for (std::uint32_t rank = 1; rank < kRanks; ++rank) {
      workers_.push_back(contexts_[rank].open_worker());
      regions_.push_back(contexts_[rank].alloc(64));
      remotes_.push_back(contexts_[0].unpack(regions_.back().pack()));
    }
  }
  ~Quiet() override {
    // so that nobody waits for another
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) fail(rank);
    remotes_.clear();
    regions_.clear();
    std::vector<std::thread> leaving;
    for (Worker& worker : workers_) worker = {};
    for (Context& context : contexts_) leaving.emplace_back([&context] { context = {}; });
    for (std::thread& thread : leaving) thread.join();
  }

  Worker& worker() { return workers_[0]; }
  heddle_remote at(std::uint32_t rank) { return remotes_[rank - 1].at(0); }
  void fail(std::uint32_t rank) const { check(heddle_inproc_fail(job_.handle(), rank)); }
  // A put without a completion, which its target does not answer.
  void put_to(std::uint32_t rank) {
    ASSERT_EQ(worker().put(bytes_of(value_), at(rank)), HEDDLE_POSTED) << heddle_last_error();
  }
  // Progress until the worker has seen so many operations fail.
  void await_failed(std::uint64_t operations) {
    while (worker().stats().failed < operations) turn(worker());
  }
  void serve(std::uint32_t rank) { ASSERT_GE(workers_[rank].progress(), 0); }

  const Job job_{kRanks, "loopback-messages"};  // a put is a request, and ends with its answer
  std::vector<Context> contexts_;
  std::vector<Worker> workers_;
  std::vector<Region> regions_;
  std::vector<RemoteRegion> remotes_;
  std::uint64_t value_ = 7;
};

TEST_P(Quiet, SaysAgainWhileSomethingIsUnderWayAndDoneAfterIt) {
  EXPECT_EQ(worker().try_quiet(), HEDDLE_DONE) << "without the gate";
  put_to(1);
  EXPECT_EQ(worker().try_quiet(), HEDDLE_AGAIN);
  EXPECT_EQ(worker().try_flush(1), HEDDLE_AGAIN);
  while (worker().try_quiet() == HEDDLE_AGAIN) {
    serve(1);
    turn(worker());
  }
  EXPECT_EQ(regions_[0].memory<std::uint64_t>()[0], value_);
  EXPECT_EQ(worker().quiet(), HEDDLE_DONE);
  EXPECT_EQ(worker().flush(1), HEDDLE_DONE);
  EXPECT_EQ(worker().fence(), HEDDLE_DONE);
}

TEST_P(Quiet, TellsOnceOfAnErrorThatIsOlderThanTheCall) {
  put_to(1);
  fail(1);
  await_failed(1);
  EXPECT_EQ(worker().fence(), HEDDLE_DONE) << "a fence tells of no error, and takes none";
  EXPECT_EQ(worker().quiet(), HEDDLE_ERR_PEER_FAILED);
  EXPECT_NE(std::string(heddle_last_error()).find("rank 1"), std::string::npos) << heddle_last_error();
  EXPECT_EQ(worker().quiet(), HEDDLE_DONE);
  EXPECT_EQ(worker().try_quiet(), HEDDLE_DONE) << "without the gate";
}

TEST_P(Quiet, TellsOfAnErrorAfterOperationsThatWentWell) {
  put_to(1);
  put_to(2);
  fail(1);
  await_failed(1);
  EXPECT_EQ(worker().try_quiet(), HEDDLE_AGAIN) << "the other is under way";
  while (worker().try_flush(2) == HEDDLE_AGAIN) {
    serve(2);
    turn(worker());
  }
  EXPECT_EQ(worker().flush(2), HEDDLE_DONE) << "not its error";
  EXPECT_EQ(worker().quiet(), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(worker().quiet(), HEDDLE_DONE);
}

TEST_P(Quiet, FlushTellsOfTheErrorOfItsRankAndThatTheRankHasFailed) {
  put_to(1);
  fail(1);
  await_failed(1);
  EXPECT_EQ(worker().flush(2), HEDDLE_DONE);
  EXPECT_EQ(worker().flush(1), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(worker().quiet(), HEDDLE_DONE) << "flush has told it";
  EXPECT_EQ(worker().flush(1), HEDDLE_ERR_PEER_FAILED) << "it has failed, though nothing is under way";
  EXPECT_EQ(worker().flush(2), HEDDLE_DONE);
}

// Ranks that fail while the worker is in the middle of its windows.
TEST_P(Quiet, TellsOfAMessageThatCouldNotBeSent) {
  const std::vector<std::byte> data(200'000, std::byte{1});  // offered: it stays under way
  ASSERT_EQ(worker().send({1, 0}, 5, data), HEDDLE_POSTED);
  EXPECT_EQ(worker().try_quiet(), HEDDLE_AGAIN);
  fail(1);
  Status status = HEDDLE_AGAIN;
  while ((status = worker().try_quiet()) == HEDDLE_AGAIN) turn(worker());
  EXPECT_EQ(status, HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(worker().quiet(), HEDDLE_DONE);
}

std::string mode_name(const testing::TestParamInfo<heddle_sharing>& info) {
  return name_of_mode(info.param);
}
INSTANTIATE_TEST_SUITE_P(Modes, Quiet, testing::ValuesIn(all_modes()), mode_name);

// Threads of one worker, each with gets of its own without completions, while others make all the
// progress: a thread whose quiet returns DONE sees its data.
class QuietOfThreads : public testing::TestWithParam<heddle_sharing> {};

TEST_P(QuietOfThreads, SeesWhatAnotherThreadsProgressBrought) {
  constexpr int kThreads = 3;
  constexpr std::uint64_t kRounds = 300;
  const Variables variables({{"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_SHM_CMA", "0"}});
  Job(2, "shm").run([](Context& context, Worker& main) {
    const Region region = context.alloc(4096);
    const auto remote = context.exchange(region);
    for (std::size_t i = 0; i < 512; ++i) region.memory<std::uint64_t>()[i] = i + 1;
    context.barrier(main);
    Worker worker = context.open_worker(GetParam());
    std::atomic<int> left = kThreads;
    std::vector<std::thread> threads;
    for (int number = 0; number < kThreads; ++number) {
      threads.emplace_back([&, number] {
        const RemoteRegion& peer = remote[1 - context.rank()];
        for (std::uint64_t round = 0; round < kRounds; ++round) {
          const std::uint64_t word = (round * kThreads + static_cast<std::uint64_t>(number)) % 512;
          std::uint64_t value = 0;
          ASSERT_GE(worker.get(writable_bytes_of(value), peer.at(8 * word)), 0) << heddle_last_error();
          ASSERT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
          ASSERT_EQ(value, word + 1);
        }
        left.fetch_sub(1, std::memory_order_relaxed);
      });
    }
    while (left.load(std::memory_order_relaxed) > 0) {
      turn(worker);
      turn(main);
    }
    for (std::thread& thread : threads) thread.join();
    context.barrier(main);
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, QuietOfThreads, testing::ValuesIn(shared_modes()), mode_name);

// Each of two stores into the other's memory, then looks at its own: at least one sees the other's
// store. Messages in between, after which quiet has nothing to do, must not hide that.
class QuietFence : public testing::TestWithParam<heddle_sharing> {};

TEST_P(QuietFence, OfTwoThatPutAndLookOneSeesTheOther) {
  constexpr std::uint64_t kRounds = 20'000;
  std::array<std::atomic<std::uint64_t>, 2> here{};
  std::array<std::vector<std::uint64_t>, 2> seen{std::vector<std::uint64_t>(kRounds),
                                                 std::vector<std::uint64_t>(kRounds)};
  Job(2, "shm").run([&](Context& context, Worker& main) {
    const std::uint32_t rank = context.rank();
    Worker worker = context.open_worker(GetParam());
    const Region region = context.alloc(4096);
    const auto remote = context.exchange(region);
    const std::atomic_ref<std::uint64_t> own(region.memory<std::uint64_t>()[0]);
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mark = round + 1;
      here[rank].store(mark, std::memory_order_release);
      for (int looks = 0; here[1 - rank].load(std::memory_order_acquire) < mark;) {
        if (++looks % 1024 == 0) std::this_thread::yield();
      }
      ASSERT_EQ(worker.put(bytes_of(mark), remote[1 - rank].at(0)), HEDDLE_DONE);
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
      seen[rank][round] = own.load(std::memory_order_relaxed);
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    }
    context.barrier(main);
  });
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(seen[0][round] > round || seen[1][round] > round) << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, QuietFence, testing::ValuesIn(all_modes()), mode_name);

// ---- after a death ------------------------------------------------------------------------------

struct Posting {
  const char* name;
  Status (*post)(Worker& worker, RemoteRegion& remote, std::byte* data);
};
constexpr std::size_t kLong = 300'000;

Status am_of(Worker& worker, std::uint32_t handler, const std::byte* data, std::size_t bytes) {
  return worker.am({1, 0}, {handler, 0, nullptr, data, bytes});
}

const std::vector<Posting>& postings() {
  static const std::vector<Posting> all = {
      {"put", [](Worker& w, RemoteRegion& r, std::byte* d) { return w.put({d, 8}, r.at(0)); }},
      {"get", [](Worker& w, RemoteRegion& r, std::byte* d) { return w.get({d, 8}, r.at(0)); }},
      {"long_put", [](Worker& w, RemoteRegion& r, std::byte* d) { return w.put({d, kLong}, r.at(0)); }},
      {"strided", [](Worker& w, RemoteRegion& r, std::byte* d) { return w.put_strided(d, r.at(0), {8, 4, 8, 64}); }},
      {"list",
       [](Worker& w, RemoteRegion& r, std::byte* d) {
         const std::vector<heddle_segment> list = {{d, 8, r.at(0)}, {d + 8, 8, r.at(64)}};
         const Status status = w.put_list(list);
         return status < 0 ? status : w.quiet();
       }},
      {"signal", [](Worker& w, RemoteRegion& r,
                    std::byte* d) { return w.put_signal({d, 8}, r.at(0), {r.at(64), 1, HEDDLE_SIGNAL_ADD}); }},
      {"atomic", [](Worker& w, RemoteRegion& r, std::byte*) { return w.atomic(HEDDLE_ADD64, r.at(0), 1); }},
      {"word", [](Worker& w, RemoteRegion&, std::byte* d) { return am_of(w, 1, d, 8); }},
      {"words",
       [](Worker& w, RemoteRegion&, std::byte* d) {
         Status status = HEDDLE_DONE;
         for (int i = 0; i < 100 && status >= 0; ++i) status = am_of(w, 1, d, 8);
         return status;
       }},
      {"message", [](Worker& w, RemoteRegion&, std::byte* d) { return am_of(w, 1, d, 1000); }},
      {"parts", [](Worker& w, RemoteRegion&, std::byte* d) { return am_of(w, 1, d, 20'000); }},
      {"offered", [](Worker& w, RemoteRegion&, std::byte* d) { return am_of(w, 1, d, kLong); }},
      {"task", [](Worker& w, RemoteRegion&, std::byte* d) { return am_of(w, HEDDLE_AM_USER, d, 8); }},
      {"long_task", [](Worker& w, RemoteRegion&, std::byte* d) { return am_of(w, HEDDLE_AM_USER, d, kLong); }},
      {"send", [](Worker& w, RemoteRegion&, std::byte* d) { return w.send({1, 0}, 5, {d, 8}); }},
      {"long_send", [](Worker& w, RemoteRegion&, std::byte* d) { return w.send({1, 0}, 5, {d, kLong}); }},
  };
  return all;
}

using AfterDeath = std::tuple<heddle_sharing, Setting, bool>;
class QuietAfterADeath : public testing::TestWithParam<AfterDeath> {};

// The call or quiet returns the error. `noticed`: after progress that has found the death. An
// executor looks by itself, since a thread that posts to it makes no progress.
TEST_P(QuietAfterADeath, NoErrorIsLost) {
  const auto& [mode, setting, noticed] = GetParam();
  const Variables variables(setting.variables);
  for (const Posting& posting : postings()) {
    const Job job(2, setting.transport);
    Context mine = job.join(0);
    Context theirs = job.join(1);
    Worker worker = mine.open_worker(mode);
    Worker other = theirs.open_worker();
    const Region region = theirs.alloc(kLong);
    RemoteRegion remote = mine.unpack(region.pack());
    std::vector<std::byte> data(kLong);
    // They have met.
    ASSERT_GE(worker.am({1, 0}, {1, 0, nullptr, nullptr, 0}), 0);
    for (int i = 0; i < 10; ++i) {
      turn(worker);
      turn(other);
    }
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    check(heddle_inproc_fail(job.handle(), 1));
    while (mine.peer_status(1) == HEDDLE_DONE) std::this_thread::yield();
    for (int i = 0; noticed && i < 3; ++i) turn(worker);
    const Status posted = posting.post(worker, remote, data.data());
    Status told = posted;
    if (posted >= 0) {
      while ((told = worker.try_quiet()) == HEDDLE_AGAIN) turn(worker);
    }
    EXPECT_EQ(told, HEDDLE_ERR_PEER_FAILED) << posting.name << ": posted " << heddle_status_name(posted);
    check(heddle_inproc_fail(job.handle(), 0));
    std::thread leaving([&theirs, &other] {
      other = {};
      theirs = {};
    });
    remote = {};
    worker = {};
    mine = {};
    leaving.join();
  }
}

std::string after_death_name(const testing::TestParamInfo<AfterDeath>& info) {
  const auto& [mode, setting, noticed] = info.param;
  return std::string(name_of_mode(mode)) + "_" + setting.name + (noticed ? "_noticed" : "");
}
std::vector<AfterDeath> deaths() {
  const std::vector<Setting> settings = {{"loopback_messages", "loopback-messages", {}},
                                         {"shm_commands", "shm", {{"HEDDLE_SHM_DIRECT", "0"}}}};
  std::vector<AfterDeath> all;
  for (const heddle_sharing mode : all_modes()) {
    for (const Setting& setting : settings) {
      all.emplace_back(mode, setting, true);
      if (mode == HEDDLE_SHARING_OFFLOAD) all.emplace_back(mode, setting, false);
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Modes, QuietAfterADeath, testing::ValuesIn(deaths()), after_death_name);

}  // namespace
}  // namespace heddle::test::quiet_test
