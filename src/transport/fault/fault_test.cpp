// Tests that the decorator refuses, cuts, delays and reorders, the same way for the same seed. The
// conformance suite checks that it keeps the contract.
#include "transport/fault/fault.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "bootstrap/inproc/inproc.hpp"
#include "transport/loopback/loopback.hpp"

namespace heddle::transport::fault::fault_test {
namespace {

using Overrides = base::Config::Overrides;

Overrides only(const std::string& fault, const std::string& value) {
  return {{"HEDDLE_FAULT", fault + "=" + value}};
}

// Rank 0 of a job of one, over the loopback transport.
class Solo {
 public:
  explicit Solo(const Overrides& overrides, std::uint32_t seed_rank = 0) : job_(1) {
    auto config = base::Config::read(overrides);
    auto bootstrap = bootstrap::inproc::open(job_, 0);
    EXPECT_TRUE(config.ok() && bootstrap.ok()) << base::last_message();
    environment_.config = *config;
    environment_.clock = &clock_;
    bootstrap_ = std::move(*bootstrap);
    auto inner = loopback::open(*bootstrap_, environment_);
    EXPECT_TRUE(inner.ok()) << base::last_message();
    auto decorated = decorate(std::move(*inner), seed_rank, environment_);
    status = decorated.status();
    if (!decorated) return;
    transport = std::move(*decorated);
    worker = std::move(*transport->open_worker(0));
  }
  ~Solo() {
    worker.reset();
    transport.reset();
  }
  void advance_ns(std::uint64_t by) { clock_.advance_ns(by); }
  Solo(const Solo&) = delete;
  Solo& operator=(const Solo&) = delete;

  // Posts `count` messages to this rank itself, numbered from `first`; how many were accepted.
  std::size_t post(std::uint32_t first, std::size_t count) {
    std::vector<Command> batch(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      batch[i].immediate = first + i;
      batch[i].token = first + i + 1;
    }
    return worker->post(batch);
  }

  base::Status status = HEDDLE_DONE;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<TransportWorker> worker;

