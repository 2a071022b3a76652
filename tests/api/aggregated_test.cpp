// Small messages that wait while the transport is busy leave as one packet. The other tests of the
// API run with aggregation as well (CMakeLists.txt); these tests check the differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "api/test_job.hpp"

namespace heddle::test::aggregated_test {
namespace {

constexpr std::uint64_t kMessages = 3000;
constexpr std::uint64_t kLongBytes = 3000;  // too long to leave with others

// A fabric that takes 64 messages at a time, and one that refuses most posts and reorders what it
// takes.
const std::vector<Setting>& busy_settings() {
  static const std::vector<Setting> settings = {
      {"slow_messages", "fault+loopback-messages", {{"HEDDLE_FAULT_LATENCY", "100us"}}},
      {"slow_shm", "fault+shm", {{"HEDDLE_FAULT_LATENCY", "100us"}}},
      {"refusing", "fault+loopback", {{"HEDDLE_FAULT_AGAIN", "90"}}},
      {"reordering",
       "fault+loopback-messages",
       {{"HEDDLE_FAULT_DELAY", "5"}, {"HEDDLE_FAULT_REORDER", "1"}, {"HEDDLE_FAULT_AGAIN", "60"}}},
  };
  return settings;
}

class Aggregation : public testing::TestWithParam<Setting> {
 protected:
  // Two ranks, with aggregation or without.
  void run(const char* on, const std::function<void(Context&, Worker&)>& body) {
    auto all = GetParam().variables;
    all.emplace_back("HEDDLE_AGGREGATION", on);
    const Variables variables(all);
    Job(2, GetParam().transport).run([&](Context& context, Worker& worker) {
      body(context, worker);
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    });
  }
};

// The arrivals that handlers have seen. Relaxed: in some settings handlers run on another thread,
// and the rank waits for the number alone.
struct Seen {
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> wrong{0};
};

// The header is the message's number, and so is every byte of its payload.
void take(const heddle_am_arrival* arrival, void* arg) {
  auto& seen = *static_cast<Seen*>(arg);
  std::uint64_t number = 0;
  std::memcpy(&number, arrival->header, sizeof number);
  const auto* payload = static_cast<const unsigned char*>(arrival->payload);
  bool right = arrival->header_bytes == sizeof number && arrival->source.worker == 0 &&
               reinterpret_cast<std::uintptr_t>(arrival->header) % 8 == 0 &&
               reinterpret_cast<std::uintptr_t>(payload) % 8 == 0;
  for (std::size_t i = 0; i < arrival->payload_bytes; ++i)
    right = right && payload[i] == static_cast<unsigned char>(number);
  if (!right) seen.wrong.fetch_add(1, std::memory_order_relaxed);
  seen.count.fetch_add(1, std::memory_order_relaxed);
}

// Counts of ended operations.
struct Ends {
  std::uint64_t done = 0;
  std::uint64_t failed = 0;
  static void tell(void* arg, Status status) {
    auto* self = static_cast<Ends*>(arg);
    ++(status == HEDDLE_DONE ? self->done : self->failed);
  }
  heddle_completion completion(heddle_when when) { return {&tell, this, {}, when}; }
};

std::uint64_t length_of(std::uint64_t number) {
  return number % 50 == 0 ? kLongBytes : number * 7 % 100;
}

// One message; its source is overwritten as soon as it may be.
struct Source {
  Ends* ends = nullptr;
  std::vector<unsigned char> bytes;
  static void tell(void* arg, Status status) {
    auto* self = static_cast<Source*>(arg);
    std::fill(self->bytes.begin(), self->bytes.end(), static_cast<unsigned char>(0xEE));
    Ends::tell(self->ends, status);
  }
};

// Sends numbers 0 … kMessages-1 of both classes, and waits for their completions.
void send_all(Worker& worker, std::uint32_t peer, Ends* ends) {
  std::vector<Source> sources(kMessages);
  std::uint64_t posted = 0;
  for (std::uint64_t number = 0; number < kMessages; ++number) {
    Source& source = sources[number];
    source.ends = ends;
    source.bytes.assign(length_of(number), static_cast<unsigned char>(number));
    const std::uint32_t handler = number % 3 == 0 ? HEDDLE_AM_USER + 2U : 2U;
    const heddle_am_message message{handler, sizeof number, &number, source.bytes.data(), source.bytes.size()};
    const heddle_completion completion{
        &Source::tell, &source, {}, number % 2 == 0 ? HEDDLE_WHEN_LOCAL : HEDDLE_WHEN_REMOTE};
    const Status status = worker.am({peer, 0}, message, number % 5 == 0 ? nullptr : &completion);
    ASSERT_GE(status, 0) << heddle_last_error();
    if (status == HEDDLE_DONE) Source::tell(&source, HEDDLE_DONE);
    if (status == HEDDLE_DONE || number % 5 != 0) ++posted;
  }
  while (ends->done + ends->failed < posted) turn(worker);
  EXPECT_EQ(ends->done, posted);
  ASSERT_EQ(worker.quiet(), HEDDLE_DONE);  // those without a completion
}

TEST_P(Aggregation, MessagesArriveOnceAndWholeWithTheirCompletions) {
  for (const char* on : {"1", "0"}) {
    std::atomic<std::uint64_t> aggregated{0};
    std::atomic<std::uint64_t> packets{0};
    run(on, [&](Context& context, Worker& worker) {
      Seen seen;
      context.register_am(2, take, &seen);
      context.register_am(HEDDLE_AM_USER + 2, take, &seen);
      context.barrier(worker);
      if (context.rank() == 0) {
        Ends ends;
        send_all(worker, 1, &ends);
      } else {
        while (seen.count.load(std::memory_order_relaxed) < kMessages) {
          ASSERT_GE(heddle_run_tasks(worker.handle(), 100, 0), 0) << heddle_last_error();
          std::this_thread::yield();
        }
        EXPECT_EQ(seen.count.load(), kMessages);
        EXPECT_EQ(seen.wrong.load(), 0U);
      }
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
      const heddle_worker_stats stats = worker.stats();
      EXPECT_EQ(stats.dropped, 0U);
      aggregated += stats.aggregated;
      packets += stats.packets;
      context.barrier(worker);
    });
    if (*on == '1') {
      EXPECT_GT(packets.load(), 0U) << "nothing waited: the transport of this test is not busy";
      EXPECT_GE(aggregated.load(), 2 * packets.load());
    } else {
      EXPECT_EQ(aggregated.load() + packets.load(), 0U);
    }
  }
}

TEST_P(Aggregation, TaggedMessagesKeepTheirOrder) {
  run("1", [](Context& context, Worker& worker) {
    constexpr std::uint64_t kAll = 2000;
    if (context.rank() == 0) {
      std::vector<std::vector<std::uint64_t>> sources(kAll);
      for (std::uint64_t number = 0; number < kAll; ++number) {
        // Short ones, long ones that travel alone, and offers.
        const std::uint64_t words = number % 40 == 0 ? 400 : number % 101 == 0 ? 20'000 : 1 + number % 9;
        sources[number].assign(words, number);
        const Status status = worker.send({1, 0}, 5, std::as_bytes(std::span(sources[number])));
        ASSERT_GE(status, 0) << heddle_last_error();
      }
      ASSERT_EQ(worker.flush(1), HEDDLE_DONE);
      EXPECT_GT(worker.stats().packets, 0U);
    } else {
      std::vector<std::uint64_t> room(20'000);
      for (std::uint64_t number = 0; number < kAll; ++number) {
        heddle_receive receive;
        ASSERT_GE(worker.recv({{0, 0}, 5, UINT64_MAX}, std::as_writable_bytes(std::span(room)), &receive), 0);
        ASSERT_EQ(worker.wait(receive), HEDDLE_DONE) << heddle_last_error();
        ASSERT_EQ(room[0], number);
        ASSERT_EQ(room[receive.bytes / 8 - 1], number);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Busy, Aggregation, testing::ValuesIn(busy_settings()), name_of);

heddle_worker_stats burst(heddle_choice choice, const char* variable) {
  const Variables variables({{"HEDDLE_FAULT_LATENCY", "50us"}, {"HEDDLE_AGGREGATION", variable}});
  Job job(1, "fault+loopback");
  Context context = job.join(0);
  heddle_worker_options options{};
  options.size = sizeof options;
  options.aggregation = choice;
  heddle_worker handle{};
  EXPECT_EQ(heddle_worker_open(context.handle(), &options, &handle), HEDDLE_DONE) << heddle_last_error();
  Worker worker(handle);
  Seen seen;
  context.register_am(2, take, &seen);
  for (std::uint64_t number = 0; number < 500; ++number) {
    EXPECT_GE(worker.am({0, 0}, {2, sizeof number, &number, nullptr, 0}), 0) << heddle_last_error();
  }
  while (seen.count.load() < 500) turn(worker);
  EXPECT_EQ(seen.wrong.load(), 0U);
  EXPECT_EQ(worker.quiet(), HEDDLE_DONE);
  return worker.stats();
}

TEST(AggregationChoice, TheWorkersOptionsComeBeforeTheVariable) {
  EXPECT_GT(burst(HEDDLE_CHOICE_DEFAULT, "1").packets, 0U);
  EXPECT_EQ(burst(HEDDLE_CHOICE_DEFAULT, "0").packets, 0U);
  EXPECT_GT(burst(HEDDLE_CHOICE_ON, "0").packets, 0U);
  EXPECT_EQ(burst(HEDDLE_CHOICE_OFF, "1").packets, 0U);
}

TEST(AggregationChoice, WhatIsNoChoiceIsRefused) {
  const Context context = Context::join();
  heddle_worker_options options{};
  options.size = sizeof options;
  options.aggregation = static_cast<heddle_choice>(3);
  heddle_worker handle{};
  EXPECT_EQ(heddle_worker_open(context.handle(), &options, &handle), HEDDLE_ERR_ARGUMENT);
  EXPECT_NE(std::string(heddle_last_error()).find("aggregation"), std::string::npos);
}

// Messages that wait for the transport when their peer dies: the end of each is reported once.
TEST(AggregationFailure, WhatWaitsForADeadPeerEnds) {
  const Variables variables({{"HEDDLE_FAULT_LATENCY", "200us"}, {"HEDDLE_AGGREGATION", "1"}});
  const Job job(2, "fault+loopback-messages");
  Context context = job.join(0);
  Worker worker = context.open_worker();
  Context other = job.join(1);
  const Worker dying = other.open_worker();
  Ends ends;
  const heddle_completion completion = ends.completion(HEDDLE_WHEN_REMOTE);
  std::uint64_t posted = 0;
  for (std::uint64_t number = 0;; ++number) {
    const Status status = worker.try_am({1, 0}, {2, sizeof number, &number, nullptr, 0}, &completion);
    if (status == HEDDLE_AGAIN) break;
    ASSERT_GE(status, 0) << heddle_last_error();
    if (status == HEDDLE_POSTED) ++posted;
  }
  ASSERT_GT(posted, 64U) << "none of them waits";
  check(heddle_inproc_fail(job.handle(), 1));
  ASSERT_TRUE(within_time([&] { return ends.done + ends.failed >= posted; }, [&] { turn(worker); }));
  EXPECT_EQ(ends.done + ends.failed, posted);
  EXPECT_GT(ends.failed, 0U);
  EXPECT_EQ(worker.quiet(), HEDDLE_DONE) << "all were told";
  std::thread leaving([&] { other = {}; });
  worker = {};
  context = {};
  leaving.join();
}

}  // namespace
}  // namespace heddle::test::aggregated_test
