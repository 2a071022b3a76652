// Regions and counters released while operations that name them are on their way: every operation
// ends once, with HEDDLE_ERR_HANDLE if something of it was left to be posted, and nothing is
// touched that is gone (see the asan preset).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "api/test_job.hpp"

namespace heddle::test::release_test {
namespace {

// Counts the completions of one operation.
struct Ending {
  int times = 0;
  Status status = HEDDLE_DONE;

  [[nodiscard]] heddle_completion completion() { return {&Ending::ended, this, {}, HEDDLE_WHEN_REMOTE}; }

 private:
  static void ended(void* self, Status status) {
    ++static_cast<Ending*>(self)->times;
    static_cast<Ending*>(self)->status = status;
  }
};

// Two ranks in one thread, over messages: an operation ends only when both make progress.
class Release : public testing::Test {
 protected:
  // more than fits into the peer's mailbox
  static constexpr std::size_t kBytes = std::size_t{16} << 20;

  void TearDown() override { leave(); }
  void leave() {
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
  void settle() { EXPECT_NE(quiet(), HEDDLE_AGAIN) << "an operation never ended"; }
  // The result of try_quiet() when nothing is under way any more.
  Status quiet() {
    Status status = HEDDLE_AGAIN;
    within_time([&] { return (status = worker_.try_quiet()) != HEDDLE_AGAIN; },
                [&] {
                  worker_.progress();
                  peer_.progress();
                });
    return status;
  }

  Job job_{2, "loopback-messages"};
  Context origin_ = job_.join(0);
  Context owner_ = job_.join(1);
  Worker worker_ = origin_.open_worker();
  // an executor would serve it before anything is released
  Worker peer_ = owner_.open_worker(HEDDLE_SHARING_EXCLUSIVE);
  Region region_ = owner_.alloc(kBytes);
  RemoteRegion remote_ = origin_.unpack(region_.pack());
  std::vector<std::byte> local_ = std::vector<std::byte>(kBytes, std::byte{7});
};

TEST_F(Release, OfTheRegionUnderAPut) {
  Ending ending;
  const heddle_completion completion = ending.completion();
  ASSERT_EQ(worker_.try_put(local_, remote_.at(0), &completion), HEDDLE_POSTED);
  remote_ = {};
  settle();
  EXPECT_EQ(ending.times, 1);
  EXPECT_EQ(ending.status, HEDDLE_ERR_HANDLE);
}

TEST_F(Release, OfTheRegionUnderStridedOperations) {
  const heddle_strided shape{4096, 2048, 4096, 8192};
  Ending put;
  Ending get;
  const heddle_completion first = put.completion();
  const heddle_completion second = get.completion();
  ASSERT_EQ(worker_.try_put_strided(local_.data(), remote_.at(0), shape, &first), HEDDLE_POSTED);
  settle();
  EXPECT_EQ(put.status, HEDDLE_DONE);
  ASSERT_EQ(worker_.try_put_strided(local_.data(), remote_.at(0), shape, &first), HEDDLE_POSTED);
  std::vector<std::byte> back(kBytes);
  const Status posted = worker_.try_get_strided(back.data(), remote_.at(0), shape, &second);
  remote_ = {};
  settle();
  EXPECT_EQ(put.times, 2);
  EXPECT_EQ(put.status, HEDDLE_ERR_HANDLE);
  if (posted == HEDDLE_POSTED) {
    EXPECT_EQ(get.times, 1);
    EXPECT_EQ(get.status, HEDDLE_ERR_HANDLE);
  }
}

TEST_F(Release, OfOneRegionOfAList) {
  RemoteRegion second = origin_.unpack(region_.pack());
  const heddle_segment segments[] = {
      {local_.data(), 64, remote_.at(0)}, {local_.data(), kBytes, remote_.at(0)}, {local_.data(), 64, second.at(0)}};
  Ending ending;
  const heddle_completion completion = ending.completion();
  ASSERT_EQ(worker_.try_put_list(segments, &completion), HEDDLE_POSTED);
  second = {};
  settle();
  EXPECT_EQ(ending.times, 1);
  EXPECT_EQ(ending.status, HEDDLE_ERR_HANDLE);
}

TEST_F(Release, OfTheSignalsRegion) {
  RemoteRegion word = origin_.unpack(region_.pack());
  Ending ending;
  const heddle_completion completion = ending.completion();
  const heddle_signal signal{word.at(8), 5, HEDDLE_SIGNAL_SET};
  const std::uint64_t value = 3;
  ASSERT_EQ(worker_.try_put_signal(bytes_of(value), remote_.at(0), signal, &completion), HEDDLE_POSTED);
  word = {};
  settle();
  EXPECT_EQ(ending.times, 1);
  EXPECT_EQ(ending.status, HEDDLE_ERR_HANDLE);
  EXPECT_EQ(region_.memory<std::uint64_t>()[1], 0U) << "the word was changed all the same";
}

// A list over three ranks, one of which has released its region: the error comes by answers of the
// owners, or by the transport, which does not name the piece.
class ReleaseOfAList : public testing::TestWithParam<const char*> {
 protected:
  static constexpr std::size_t kSize = 3;
  static constexpr std::size_t kBytes = 4096;