 private:
  base::ManualClock clock_;
  bootstrap::inproc::ThreadJob job_;
  base::Environment environment_;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;
};

// Everything that a fixed series of calls returns.
std::vector<std::uint64_t> history(const Overrides& overrides, std::uint32_t seed_rank = 0) {
  Solo solo(overrides, seed_rank);
  std::vector<std::uint64_t> seen;
  std::uint32_t next = 0;
  for (std::uint32_t step = 0; step < 600; ++step) {
    const std::size_t accepted = solo.post(next, 1 + step % 5);
    next += static_cast<std::uint32_t>(accepted);
    seen.push_back(accepted);
    std::array<Completion, 6> events;
    const std::size_t count = solo.worker->poll(events);
    seen.push_back(count);
    for (const Completion& event : std::span(events).first(count)) {
      seen.push_back(static_cast<std::uint64_t>(event.event) << 60 | event.token << 30 | event.immediate);
    }
  }
  return seen;
}

Overrides everything(const char* seed) {
  return {{"HEDDLE_FAULT", std::string("again=30,delay=6,reorder=1,seed=") + seed}};
}

TEST(Fault, SameSeedAndSameCallsGiveTheSameBehaviour) {
  for (const char* seed : {"1", "2", "4000000000"}) EXPECT_EQ(history(everything(seed)), history(everything(seed)));
}

TEST(Fault, SeedsAndRanksDiffer) {
  EXPECT_NE(history(everything("1")), history(everything("2")));
  EXPECT_NE(history(everything("1"), 0), history(everything("1"), 1));
}

TEST(Fault, NothingSetChangesNothing) {
  Solo solo((Overrides()));
  EXPECT_EQ(std::string(solo.transport->capabilities().name), "fault+loopback");
  EXPECT_TRUE(solo.transport->capabilities().ordered_messages);
  EXPECT_EQ(solo.post(0, 50), 50U);
  std::array<Completion, 64> events;
  ASSERT_EQ(solo.worker->poll(events), 50U);
  for (std::uint32_t i = 0; i < 50; ++i) EXPECT_EQ(events[i].immediate, i);
}

// The inner transport would accept all posts. There are whole refusals, cut batches, storms, and
// about the percentage asked for.
TEST(Fault, RefusalsComeInAllKinds) {
  constexpr int kPosts = 40'000;
  for (const std::uint64_t percent : {20U, 60U, 95U}) {
    Solo solo(only("again", std::to_string(percent)));
    int refused = 0;
    int cut = 0;
    int series = 0;
    int longest = 0;
    for (int i = 0; i < kPosts; ++i) {
      const std::size_t accepted = solo.post(0, 4);
      refused += accepted < 4 ? 1 : 0;
      cut += accepted > 0 && accepted < 4 ? 1 : 0;
      series = accepted == 0 ? series + 1 : 0;
      longest = std::max(longest, series);
      std::array<Completion, 8> events;
      EXPECT_EQ(solo.worker->poll(events), accepted);
    }
    EXPECT_GT(cut, 0) << percent;
    EXPECT_GE(longest, 40) << percent << ": no storm";
    const double share = 100.0 * refused / kPosts;
    EXPECT_NEAR(share, static_cast<double>(percent), 6.0);
  }
}

// Accepted commands arrive late, but at the latest after both holds: of the command, and of the
// arrival.
TEST(Fault, DelaysHappenAndEnd) {
  constexpr int kDelay = 10;
  Solo solo(only("delay", std::to_string(kDelay)));
  int late = 0;
  for (std::uint32_t n = 0; n < 300; ++n) {
    ASSERT_EQ(solo.post(n, 1), 1U);
    int polls = 0;
    for (bool arrived = false; !arrived; ++polls) {
      ASSERT_LE(polls, 3 * kDelay + 3);
      std::array<Completion, 4> events;
      const std::size_t count = solo.worker->poll(events);
      for (const Completion& event : std::span(events).first(count)) arrived |= event.event == Event::message;
    }
    late += polls > 1 ? 1 : 0;
  }
  EXPECT_GT(late, 100);
}

// A message arrives exactly after the latency, neither before nor later; its completion comes after
// the latency once more.
TEST(Fault, LatencyIsATimeOnEachWay) {
  Solo solo(only("latency", "1us"));
  EXPECT_FALSE(solo.transport->capabilities().direct);
  std::array<Completion, 8> events;
  const auto seen = [&](Event event) {
    const std::size_t count = solo.worker->poll(events);
    return std::count_if(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(count),
                         [&](const Completion& one) { return one.event == event; });
  };
  for (std::uint32_t n = 0; n < 50; ++n) {
    ASSERT_EQ(solo.post(n, 1), 1U);
    for (int i = 0; i < 5; ++i) ASSERT_EQ(solo.worker->poll(events), 0U) << "polls are no time";
    solo.advance_ns(999);
    ASSERT_EQ(solo.worker->poll(events), 0U);
    solo.advance_ns(1);
    ASSERT_EQ(seen(Event::message), 1);
    ASSERT_EQ(solo.post(1000 + n, 1), 1U);
    solo.advance_ns(999);
    ASSERT_EQ(solo.worker->poll(events), 0U) << "neither the first one's end nor the second message";
    solo.advance_ns(1);
    ASSERT_EQ(solo.worker->poll(events), 2U);
    EXPECT_EQ(events[0].event, Event::done);
    EXPECT_EQ(events[0].token, n + 1U);
    EXPECT_EQ(events[1].event, Event::message);
    EXPECT_EQ(events[1].immediate, 1000 + n);
    solo.advance_ns(1000);
    ASSERT_EQ(seen(Event::done), 1);
  }
}

// Completions that are on their way back do not delay arrivals.
TEST(Fault, ArrivalsPassEndsUnderLatency) {
  Solo solo(only("latency", "1us"));
  ASSERT_EQ(solo.post(0, 3), 3U);
  solo.advance_ns(600);
  ASSERT_EQ(solo.post(3, 3), 3U);
  solo.advance_ns(400);
  std::array<Completion, 16> events;
  ASSERT_EQ(solo.worker->poll(events), 3U);
  solo.advance_ns(600);
  ASSERT_EQ(solo.worker->poll(events), 3U);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events[i].event, Event::message);
    EXPECT_EQ(events[i].immediate, 3 + i);
  }
  EXPECT_FALSE(solo.worker->arm()) << "who sleeps now would never hear of the ends";
  solo.advance_ns(1000);
  EXPECT_EQ(solo.worker->poll(events), 6U);
  EXPECT_TRUE(solo.worker->arm());
}

TEST(Fault, ReorderingIsSaidAndDone) {
  Solo solo(only("reorder", "1"));
  EXPECT_FALSE(solo.transport->capabilities().ordered_messages);
  std::vector<std::uint32_t> order;
  std::uint32_t next = 0;
  while (order.size() < 400) {
    next += static_cast<std::uint32_t>(solo.post(next, 5));
    std::array<Completion, 8> events;
    const std::size_t count = solo.worker->poll(events);
    for (const Completion& event : std::span(events).first(count)) {
      if (event.event == Event::message) order.push_back(event.immediate);
    }
  }
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

}  // namespace
}  // namespace heddle::transport::fault::fault_test
