// Wrong arguments are reported with the exact status and a message that names the value.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "api/test_job.hpp"
#include "base/test_support.hpp"
#include "worker/worker.hpp"

namespace heddle::test::arguments_test {
namespace {

void expect_error(Status status, Status expected, const char* words) {
  EXPECT_EQ(status, expected) << heddle_status_name(status) << ": " << heddle_last_error();
  EXPECT_NE(std::string(heddle_last_error()).find(words), std::string::npos) << heddle_last_error();
}

class Arguments : public testing::Test {
 protected:
  Context context_ = Context::join();
  Worker worker_ = context_.open_worker();
  Region region_ = context_.alloc(4096);
  RemoteRegion remote_ = context_.unpack(region_.pack());
  std::uint64_t value_ = 1;
};

TEST_F(Arguments, AProcessStartedByItselfIsAJobOfOne) {
  EXPECT_EQ(context_.rank(), 0U);
  EXPECT_EQ(context_.size(), 1U);
  context_.barrier(worker_);
}

TEST_F(Arguments, ABarrierTakesNoWorkerOfAnotherContext) {
  Context other = Context::join();
  expect_error(heddle_context_barrier(other.handle(), worker_.handle(), 0), HEDDLE_ERR_ARGUMENT, "another context");
  Worker worker = other.open_worker();
  other.barrier(worker);
  worker = {};
}

// A counter of one worker has one writer. A worker that is opened later at the same place in memory
// is another one.
TEST_F(Arguments, ACounterOfAWorkerIsNotThatOfALaterOneInItsPlace) {
  constexpr int kWorkers = 60;
  std::vector<std::pair<const void*, Counter>> earlier;
  bool same_place = false;
  for (int i = 0; i < kWorkers && !same_place; ++i) {
    Worker worker = context_.open_worker(HEDDLE_SHARING_EXCLUSIVE);
    const void* place = &engine::find_handle<worker::Worker>(worker.handle().id)->core();
    for (const auto& [place_before, counter] : earlier) {
      const heddle_completion completion = counter.completion();
      expect_error(worker.put(bytes_of(value_), remote_.at(0), &completion), HEDDLE_ERR_ARGUMENT, "another worker");
      same_place = same_place || place_before == place;
    }
    earlier.emplace_back(place, context_.counter_of_all(worker));
    const heddle_completion own = earlier.back().second.completion();
    EXPECT_GE(worker.put(bytes_of(value_), remote_.at(0), &own), HEDDLE_DONE) << heddle_last_error();
  }
  EXPECT_TRUE(same_place || base::kAddressSanitizer) << "no worker came to lie where an earlier one was";
}

// A context keeps a counter while its own workers name it: a counter of another context could be
// gone before the operation ends.
TEST_F(Arguments, ACompletionTakesNoCounterOfAnotherContext) {
  Context other = Context::join();
  const Counter counter = other.counter();
  const heddle_completion completion = counter.completion();
  const heddle_wanted wanted{{0, HEDDLE_ANY}, 1, UINT64_MAX};
  heddle_receive receive{};
  expect_error(heddle_try_recv(worker_.handle(), &wanted, &value_, sizeof value_, &receive, &completion),
               HEDDLE_ERR_ARGUMENT, "another context");
  const Counter all = other.counter_of_all();
  const heddle_completion counted = all.completion();
  expect_error(worker_.put(bytes_of(value_), remote_.at(0), &counted), HEDDLE_ERR_ARGUMENT, "another context");
  EXPECT_EQ(all.value(), 0U);
}

TEST_F(Arguments, ClosedHandlesAreErrorsForEveryType) {
  const auto worker = worker_.handle();
  const auto remote = remote_.handle();
  const auto region = region_.handle();
  Counter counter = context_.counter();
  const auto counter_handle = counter.handle();
  counter = {};
  remote_ = {};
  region_ = {};
  expect_error(heddle_try_put(worker, &value_, 8, {remote, 0}, nullptr), HEDDLE_ERR_HANDLE, "remote region");
  std::size_t bytes = HEDDLE_PACKED_REGION_BYTES;
  char buffer[HEDDLE_PACKED_REGION_BYTES];
  expect_error(heddle_region_pack(region, buffer, &bytes), HEDDLE_ERR_HANDLE, "region");
  expect_error(heddle_counter_read(counter_handle, &value_), HEDDLE_ERR_HANDLE, "counter");
  worker_ = {};
  expect_error(heddle_try_put(worker, &value_, 8, {remote, 0}, nullptr), HEDDLE_ERR_HANDLE, "worker");
  EXPECT_EQ(heddle_worker_progress(worker), HEDDLE_ERR_HANDLE);
  const auto context = context_.handle();
  context_ = {};
  std::uint32_t rank = 0;
  expect_error(heddle_context_rank(context, &rank), HEDDLE_ERR_HANDLE, "context");
}

TEST_F(Arguments, NullForeignAndInventedHandlesAreErrors) {
  expect_error(heddle_try_put({}, &value_, 8, remote_.at(0), nullptr), HEDDLE_ERR_HANDLE, "null handle");
  expect_error(heddle_try_put({remote_.handle().id}, &value_, 8, remote_.at(0), nullptr), HEDDLE_ERR_HANDLE, "worker");
  for (const std::uint64_t id : {~0ULL, 0xDEADBEEFULL, 1ULL << 63}) {
    EXPECT_EQ(heddle_try_put({id}, &value_, 8, remote_.at(0), nullptr), HEDDLE_ERR_HANDLE);
    EXPECT_EQ(heddle_context_leave({id}), HEDDLE_ERR_HANDLE);
  }
}

TEST_F(Arguments, RangesAreChecked) {
  EXPECT_EQ(worker_.try_put(bytes_of(value_), remote_.at(4088)), HEDDLE_DONE);
  expect_error(worker_.try_put(bytes_of(value_), remote_.at(4089)), HEDDLE_ERR_RANGE, "offset 4089");
  expect_error(worker_.try_put(bytes_of(value_), remote_.at(~0ULL - 3)), HEDDLE_ERR_RANGE, "leave the region");
  expect_error(worker_.try_get(writable_bytes_of(value_), remote_.at(4096)), HEDDLE_ERR_RANGE, "4096 bytes");
  expect_error(heddle_try_put(worker_.handle(), &value_, ~std::size_t{0}, remote_.at(8), nullptr), HEDDLE_ERR_RANGE,
               "leave");
  EXPECT_EQ(heddle_try_put(worker_.handle(), nullptr, 0, remote_.at(4096), nullptr), HEDDLE_DONE);
  void* pointer = nullptr;
  expect_error(heddle_remote_pointer(remote_.at(4097), &pointer), HEDDLE_ERR_RANGE, "4097");
}

TEST_F(Arguments, NullPointersAreNamed) {
  expect_error(heddle_try_put(worker_.handle(), nullptr, 8, remote_.at(0), nullptr), HEDDLE_ERR_ARGUMENT, "source");
  expect_error(heddle_try_get(worker_.handle(), nullptr, 8, remote_.at(0), nullptr), HEDDLE_ERR_ARGUMENT, "target");
  expect_error(heddle_try_am(worker_.handle(), {0, 0}, nullptr, nullptr), HEDDLE_ERR_ARGUMENT, "message");
  expect_error(heddle_try_put_list(worker_.handle(), nullptr, 3, nullptr), HEDDLE_ERR_ARGUMENT, "segments");
  expect_error(heddle_context_join(nullptr, nullptr), HEDDLE_ERR_ARGUMENT, "context");
  expect_error(heddle_region_register(context_.handle(), nullptr, 8, nullptr), HEDDLE_ERR_ARGUMENT, "address");
}

TEST_F(Arguments, OfAStridedPutWithSignalAreChecked) {
  const heddle_strided shape{8, 4, 16, 16};
  const auto put = [&](std::uint64_t offset, const heddle_strided* of, const heddle_signal* signal) {
    return heddle_try_put_strided_signal(worker_.handle(), &value_, remote_.at(offset), of, signal, nullptr);
  };
  const heddle_signal signal{remote_.at(8), 1, HEDDLE_SIGNAL_SET};
  expect_error(put(0, nullptr, &signal), HEDDLE_ERR_ARGUMENT, "heddle_put_strided_signal: shape is null");
  expect_error(put(0, &shape, nullptr), HEDDLE_ERR_ARGUMENT, "heddle_put_strided_signal: signal is null");
  expect_error(heddle_put_strided_signal(worker_.handle(), nullptr, remote_.at(0), &shape, &signal, nullptr),
               HEDDLE_ERR_ARGUMENT, "source");
  const heddle_strided overlapping{8, 4, 16, 7};
  expect_error(put(0, &overlapping, &signal), HEDDLE_ERR_ARGUMENT, "strides 16 (local) and 7 (remote)");
  const heddle_strided endless{8, ~std::uint64_t{0}, 16, 16};
  expect_error(put(0, &endless, &signal), HEDDLE_ERR_ARGUMENT, "fit 64 bits");
  expect_error(put(4096 - 55, &shape, &signal), HEDDLE_ERR_RANGE, "leave the region");
  const heddle_signal uneven{remote_.at(12), 1, HEDDLE_SIGNAL_SET};
  expect_error(put(0, &shape, &uneven), HEDDLE_ERR_ALIGNMENT, "12");
  const heddle_signal outside{remote_.at(4096), 1, HEDDLE_SIGNAL_SET};
  expect_error(put(0, &shape, &outside), HEDDLE_ERR_RANGE, "4096");
  expect_error(heddle_put_strided_signal({}, &value_, remote_.at(0), &shape, &signal, nullptr), HEDDLE_ERR_HANDLE,
               "worker");
  expect_error(heddle_put_strided_signal(worker_.handle(), &value_, {}, &shape, &signal, nullptr), HEDDLE_ERR_HANDLE,
               "remote region");
}

TEST_F(Arguments, OfTheWaitingFormsAreChecked) {
  std::uint64_t result = 5;
  const heddle_fetch fetch{1, 0, &result};
  const heddle_fetch nowhere{1, 0, nullptr};
  expect_error(heddle_get_wait({}, &value_, 8, remote_.at(0)), HEDDLE_ERR_HANDLE, "worker");
  expect_error(heddle_get_wait(worker_.handle(), &value_, 8, {}), HEDDLE_ERR_HANDLE, "remote region");
  expect_error(heddle_get_wait(worker_.handle(), nullptr, 8, remote_.at(0)), HEDDLE_ERR_ARGUMENT, "target");
  expect_error(heddle_get_wait(worker_.handle(), &value_, 8, remote_.at(4089)), HEDDLE_ERR_RANGE, "4089");
  const auto wait = [&](heddle_atomic_op op, std::uint64_t offset, const heddle_fetch* from) {
    return heddle_fetch_atomic_wait(worker_.handle(), op, remote_.at(offset), from);
  };
  expect_error(wait(HEDDLE_ADD64, 0, nullptr), HEDDLE_ERR_ARGUMENT, "fetch");
  expect_error(wait(HEDDLE_ADD64, 0, &nowhere), HEDDLE_ERR_ARGUMENT, "result");
  expect_error(wait(static_cast<heddle_atomic_op>(14), 0, &fetch), HEDDLE_ERR_ARGUMENT, "14 is not");
  expect_error(wait(HEDDLE_ADD64, 4, &fetch), HEDDLE_ERR_ALIGNMENT, "offset 4");
  expect_error(wait(HEDDLE_ADD64, 4096, &fetch), HEDDLE_ERR_RANGE, "4096");
  expect_error(heddle_fetch_atomic_wait({}, HEDDLE_ADD64, remote_.at(0), &fetch), HEDDLE_ERR_HANDLE, "worker");
  EXPECT_EQ(result, 5U);
}

// An operation on memory that is not direct would have to wait: in a handler it is refused, and
// nothing is posted.
TEST(Inside, WaitingFormsAreRefusedUnlessTheMemoryIsDirect) {
  for (const bool direct : {true, false}) {
    Job(1, direct ? "shm" : "loopback-messages").run([&](Context& context, Worker& worker) {
      const Region region = context.alloc(64);
      const RemoteRegion remote = context.unpack(region.pack());
      struct Call {
        heddle_remote at;
        Status get = HEDDLE_POSTED;
        Status fetch = HEDDLE_POSTED;
      } call{remote.at(8)};
      context.register_am(
          1,
          [](const heddle_am_arrival* message, void* arg) {
            auto* of = static_cast<Call*>(arg);
            std::uint64_t value = 0;
            const heddle_fetch fetch{1, 0, &value};
            of->get = heddle_get_wait(message->worker, &value, sizeof value, of->at);
            of->fetch = heddle_fetch_atomic_wait(message->worker, HEDDLE_ADD64, of->at, &fetch);
          },
          &call);
      ASSERT_GE(worker.am({0, 0}, {1, 0, nullptr, nullptr, 0}), 0);
      while (call.fetch == HEDDLE_POSTED) turn(worker);
      EXPECT_EQ(call.get, direct ? HEDDLE_DONE : HEDDLE_ERR_STATE);
      EXPECT_EQ(call.fetch, direct ? HEDDLE_DONE : HEDDLE_ERR_STATE);
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
      EXPECT_EQ(region.memory<std::uint64_t>()[1], direct ? 1U : 0U);
    });
  }
}

TEST_F(Arguments, ACounterOfAllBelongsToItsWorkerEvenIfTheOperationIsDoneAtOnce) {
  Worker other = context_.open_worker(HEDDLE_SHARING_EXCLUSIVE);
  const Counter counter = context_.counter_of_all(other);
  const heddle_completion completion = counter.completion();
  EXPECT_EQ(other.put(bytes_of(value_), remote_.at(0), &completion), HEDDLE_DONE);
  EXPECT_EQ(counter.value(), 1U);
  expect_error(worker_.put(bytes_of(value_), remote_.at(0), &completion), HEDDLE_ERR_ARGUMENT, "another worker");
  expect_error(worker_.put(std::as_bytes(std::span(&value_, 1)).first(4), remote_.at(0), &completion),
               HEDDLE_ERR_ARGUMENT, "another worker");
  expect_error(worker_.atomic(HEDDLE_ADD64, remote_.at(0), 1, &completion), HEDDLE_ERR_ARGUMENT, "another worker");
  expect_error(other.put(bytes_of(value_), remote_.at(4096), &completion), HEDDLE_ERR_RANGE, "4096");
  EXPECT_EQ(counter.value(), 1U) << "what was refused is not counted";
  const Counter plain = context_.counter();
  const heddle_completion posted_only = plain.completion();
  EXPECT_EQ(worker_.put(bytes_of(value_), remote_.at(0), &posted_only), HEDDLE_DONE);
  EXPECT_EQ(plain.value(), 0U);
}

TEST_F(Arguments, MessagesAreChecked) {
  const auto send = [&](heddle_peer target, heddle_am_message message) {
    return heddle_try_am(worker_.handle(), target, &message, nullptr);
  };
  expect_error(send({5, 0}, {1, 0, nullptr, nullptr, 0}), HEDDLE_ERR_RANK, "rank 5");
  expect_error(send({0, 4000}, {1, 0, nullptr, nullptr, 0}), HEDDLE_ERR_RANK, "worker 4000");
  expect_error(send({0, 0}, {2048, 0, nullptr, nullptr, 0}), HEDDLE_ERR_ARGUMENT, "handler 2048");
  expect_error(send({0, 0}, {1, 65, &value_, nullptr, 0}), HEDDLE_ERR_SIZE, "65 bytes");
  expect_error(send({0, 0}, {1, 8, nullptr, nullptr, 0}), HEDDLE_ERR_ARGUMENT, "header");
  expect_error(send({0, 0}, {1, 0, nullptr, nullptr, 8}), HEDDLE_ERR_ARGUMENT, "payload");
  expect_error(send({0, 0}, {1, 0, nullptr, &value_, std::size_t{1} << 40}), HEDDLE_ERR_SIZE, "HEDDLE_AM_MAX_BYTES");
  expect_error(heddle_am_register(context_.handle(), 2048, nullptr, nullptr), HEDDLE_ERR_ARGUMENT, "2048");
}

TEST_F(Arguments, AtomicsNeedAlignmentAndAKnownOperation) {
  expect_error(worker_.try_atomic(HEDDLE_ADD64, remote_.at(4), 1), HEDDLE_ERR_ALIGNMENT, "offset 4");
  EXPECT_EQ(worker_.try_atomic(HEDDLE_ADD32, remote_.at(4), 1), HEDDLE_DONE);
  expect_error(worker_.try_atomic(HEDDLE_ADD32, remote_.at(2), 1), HEDDLE_ERR_ALIGNMENT, "offset 2");
  expect_error(worker_.try_atomic(HEDDLE_COMPARE_SWAP64, remote_.at(0), 1), HEDDLE_ERR_ARGUMENT, "compare-swap");
  expect_error(worker_.try_atomic(static_cast<heddle_atomic_op>(6), remote_.at(0), 1), HEDDLE_ERR_ARGUMENT, "6");
  const heddle_fetch no_result{1, 0, nullptr};
  expect_error(heddle_try_fetch_atomic(worker_.handle(), HEDDLE_ADD64, remote_.at(0), &no_result, nullptr),
               HEDDLE_ERR_ARGUMENT, "result");
}

TEST_F(Arguments, ShapesAndSignalsAreChecked) {
  heddle_strided shape{16, 4, 8, 16};
  expect_error(heddle_try_put_strided(worker_.handle(), &value_, remote_.at(0), &shape, nullptr), HEDDLE_ERR_ARGUMENT,
               "strides 8");
  shape = {8, ~0ULL, 8, ~0ULL / 2};
  expect_error(heddle_try_put_strided(worker_.handle(), &value_, remote_.at(0), &shape, nullptr), HEDDLE_ERR_ARGUMENT,
               "64 bits");
  shape = {8, 600, 8, 8};
  expect_error(heddle_try_put_strided(worker_.handle(), &value_, remote_.at(0), &shape, nullptr), HEDDLE_ERR_RANGE,
               "4800 bytes");
  const heddle_signal crooked{remote_.at(12), 1, HEDDLE_SIGNAL_SET};
  expect_error(worker_.try_put_signal(bytes_of(value_), remote_.at(0), crooked), HEDDLE_ERR_ALIGNMENT, "12");
  const heddle_signal outside{remote_.at(4096), 1, HEDDLE_SIGNAL_SET};
  expect_error(worker_.try_put_signal(bytes_of(value_), remote_.at(0), outside), HEDDLE_ERR_RANGE, "4096");
}

TEST_F(Arguments, RegionsOfNothingAndOfEverythingAreRefused) {
  heddle_region region{};
  expect_error(heddle_region_alloc(context_.handle(), 0, &region), HEDDLE_ERR_SIZE, "0 bytes");
  EXPECT_LT(heddle_region_alloc(context_.handle(), std::size_t{1} << 62, &region), 0);
  EXPECT_EQ(region.id, 0U);
  auto packed = region_.pack();
  heddle_remote_region remote{};
  EXPECT_EQ(heddle_region_unpack(context_.handle(), packed.data(), 10, &remote), HEDDLE_ERR_PROTOCOL);
  packed[20] ^= std::byte{1};
  expect_error(heddle_region_unpack(context_.handle(), packed.data(), packed.size(), &remote), HEDDLE_ERR_PROTOCOL,
               "damaged");
}

TEST_F(Arguments, TenThousandRegions) {
  std::vector<Region> regions;
  std::vector<RemoteRegion> remotes;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    regions.push_back(context_.alloc(64));
    remotes.push_back(context_.unpack(regions.back().pack()));
    ASSERT_EQ(worker_.try_put(bytes_of(i), remotes.back().at(8)), HEDDLE_DONE);
  }
  for (std::uint64_t i = 0; i < 10'000; ++i) ASSERT_EQ(regions[i].memory<std::uint64_t>()[1], i);
}

TEST_F(Arguments, WaitsEndInTime) {
  expect_error(worker_.wait(region_.memory<std::uint64_t>()[0], HEDDLE_EQ, 99, 1'000'000), HEDDLE_ERR_TIMEOUT,
               "1000000 ns");
  const Counter counter = context_.counter();
  expect_error(worker_.wait(counter, 1, 1'000'000), HEDDLE_ERR_TIMEOUT, "1000000 ns");
}

TEST_F(Arguments, WhatWaitsIsRefusedInsideAHandler) {
  static Status seen[3];
  context_.register_am(
      1,
      [](const heddle_am_arrival* message, void*) {
        seen[0] = heddle_quiet(message->worker);
        seen[1] = static_cast<Status>(heddle_worker_progress(message->worker));
        seen[2] = heddle_worker_close(message->worker);
      },
      nullptr);
  ASSERT_EQ(worker_.am({0, 0}, {1, 0, nullptr, nullptr, 0}), HEDDLE_DONE);
  while (worker_.stats().received == 0) worker_.progress();
  EXPECT_EQ(seen[0], HEDDLE_DONE) << "nothing was outstanding, so nothing was waited for";
  EXPECT_EQ(seen[1], HEDDLE_ERR_STATE);
  EXPECT_EQ(seen[2], HEDDLE_ERR_STATE);
}

TEST_F(Arguments, AMessageForNoHandlerIsCountedAndDropped) {
  ASSERT_EQ(worker_.am({0, 0}, {99, 0, nullptr, &value_, 8}), HEDDLE_DONE);
  while (worker_.stats().dropped == 0) ASSERT_GE(worker_.progress(), 0);
  EXPECT_EQ(worker_.stats().received, 0U);
}

TEST_F(Arguments, AChildOfForkHoldsOnlyClosedHandles) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool closed = heddle_try_put(worker_.handle(), &value_, 8, remote_.at(0), nullptr) == HEDDLE_ERR_HANDLE &&
                        heddle_context_leave(context_.handle()) == HEDDLE_ERR_HANDLE;
    // A child may join for itself: a job of one.
    heddle_context own{};
    const bool joined = heddle_context_join(nullptr, &own) == HEDDLE_DONE && heddle_context_leave(own) == HEDDLE_DONE;
    _exit(closed && joined ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  EXPECT_EQ(worker_.try_put(bytes_of(value_), remote_.at(0)), HEDDLE_DONE) << "the parent's membership goes on";
}

// Their numbers are not used again, which a program that opens a worker for each task must learn.
TEST(Workers, ClosedOnesCountAsTheErrorSays) {
  const Variables variables{std::vector<std::pair<const char*, const char*>>{{"HEDDLE_MAX_WORKERS", "2"}}};
  heddle_context context{};
  ASSERT_EQ(heddle_context_join(nullptr, &context), HEDDLE_DONE) << heddle_last_error();
  heddle_worker worker{};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(heddle_worker_open(context, nullptr, &worker), HEDDLE_DONE) << heddle_last_error();
    ASSERT_EQ(heddle_worker_close(worker), HEDDLE_DONE) << heddle_last_error();
  }
  expect_error(heddle_worker_open(context, nullptr, &worker), HEDDLE_ERR_NO_MEMORY,
               "all its 2 workers (closed ones count: peers may still know their numbers");
  EXPECT_EQ(heddle_context_leave(context), HEDDLE_DONE);
}

TEST(Join, RefusesWhatItCannotUnderstand) {
  heddle_context context{};
  {
    const Variables variables{std::vector<std::pair<const char*, const char*>>{{"HEDDLE_SHM_RING_BYTES", "many"}}};
    expect_error(heddle_context_join(nullptr, &context), HEDDLE_ERR_CONFIG, "HEDDLE_SHM_RING_BYTES=\"many\"");
  }
  {
    const Variables variables{std::vector<std::pair<const char*, const char*>>{{"HEDDLE_MAX_WORKERS", "4294967297"}}};
    expect_error(heddle_context_join(nullptr, &context), HEDDLE_ERR_CONFIG,
                 "HEDDLE_MAX_WORKERS=\"4294967297\" is outside its range, 1-256");
  }
  {
    const Variables variables{std::vector<std::pair<const char*, const char*>>{{"HEDDLE_TRANSPORT", "pigeon"}}};
    expect_error(heddle_context_join(nullptr, &context), HEDDLE_ERR_CONFIG, "pigeon");
  }
  {
    const Variables variables{std::vector<std::pair<const char*, const char*>>{{"HEDDLE_WORKER_OPERATIONS", "3"}}};
    expect_error(heddle_context_join(nullptr, &context), HEDDLE_ERR_CONFIG,
                 "HEDDLE_WORKER_OPERATIONS=\"3\" is outside its range, 16-65536");
  }
  heddle_context_options options{sizeof options, "carrier", nullptr, {}, 0, nullptr};
  expect_error(heddle_context_join(&options, &context), HEDDLE_ERR_ARGUMENT, "carrier");
  options.size = 3;
  expect_error(heddle_context_join(&options, &context), HEDDLE_ERR_ARGUMENT, "size 3");
}

TEST(Join, UnknownVariablesAreNamed) {
  const Variables variables{std::vector<std::pair<const char*, const char*>>{{"HEDDLE_TRANPSORT", "shm"}}};
  testing::internal::CaptureStderr();
  {
    const Context context = Context::join();
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("HEDDLE_TRANPSORT"), std::string::npos);
}

TEST(Failure, OperationsToADeadRankEndWithPeerFailed) {
  const Job job(2, "loopback-messages");
  Context alive = job.join(0);
  Context dead = job.join(1);
  Worker worker = alive.open_worker();
  Worker unattended = dead.open_worker();
  const Region region = dead.alloc(64);
  const RemoteRegion remote = alive.unpack(region.pack());
  const Counter counter = alive.counter(worker);
  const heddle_completion completion = counter.completion();
  std::uint64_t value = 7;
  ASSERT_EQ(worker.put(bytes_of(value), remote.at(0), &completion), HEDDLE_POSTED);
  ASSERT_EQ(worker.put(bytes_of(value), remote.at(0)), HEDDLE_POSTED);
  check(heddle_inproc_fail(job.handle(), 1));
  EXPECT_EQ(worker.wait(counter, 1), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(worker.flush(1), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(worker.put(bytes_of(value), remote.at(0)), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(heddle_context_peer_status(alive.handle(), 1), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(worker.quiet(), HEDDLE_DONE);
}

TEST(Failure, WhoWaitsForAValueOrASignalOfADeadRankIsTold) {
  const Job job(2, "loopback-messages");
  Context alive = job.join(0);
  Context dead = job.join(1);
  Worker worker = alive.open_worker();
  Worker unattended = dead.open_worker();
  const Region region = dead.alloc(64);
  const RemoteRegion remote = alive.unpack(region.pack());
  const Counter counter = alive.counter_of_all(worker);
  const heddle_completion completion = counter.completion();
  const std::array<std::uint64_t, 4> source{1, 2, 3, 4};
  const heddle_strided shape{8, 2, 16, 16};
  ASSERT_EQ(
      worker.put_strided_signal(source.data(), remote.at(0), shape, {remote.at(56), 1, HEDDLE_SIGNAL_SET}, &completion),
      HEDDLE_POSTED);
  // It dies while this thread waits.
  std::thread killer([&, waits = this_thread()] {
    EXPECT_TRUE(await_asleep(waits));
    check(heddle_inproc_fail(job.handle(), 1));
  });
  std::uint64_t value = 0;
  EXPECT_EQ(worker.get_wait(writable_bytes_of(value), remote.at(0)), HEDDLE_ERR_PEER_FAILED) << heddle_last_error();
  killer.join();
  EXPECT_EQ(worker.wait(counter, 1), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(worker.fetch_atomic_wait(HEDDLE_ADD64, remote.at(0), {1, 0, &value}), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(worker.put_strided_signal(source.data(), remote.at(0), shape, {remote.at(56), 1, HEDDLE_SIGNAL_SET}),
            HEDDLE_ERR_PEER_FAILED);
}

TEST(Failure, ALargeMessageToADeadRankEnds) {
  const Job job(2, "shm");
  Context alive = job.join(0);
  Context dead = job.join(1);
  Worker worker = alive.open_worker();
  check(heddle_inproc_fail(job.handle(), 1));
  while (heddle_context_peer_status(alive.handle(), 1) == HEDDLE_DONE) worker.progress();
  worker.progress();
  const Counter counter = alive.counter();
  const heddle_completion completion = counter.completion();
  const std::vector<std::byte> large(1 << 20);
  ASSERT_EQ(worker.am({1, 0}, {1, 0, nullptr, large.data(), large.size()}, &completion), HEDDLE_POSTED);
  EXPECT_EQ(worker.wait(counter, 1, 5'000'000'000), HEDDLE_ERR_PEER_FAILED) << heddle_last_error();
  EXPECT_EQ(worker.quiet(), HEDDLE_DONE);
}

TEST(Wait, TimesOutWhileMessagesKeepComing) {
  const Context context = Context::join();
  Worker worker = context.open_worker();
  const Region region = context.alloc(8);
  context.register_am(
      1,
      [](const heddle_am_arrival* message, void*) {
        const heddle_am_message again{1, 0, nullptr, nullptr, 0};
        static_cast<void>(heddle_try_am(message->worker, message->source, &again, nullptr));
      },
      nullptr);
  ASSERT_EQ(worker.am({0, 0}, {1, 0, nullptr, nullptr, 0}), HEDDLE_DONE);
  EXPECT_EQ(worker.wait(region.memory<std::uint64_t>()[0], HEDDLE_EQ, 1, 10'000'000), HEDDLE_ERR_TIMEOUT);
  context.register_am(1, nullptr, nullptr);
}

TEST(Alignment, IsThatOfTheMemoryNotOfTheOffset) {
  const Context context = Context::join();
  Worker worker = context.open_worker();
  alignas(8) std::array<std::byte, 64> memory{};
  const Region region = context.register_memory(std::span(memory).subspan(4));
  const RemoteRegion remote = context.unpack(region.pack());
  expect_error(worker.try_atomic(HEDDLE_ADD64, remote.at(0), 1), HEDDLE_ERR_ALIGNMENT, "address");
  EXPECT_EQ(worker.try_atomic(HEDDLE_ADD32, remote.at(0), 1), HEDDLE_DONE);
  const std::uint64_t value = 1;
  const heddle_signal signal{remote.at(8), 1, HEDDLE_SIGNAL_SET};
  expect_error(worker.try_put_signal(bytes_of(value), remote.at(0), signal), HEDDLE_ERR_ALIGNMENT, "aligned");
}

TEST(Failure, AWorkerThatWasClosedOwesNoAnswers) {
  for (const char* transport : {"loopback-messages", "shm"}) {
    const Job job(2, transport);
    Context asks = job.join(0);
    Context owns = job.join(1);
    Worker worker = asks.open_worker();
    Worker gone = owns.open_worker();
    std::vector<std::uint64_t> words(8);
    const Region region = owns.register_memory(std::as_writable_bytes(std::span(words)));
    const RemoteRegion remote = asks.unpack(region.pack());
    ASSERT_EQ(worker.try_atomic(HEDDLE_ADD64, remote.at(0), 1), HEDDLE_POSTED) << transport;
    const std::vector<std::byte> large(100'000);
    const heddle_am_message message{1, 0, nullptr, large.data(), large.size()};
    ASSERT_EQ(worker.try_am({1, 0}, message), HEDDLE_POSTED) << transport;
    gone = {};
    EXPECT_EQ(worker.flush(1), HEDDLE_ERR_CANCELLED) << transport;
    EXPECT_EQ(worker.quiet(), HEDDLE_DONE) << transport;
    // All the ranks of a job leave together.
    std::thread other([&] { owns = {}; });
    worker = {};
    asks = {};
    other.join();
  }
}

TEST(Completions, LocalOnesNeedNoTarget) {
  const Variables short_ring(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_SHM_RING_BYTES", "32K"}});
  const Job job(2, "shm");
  Context sends = job.join(0);
  Context sleeps = job.join(1);
  Worker worker = sends.open_worker();
  Worker idle = sleeps.open_worker();
  const Counter counter = sends.counter(worker);
  const heddle_completion local = counter.completion(HEDDLE_WHEN_LOCAL);
  const std::vector<std::byte> large(20'000);  // in parts, all of which fit the ring
  const heddle_am_message message{1, 0, nullptr, large.data(), large.size()};
  ASSERT_EQ(worker.try_am({1, 0}, message, &local), HEDDLE_POSTED);
  EXPECT_EQ(worker.wait(counter, 1, 1'000'000'000), HEDDLE_DONE) << heddle_last_error();
  std::thread other([&] {
    idle = {};
    sleeps = {};
  });
  static_cast<void>(worker.quiet());  // answered, or told that the other worker was closed
  worker = {};
  sends = {};
  other.join();
}

TEST(Leave, FinishesABarrierThatTimedOut) {
  const Job job(2, "shm");
  Context first = job.join(0);
  Context second = job.join(1);
  EXPECT_EQ(heddle_context_barrier(first.handle(), {}, 1'000'000), HEDDLE_ERR_TIMEOUT);
  expect_error(heddle_inproc_close(job.handle()), HEDDLE_ERR_STATE, "still open");
  std::thread other([&] {
    second.barrier();
    second = {};
  });
  first = {};
  other.join();
}

TEST(Failure, DirectMemoryOfADeadRankIsClosed) {
  const Job job(2, "shm");
  Context alive = job.join(0);
  Context dead = job.join(1);
  Worker worker = alive.open_worker();
  const Region region = dead.alloc(64);
  const RemoteRegion remote = alive.unpack(region.pack());
  const std::uint64_t value = 7;
  ASSERT_EQ(worker.put(bytes_of(value), remote.at(0)), HEDDLE_DONE);
  check(heddle_inproc_fail(job.handle(), 1));
  EXPECT_EQ(worker.flush(1), HEDDLE_ERR_PEER_FAILED);
  worker.progress();
  EXPECT_EQ(worker.put(bytes_of(value), remote.at(0)), HEDDLE_ERR_PEER_FAILED);
}

}  // namespace
}  // namespace heddle::test::arguments_test