  ReleaseOfAList() {
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      contexts_[rank] = job_.join(rank);
      workers_[rank] = contexts_[rank].open_worker(rank == 0 ? HEDDLE_SHARING_DEFAULT : HEDDLE_SHARING_EXCLUSIVE);
      memory_[rank].resize(kBytes);
      regions_[rank] = contexts_[rank].register_memory(memory_[rank]);
      remotes_[rank] = contexts_[0].unpack(regions_[rank].pack());
    }
    for (std::uint32_t rank : {1U, 2U}) segments_.push_back({local_.data(), kBytes, remotes_[rank].at(0)});
  }
  ~ReleaseOfAList() override {
    remotes_ = {};
    regions_ = {};
    workers_ = {};
    std::vector<std::thread> others;
    for (std::uint32_t rank : {1U, 2U}) others.emplace_back([this, rank] { contexts_[rank] = {}; });
    contexts_[0] = {};
    for (std::thread& other : others) other.join();
  }
  template <class Attempt>
  Status ended(Attempt&& attempt) {
    Status status = HEDDLE_AGAIN;
    within_time([&] { return (status = attempt()) != HEDDLE_AGAIN; },
                [&] {
                  for (Worker& worker : workers_) worker.progress();
                });
    return status;
  }
  Status flush(std::uint32_t rank) {
    return ended([&] { return heddle_try_flush(workers_[0].handle(), rank); });
  }
  // POSTED, also where another thread executes it.
  void put() { ASSERT_GE(workers_[0].try_put_list(segments_), 0) << heddle_last_error(); }

