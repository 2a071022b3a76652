// Memory runs out at every allocation in turn: no exception leaves a C function (it would end this
// program), every call returns a status, and posted operations still end.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "api/test_job.hpp"
#include "base/test_memory.hpp"

namespace heddle::test::exhausted_test {
namespace {

class ExhaustedEverywhere : public testing::TestWithParam<const char*> {};

TEST_P(ExhaustedEverywhere, OperationsEnd) {
  // Over a network a worker's first message is lost if its receiver has no memory for it. So over
  // networks the receiver has memory, and its thread has some.
  const bool lossy = std::string(GetParam()) == "ucx" || std::string(GetParam()) == "ofi";
  with_every_allocation_failing([lossy](long allocations) {
    const Job job(2, GetParam());
    Context origin = job.join(0);
    Context target = job.join(1);
    Worker worker = origin.open_worker();
    Worker peer = target.open_worker();
    int received = 0;
    target.register_am(1, [](const heddle_am_arrival*, void* arg) { ++*static_cast<int*>(arg); }, &received);
    std::vector<std::byte> memory(1 << 20);
    const std::vector<std::byte> local(1 << 20);
    Region region = target.register_memory(memory);
    RemoteRegion remote = origin.unpack(region.pack());
    int posted = 0;
    int ended = 0;
    {
      const Exhausted exhausted(allocations);
      const heddle_completion completion{
          [](void* arg, Status) { ++*static_cast<int*>(arg); }, &ended, {}, HEDDLE_WHEN_REMOTE};
      const auto count = [&posted](Status status) {
        if (status == HEDDLE_POSTED) ++posted;
      };
      count(worker.try_put(local, remote.at(0), &completion));
      count(worker.try_am({1, 0}, {1, 0, nullptr, local.data(), 100'000}, &completion));
      count(worker.try_am({1, 0}, {1, 0, nullptr, local.data(), 8}, &completion));
      count(worker.try_atomic(HEDDLE_ADD64, remote.at(64), 1, &completion));
      for (int i = 0; i < 50; ++i) count(worker.try_put(std::span(local).first(8), remote.at(0), &completion));
      for (int i = 0; i < 100; ++i) {
        static_cast<void>(worker.progress());
        if (!lossy) static_cast<void>(peer.progress());
      }
    }
    // There is memory again: accepted operations end.
    within_time([&] { return ended >= posted; },
                [&] {
                  static_cast<void>(worker.progress());
                  static_cast<void>(peer.progress());
                });
    ASSERT_EQ(ended, posted) << "with " << allocations << " allocations";
    remote = {};
    std::thread other([&] {
      peer = {};
      region = {};
      target = {};
    });
    worker = {};
    origin = {};
    other.join();
  });
}

std::string name_of(const testing::TestParamInfo<const char*>& test) {
  const std::string name = test.param;
  return name == "loopback-messages" ? "messages" : name;
}

// TEST_TRANSPORT=NAME: that one alone, as all_settings().
std::vector<const char*> transports() {
  if (const char* only = std::getenv("TEST_TRANSPORT")) return {only};
  return {"loopback", "loopback-messages", "shm"};
}

INSTANTIATE_TEST_SUITE_P(Transports, ExhaustedEverywhere, testing::ValuesIn(transports()), name_of);

TEST(Exhausted, OpeningAndClosingLeavesNothingBehind) {
  Context context = Context::join();
  const Region base = context.alloc(64);
  const std::vector<std::byte> packed = base.pack();
  with_every_allocation_failing([&](long allocations) {
    heddle_worker worker{};
    heddle_region region{};
    heddle_remote_region remote{};
    heddle_counter counter{};
    const Exhausted exhausted(allocations);
    const Status opened[] = {heddle_worker_open(context.handle(), nullptr, &worker),
                             heddle_region_alloc(context.handle(), 4096, &region),
                             heddle_region_unpack(context.handle(), packed.data(), packed.size(), &remote),
                             heddle_counter_create(context.handle(), nullptr, &counter)};
    for (const Status status : opened) {
      ASSERT_TRUE(status == HEDDLE_DONE || status == HEDDLE_ERR_NO_MEMORY) << heddle_status_name(status);
    }
    EXPECT_EQ(worker.id != 0, opened[0] == HEDDLE_DONE);
    EXPECT_EQ(region.id != 0, opened[1] == HEDDLE_DONE);
    EXPECT_EQ(remote.id != 0, opened[2] == HEDDLE_DONE);
    EXPECT_EQ(counter.id != 0, opened[3] == HEDDLE_DONE);
    allocations_left = -1;
    if (remote.id != 0) {
      EXPECT_EQ(heddle_remote_region_release(remote), HEDDLE_DONE);
    }
    if (region.id != 0) {
      EXPECT_EQ(heddle_region_release(region), HEDDLE_DONE);
    }
    if (counter.id != 0) {
      EXPECT_EQ(heddle_counter_free(counter), HEDDLE_DONE);
    }
    if (worker.id != 0) {
      EXPECT_EQ(heddle_worker_close(worker), HEDDLE_DONE);
    }
  });
}

TEST(Exhausted, JoiningFailsInGoodOrder) {
  with_every_allocation_failing([](long allocations) {
    heddle_context context{};
    const Exhausted exhausted(allocations);
    const Status status = heddle_context_join(nullptr, &context);
    allocations_left = -1;
    if (status == HEDDLE_DONE) {
      EXPECT_EQ(heddle_context_leave(context), HEDDLE_DONE);
    } else {
      EXPECT_EQ(status, HEDDLE_ERR_NO_MEMORY) << heddle_last_error();
    }
  });
}

}  // namespace
}  // namespace heddle::test::exhausted_test
