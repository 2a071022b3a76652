#include "harness/channel.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/test_waits.hpp"
#include "harness/session.hpp"

namespace heddle::bench::harness {
namespace {

// Both ranks as threads, each with a mapping of its own, as two processes would have.
template <class Work>
void both(Work&& work) {
  auto first = Channel::create(0);
  ASSERT_TRUE(first);
  auto second = Channel::open(first->path());
  ASSERT_TRUE(second);
  second->set_rank(1);
  std::thread other([&] { work(*second); });
  work(*first);
  other.join();
}

TEST(Channel, NobodyPassesABarrierAlone) {
  std::atomic<int> arrived{0};
  std::atomic<bool> early{false};
  both([&](Channel& channel) {
    for (int round = 1; round <= 2000; ++round) {
      arrived.fetch_add(1);
      if (round % 2 == 0) {
        channel.barrier();
      } else {
        channel.barrier_while([] { sched_yield(); });
      }
      if (arrived.load() < 2 * round) early.store(true);
      channel.barrier();
    }
  });
  EXPECT_FALSE(early.load());
  EXPECT_EQ(arrived.load(), 4000);
}

TEST(Channel, WhoSleepsInABarrierIsWoken) {
  std::atomic<pid_t> threads[2] = {};
  both([&](Channel& channel) {
    threads[channel.rank()].store(test::this_thread());
    channel.barrier();
    for (std::uint32_t round = 0; round < 5; ++round) {
      if (channel.rank() == round % 2) {
        EXPECT_TRUE(test::await_asleep(threads[1 - channel.rank()].load()));
      }
      channel.barrier();
    }
  });
}

TEST(Channel, RankZerosNumberReachesBoth) {
  both([&](Channel& channel) {
    for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(channel.share(channel.rank() == 0 ? i * i : 12345), i * i);
  });
}

TEST(Channel, BothGetTheSameP) {
  double p[2] = {};
  both([&](Channel& channel) { p[channel.rank()] = channel.ping_pong_ns(); });
  EXPECT_GT(p[0], 0);
  EXPECT_EQ(p[0], p[1]);
}

TEST(Channel, RetryBudgetIsSpentOnce) {
  auto channel = Channel::create(100);
  ASSERT_TRUE(channel);
  EXPECT_TRUE(channel->spend_retry_ns(60));
  EXPECT_FALSE(channel->spend_retry_ns(60));
  channel->reset();  // between participants: the budget is the session's
  EXPECT_TRUE(channel->spend_retry_ns(40));
  EXPECT_FALSE(channel->spend_retry_ns(1));
}

TEST(Channel, WhatIsNoChannelIsRefused) {
  EXPECT_FALSE(Channel::open("/proc/self/exe"));
  EXPECT_FALSE(Channel::open("/nonexistent"));
}

TEST(Cores, ListsSurviveAndNonsenseIsNoCore) {
  EXPECT_EQ(Cores::parse("0,2,1,3").text(), "0,2,1,3");
  EXPECT_EQ(Cores::parse("").count(), 0U);
  EXPECT_EQ(Cores::parse("0,x").count(), 0U);
  EXPECT_EQ(Cores::parse("0,").count(), 0U);
  EXPECT_EQ(Cores::parse("-1").count(), 0U);
  EXPECT_GE(Cores::allowed().count(), 1U);
}

// In processes of their own: two ranks measure, rank 0 gets all samples, and each is labelled.
TEST(Session, MeasuresInTwoProcesses) {
  auto channel = Channel::create(0);
  ASSERT_TRUE(channel);
  Options options;
  options.repeat = 3;
  options.target_ns = 200'000;
  std::vector<Sample> samples;
  const int status = run_group(*channel, 2, [&](std::uint32_t rank) {
    Session session(*channel, options, [&](const Sample& sample) { samples.push_back(sample); });
    Figure figure;
    figure.key.bench = "rate";
    figure.key.metric = "rate";
    std::uint64_t least = ~std::uint64_t{0};
    session.measure(figure, [&](std::uint64_t n) {
      least = n;
      // Each iteration "takes" 100 ns, so 200 µs are about 2000 of them.
      return harness::Run{static_cast<double>(n) * 100};
    });
    if (rank == 1 && !samples.empty()) return 3;
    return least > 1000 && least < 4000 ? 0 : 4;
  });
  EXPECT_EQ(status, 0);
  ASSERT_EQ(samples.size(), 3U);
  for (const Sample& sample : samples) {
    EXPECT_NEAR(sample.value, 10, 1e-9);  // one per 100 ns
    EXPECT_GT(sample.p_ns, 0);
    EXPECT_EQ(sample.key.unit, "Mop/s");
  }
}

// --busy: another process computes during each measurement, and is told to sleep afterwards.
TEST(Session, OthersComputeBesideEachMeasurement) {
  auto channel = Channel::create(0);
  ASSERT_TRUE(channel);
  const pid_t other = fork();
  ASSERT_GE(other, 0);
  if (other == 0) channel->compute_when_told([&] { channel->flag(0).fetch_add(1); });
  Options options;
  options.repeat = 1;
  options.busy = 1;
  const int status = run_group(*channel, 2, [&](std::uint32_t) {
    Session session(*channel, options, [](const Sample&) {});
    Figure figure;
    figure.key.metric = "rate";
    figure.fixed = 1;
    bool computed = true;
    session.measure(figure, [&](std::uint64_t) {
      const std::uint64_t before = channel->flag(0).load();
      computed = computed && test::within_time([&] { return channel->flag(0).load() > before; });
      channel->barrier();
      return harness::Run{1};
    });
    return computed ? 0 : 3;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(channel->memory().busy.load(), 0U);
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
}

}  // namespace
}  // namespace heddle::bench::harness