  // Puts into registered memory of another rank need its progress, so that nothing is done within
  // the call.
  const Variables variables_{{{"HEDDLE_SHM_CMA", "0"}}};
  Job job_{kSize, GetParam()};
  std::array<Context, kSize> contexts_;
  std::array<Worker, kSize> workers_;
  std::array<std::vector<std::byte>, kSize> memory_;
  std::array<Region, kSize> regions_;
  std::array<RemoteRegion, kSize> remotes_;
  std::vector<std::byte> local_ = std::vector<std::byte>(kBytes, std::byte{9});
  std::vector<heddle_segment> segments_;
};

TEST_P(ReleaseOfAList, IsToldOfTheRankThatHasReleased) {
  regions_[1] = {};
  put();
  ASSERT_NE(ended([&] { return heddle_try_quiet(workers_[0].handle()); }), HEDDLE_DONE) << "of no rank";
  put();
  EXPECT_EQ(flush(0), HEDDLE_DONE) << "it has no part in the list";
  EXPECT_LT(flush(1), HEDDLE_DONE);
  EXPECT_EQ(flush(1), HEDDLE_DONE) << "told once";
  EXPECT_TRUE(flush(2) < HEDDLE_DONE || memory_[2][kBytes - 1] == std::byte{9}) << "neither an error nor data";
}

// The part of rank 1 comes last: the data put to rank 2 before it has arrived.
TEST_P(ReleaseOfAList, IsNotToldOfARankWhosePartIsDone) {
  if (std::string(GetParam()) == "shm") GTEST_SKIP() << "the transport does not say which part has failed";
  std::swap(segments_[0], segments_[1]);
  regions_[1] = {};
  put();
  EXPECT_LT(flush(1), HEDDLE_DONE);
  EXPECT_EQ(memory_[2][kBytes - 1], std::byte{9});
  if (std::string(GetParam()) == "loopback-messages") {
    EXPECT_EQ(flush(2), HEDDLE_DONE);
  }
}

TEST_P(ReleaseOfAList, WhoseHandleIsGoneIsToldOfEveryRank) {
  segments_.insert(segments_.begin(), 64, segments_[1]);  // more than can be under way at once
  put();
  remotes_[1] = {};
  const Status first = flush(1);
  EXPECT_TRUE(first == HEDDLE_DONE || first == HEDDLE_ERR_HANDLE) << heddle_status_name(first);
  EXPECT_EQ(flush(2), first);
}

INSTANTIATE_TEST_SUITE_P(Transports, ReleaseOfAList, testing::Values("loopback-messages", "loopback", "shm"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_F(Release, WithoutACompletionIsToldByQuiet) {
  ASSERT_EQ(worker_.try_put(local_, remote_.at(0)), HEDDLE_POSTED);
  remote_ = {};
  EXPECT_EQ(quiet(), HEDDLE_ERR_HANDLE);
  EXPECT_EQ(quiet(), HEDDLE_DONE) << "told once";
}

TEST_F(Release, FromInsideTheCompletion) {
  struct Last {
    RemoteRegion region;
    int times = 0;
  } last{origin_.unpack(region_.pack())};
  const heddle_completion completion{[](void* arg, Status) {
                                       static_cast<Last*>(arg)->region = {};
                                       ++static_cast<Last*>(arg)->times;
                                     },
                                     &last,
                                     {},
                                     HEDDLE_WHEN_REMOTE};
  ASSERT_EQ(worker_.try_put(local_, last.region.at(0), &completion), HEDDLE_POSTED);
  settle();
  EXPECT_EQ(last.times, 1);
  EXPECT_EQ(region_.memory()[kBytes - 1], std::byte{7});
}

// A counter that is opened where a freed one was must not be raised by the freed one's operations.
TEST_F(Release, OfTheCounterUnderAnOperation) {
  constexpr int kCounters = 16;
  std::vector<Counter> first;
  for (int i = 0; i < kCounters; ++i) {
    first.push_back(origin_.counter(worker_));
    const heddle_completion completion = first.back().completion();
    ASSERT_EQ(worker_.try_atomic(HEDDLE_ADD64, remote_.at(0), 1, &completion), HEDDLE_POSTED);
  }
  first.clear();
  std::vector<Counter> second;
  for (int i = 0; i < kCounters; ++i) second.push_back(origin_.counter(worker_));
  settle();
  for (const Counter& counter : second) EXPECT_EQ(counter.value(), 0U);
  EXPECT_EQ(region_.memory<std::uint64_t>()[0], static_cast<std::uint64_t>(kCounters));
}

TEST_F(Release, OfACounterLeavesTheErrorToQuiet) {
  Counter counter = origin_.counter();
  const heddle_completion completion = counter.completion();
  ASSERT_EQ(worker_.try_put(local_, remote_.at(0), &completion), HEDDLE_POSTED);
  counter = {};
  remote_ = {};
  EXPECT_EQ(quiet(), HEDDLE_ERR_HANDLE);
}

TEST_F(Release, WhileAClosedWorkerStillHasOperations) {
  Counter counter = origin_.counter();
  const heddle_completion completion = counter.completion();
  ASSERT_EQ(worker_.try_atomic(HEDDLE_ADD64, remote_.at(0), 1, &completion), HEDDLE_POSTED);
  ASSERT_EQ(worker_.try_put(local_, remote_.at(0), &completion), HEDDLE_POSTED);
  counter = {};
  remote_ = {};
  check(heddle_inproc_fail(job_.handle(), 1));  // so that closing need not wait for the peer
  leave();
}

// Over every transport, with operations of all shapes in all stages.
class ReleaseEverywhere : public testing::TestWithParam<Setting> {};

TEST_P(ReleaseEverywhere, EveryOperationEndsOnce) {
  const Variables variables(GetParam().variables);
  Job(2, GetParam().transport).run([](Context& context, Worker& worker) {
    constexpr std::size_t kBytes = 200'000;
    const Region allocated = context.alloc(kBytes);
    std::vector<std::byte> memory(kBytes);
    const Region registered = context.register_memory(memory);
    std::vector<std::byte> local(kBytes);
    for (int round = 0; round < 20; ++round) {
      std::vector<RemoteRegion> remotes = context.exchange(round % 2 == 0 ? allocated : registered);
      const RemoteRegion& peer = remotes[1 - context.rank()];
      std::vector<Ending> endings(8);
      std::vector<Status> posted;
      const heddle_strided shape{100, 300, 100, 200};
      const heddle_segment segments[] = {{local.data(), 50'000, peer.at(0)}, {local.data(), 70, peer.at(8)}};
      const heddle_signal signal{peer.at(64), 1, HEDDLE_SIGNAL_ADD};
      std::uint64_t old = 0;
      for (std::size_t i = 0; i < endings.size(); ++i) {
        const heddle_completion completion = endings[i].completion();
        switch (i % 6) {
          case 0:
            posted.push_back(worker.try_put(local, peer.at(0), &completion));
            break;
          case 1:
            posted.push_back(worker.try_get(local, peer.at(0), &completion));
            break;
          case 2:
            posted.push_back(worker.try_put_strided(local.data(), peer.at(0), shape, &completion));
            break;
          case 3:
            posted.push_back(worker.try_put_list(segments, &completion));
            break;
          case 4:
            posted.push_back(worker.try_put_signal(std::span(local).first(5000), peer.at(100), signal, &completion));
            break;
          default:
            posted.push_back(worker.try_fetch_add(peer.at(128), 1, &old, &completion));
            break;
        }
      }
      for (int i = 0; i < round; ++i) worker.progress();
      remotes.clear();
      Status quiet = worker.quiet();
      EXPECT_EQ(quiet, HEDDLE_DONE) << heddle_last_error();
      for (std::size_t i = 0; i < endings.size(); ++i) {
        EXPECT_EQ(endings[i].times, posted[i] == HEDDLE_POSTED ? 1 : 0) << "operation " << i << " round " << round;
        EXPECT_TRUE(endings[i].status == HEDDLE_DONE || endings[i].status == HEDDLE_ERR_HANDLE)
            << heddle_status_name(endings[i].status);
      }
      context.barrier(worker);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, ReleaseEverywhere, testing::ValuesIn(all_settings()), name_of);

}  // namespace
}  // namespace heddle::test::release_test
