// Tagged messages of several threads on one worker, in every sharing mode that permits it.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <tuple>

#include "api/test_job.hpp"
#include "base/random.hpp"

namespace heddle::test::tagged_sharing_test {
namespace {

using Parameter = std::tuple<const char*, Setting>;

constexpr std::uint32_t kThreads = 4;
constexpr std::int64_t kLong = 120'000'000'000;

class TaggedSharing : public testing::TestWithParam<Parameter> {
 protected:
  // Runs body(context, worker, thread) in each of several threads of two ranks.
  void run(const std::function<void(Context&, Worker&, std::uint32_t)>& body) {
    const auto& [sharing, setting] = GetParam();
    auto all = setting.variables;
    all.emplace_back("HEDDLE_SHARING", sharing);
    all.emplace_back("HEDDLE_TAG_CREDIT_BYTES", "64K");
    const Variables variables(all);
    Job(2, setting.transport).run([&](Context& context, Worker& worker) {
      std::vector<std::thread> threads;
      for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] { body(context, worker, thread); });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(worker.quiet(), HEDDLE_DONE) << heddle_last_error();
      context.barrier(worker);
    });
  }
};

std::size_t size_of(std::uint64_t thread, std::uint64_t i) {
  base::Random random(thread * 1000 + i);
  return 8 + (random.below(10) == 0 ? 7'000 + random.below(30'000) : random.below(200));
}

void fill(std::vector<std::byte>& data, std::uint64_t number) {
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(number + i);
}

// Thread t talks with thread t of the other rank, by its tag: in order, whole, and no thread gets a
// message of another.
TEST_P(TaggedSharing, EveryThreadGetsItsMessagesInOrder) {
  run([](Context& context, Worker& worker, std::uint32_t thread) {
    const std::uint32_t peer = 1 - context.rank();
    const heddle_wanted wanted{{peer, 0}, thread, UINT64_MAX};
    const Counter counter = context.counter();
    std::uint64_t raised = 0;
    for (std::uint64_t i = 0; i < 150; ++i) {
      std::vector<std::byte> out(size_of(thread, i));
      std::vector<std::byte> in(out.size());
      std::vector<std::byte> expected(out.size());
      fill(out, i);
      fill(expected, i);
      heddle_receive receive;
      const bool early = i % 2 == 0;
      const heddle_completion completion = counter.completion();
      if (early) {
        ASSERT_GE(worker.recv(wanted, in, &receive), 0) << heddle_last_error();
      }
      const Status sent = worker.send({peer, 0}, thread, out, &completion);
      ASSERT_GE(sent, 0) << heddle_last_error();
      if (!early) {
        ASSERT_GE(worker.recv(wanted, in, &receive), 0) << heddle_last_error();
      }
      ASSERT_EQ(worker.wait(receive, kLong), HEDDLE_DONE) << heddle_last_error();
      ASSERT_EQ(receive.tag, thread);
      ASSERT_EQ(in, expected) << "message " << i << " of thread " << thread;
      if (sent == HEDDLE_POSTED) {
        ASSERT_EQ(worker.wait(counter, ++raised, kLong), HEDDLE_DONE) << heddle_last_error();
      }
    }
  });
}

// All threads receive what any thread sends, some of the receives are cancelled: every message is
// received once.
TEST_P(TaggedSharing, CancelledReceivesLoseNoMessages) {
  struct Sum {
    std::atomic<std::uint64_t> received{0};
    std::atomic<std::uint64_t> sum{0};
  };
  std::array<Sum, 2> sums;
  constexpr std::uint64_t kEach = 150;
  run([&sums](Context& context, Worker& worker, std::uint32_t thread) {
    const std::uint32_t peer = 1 - context.rank();
    Sum& sum = sums.at(context.rank());
    std::uint64_t sent = 0;
    while (sent < kEach || sum.received < kThreads * kEach) {
      std::uint64_t value = thread * kEach + sent;
      if (sent < kEach) {
        const Status status = worker.try_send({peer, 0}, 1, bytes_of(value));
        ASSERT_GE(status, 0) << heddle_last_error();
        if (status == HEDDLE_POSTED) {
          ASSERT_EQ(worker.flush(peer), HEDDLE_DONE);
        }
        if (status != HEDDLE_AGAIN) ++sent;
      }
      std::uint64_t room = 0;
      heddle_receive receive;
      ASSERT_GE(worker.recv({{HEDDLE_ANY, HEDDLE_ANY}, 0, 0}, writable_bytes_of(room), &receive), 0);
      for (int i = 0; i < 3; ++i) turn(worker);
      ASSERT_GE(worker.cancel(&receive), 0);
      const Status status = worker.wait(receive, kLong);
      if (status == HEDDLE_ERR_CANCELLED) continue;
      ASSERT_EQ(status, HEDDLE_DONE) << heddle_last_error();
      sum.sum += room;
      ++sum.received;
    }
  });
  constexpr std::uint64_t kAll = kThreads * kEach;
  for (const Sum& sum : sums) {
    EXPECT_EQ(sum.received, kAll);
    EXPECT_EQ(sum.sum, kAll * (kAll - 1) / 2);
  }
}

std::vector<Setting> few_settings() {
  std::vector<Setting> chosen;
  for (const Setting& setting : all_settings()) {
    const std::string name = setting.name;
    if (name == "shm" || name == "loopback_messages" || name == "fault_loopback" || name == "given") {
      chosen.push_back(setting);
    }
  }
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(Modes, TaggedSharing,
                         testing::Combine(testing::ValuesIn(names_of(shared_modes())),
                                          testing::ValuesIn(few_settings())),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param).name;
                         });

}  // namespace
}  // namespace heddle::test::tagged_sharing_test
