// The channel between the processes of a participant, and the sessions that they measure in.
#include "harness/session.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/test_support.hpp"

namespace heddle::bench::harness::bench_session_test {
namespace {

// Processes as threads, each with a mapping of its own.
template <class Work>
void as_processes(std::uint32_t size, Work&& work) {
  auto channel = Channel::create(0);
  ASSERT_TRUE(channel);
  std::vector<std::thread> processes;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    processes.emplace_back([&, rank] {
      auto own = Channel::open(channel->path());
      ASSERT_TRUE(own);
      own->set_rank(rank, size);
      work(*own);
    });
  }
  for (std::thread& process : processes) process.join();
}

BenchOptions short_options(std::uint32_t repeat) {
  BenchOptions options;
  options.repeat = repeat;
  options.target_ns = 200'000;
  return options;
}

Figure figure(const char* op, const char* metric) {
  Figure out;
  out.key.op = op;
  out.key.metric = metric;
  return out;
}

// Rank 0's samples, which alone has any.
template <class Work>
std::vector<Sample> measure(std::uint32_t size, const BenchOptions& options, Work&& work) {
  std::vector<Sample> samples;
  as_processes(size, [&](Channel& channel) {
    BenchSession session(channel, options, [&](const Sample& sample) {
      EXPECT_EQ(channel.rank(), 0U);
      samples.push_back(sample);
    });
    work(session);
  });
  return samples;
}

TEST(Channel, NobodyPassesABarrierAlone) {
  std::atomic<int> arrived{0};
  std::atomic<bool> early{false};
  as_processes(2, [&](Channel& channel) {
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
}

TEST(Channel, WhoSleepsInABarrierIsWoken) {
  std::atomic<pid_t> threads[2] = {};
  as_processes(2, [&](Channel& channel) {
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

TEST(Channel, NumbersAndPReachAll) {
  double p[2] = {};
  as_processes(2, [&](Channel& channel) {
    for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(channel.share(channel.rank() == 0 ? i * i : 12345), i * i);
    p[channel.rank()] = channel.ping_pong_ns();
  });
  EXPECT_GT(p[0], 0);
  EXPECT_EQ(p[0], p[1]);
  as_processes(1, [](Channel& channel) { EXPECT_EQ(channel.ping_pong_ns(), 0) << "nobody answers"; });
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

TEST(Channel, WhatIsNoChannelIsRejected) {
  EXPECT_FALSE(Channel::open("/proc/self/exe"));
  EXPECT_FALSE(Channel::open("/nonexistent"));
}

TEST(Cores, ListsSurviveAndNonsenseIsNoCore) {
  EXPECT_EQ(Cores::parse("0,2,1,3").text(), "0,2,1,3");
  for (const char* none : {"", "0,x", "0,", "-1"}) EXPECT_EQ(Cores::parse(none).count(), 0U) << none;
  EXPECT_GE(Cores::allowed().count(), 1U);
}

// In processes of their own, with another that computes during each measurement (--busy), and is
// told to sleep afterwards.
TEST(BenchSession, MeasuresInTwoProcesses) {
  auto channel = Channel::create(0);
  ASSERT_TRUE(channel);
  const pid_t other = fork();
  ASSERT_GE(other, 0);
  if (other == 0) channel->compute_when_told([&] { channel->flag(0).fetch_add(1); });
  BenchOptions options = short_options(3);
  options.busy = 1;
  std::vector<Sample> samples;
  const int status = run_group(*channel, 2, [&](std::uint32_t rank) {
    BenchSession session(*channel, options, [&](const Sample& sample) { samples.push_back(sample); });
    std::uint64_t least = ~std::uint64_t{0};
    bool computed = true;
    session.measure(figure("put", "rate"), [&](std::uint64_t n) {
      least = n;
      const std::uint64_t before = channel->flag(0).load();
      computed = computed && test::within_time([&] { return channel->flag(0).load() > before; });
      channel->barrier();
      // Each iteration "takes" 100 ns, so 200 µs are about 2000 of them.
      return harness::Run{static_cast<double>(n) * 100};
    });
    return computed && least > 1000 && least < 4000 && (rank == 0 || samples.empty()) ? 0 : 3;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(channel->memory().busy.load(), 0U);
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  ASSERT_EQ(samples.size(), 3U);
  for (const Sample& sample : samples) {
    EXPECT_NEAR(sample.value, 10, 1e-9);  // one per 100 ns
    EXPECT_GT(sample.p_ns, 0);
    EXPECT_EQ(sample.key.unit, "Mop/s");
  }
}

TEST(BenchSession, OneBodyMayGiveSeveralFigures) {
  const std::vector<Sample> samples = measure(2, short_options(2), [](BenchSession& session) {
    const std::array<Figure, 3> figures = {figure("a", "cycles"), figure("b", "callbacks"), figure("c", "latency")};
    session.measure(figures,
                    [&](std::uint64_t n) { return harness::Run{1000.0 * static_cast<double>(n), true, {7, 8}}; });
  });
  ASSERT_EQ(samples.size(), 6U) << "three in each of two repeats";
  for (std::size_t i = 0; i < 6; i += 3) {
    EXPECT_EQ(samples[i].value, 7);
    EXPECT_EQ(samples[i].key.unit, "cycles");
    EXPECT_EQ(samples[i + 1].value, 8);
    EXPECT_EQ(samples[i + 1].key.unit, "callbacks");
    EXPECT_DOUBLE_EQ(samples[i + 2].value, 1000) << "without a value of its own: from the time";
    EXPECT_EQ(samples[i + 2].key.op, "c");
  }
}

TEST(BenchSession, AFixedNumberIsNotSearchedFor) {
  std::array<std::atomic<std::uint64_t>, 2> runs{};
  const std::vector<Sample> samples = measure(2, short_options(2), [&](BenchSession& session) {
    Figure fixed = figure("a", "rate");
    fixed.fixed = 50;
    session.measure(fixed, [&](std::uint64_t n) {
      EXPECT_EQ(n, 50U);
      runs[session.rank()].fetch_add(1);
      return harness::Run{50'000, session.rank() == 1};
    });
  });
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(runs[0].load(), runs[1].load());
  EXPECT_DOUBLE_EQ(samples[0].value, 1) << "50 in 50 µs";
  EXPECT_FALSE(samples[0].verified) << "rank 0's counts";
}

TEST(BenchSession, WhatIsAskedForIsWanted) {
  BenchOptions options;
  options.names = {"rate", "overhead"};
  options.ops = {"put"};
  measure(1, options, [](BenchSession& session) {
    EXPECT_TRUE(session.wants("rate", "put"));
    EXPECT_FALSE(session.wants("rate", "get"));
    EXPECT_FALSE(session.wants("gups"));
    EXPECT_TRUE(session.wants("overhead"));
  });
}

// ---- together -----------------------------------------------------------------------------------

struct Seen {
  std::atomic<std::uint64_t> prepared{0};
  std::atomic<std::uint64_t> ended{0};
  std::atomic<std::uint64_t> iterations{0};
};
using AllSeen = std::array<Seen, 4>;

// Nobody looks at the result before all have ended, nor begins before all are prepared.
bool all_have(const AllSeen& seen, std::uint32_t size, std::atomic<std::uint64_t> Seen::* what, std::uint64_t count) {
  for (std::uint32_t other = 0; other < size; ++other) {
    if ((seen[other].*what).load() < count) return false;
  }
  return true;
}

// Three repeats; `wrong`: the process that finds its result wrong.
std::vector<Sample> run_together(std::uint32_t size, std::uint32_t wrong, AllSeen* seen) {
  return measure(size, short_options(3), [&](BenchSession& session) {
    const std::uint32_t rank = session.rank();
    Seen& mine = (*seen)[rank];
    const Together work{[&] { mine.prepared.fetch_add(1); },
                        [&](std::uint64_t n) {
                          EXPECT_TRUE(all_have(*seen, size, &Seen::prepared, mine.prepared.load()));
                          if (rank == 1) std::this_thread::yield();
                          mine.iterations.fetch_add(n);
                          mine.ended.fetch_add(1);
                          // Each sees its own part of what all take together: from 1000 n to 1400
                          // n.
                          return Interval{1000 * n + rank, 1000 * n + 100 * n * (rank + 1)};
                        },
                        [&] {
                          EXPECT_TRUE(all_have(*seen, size, &Seen::ended, mine.prepared.load()));
                          return rank != wrong;
                        }};
    const Figure one = figure("a", "rate");
    session.measure(std::span(&one, 1), work);
  });
}

TEST(Together, AllDoTheSameAndRankZeroHasTheSamples) {
  AllSeen seen;
  const std::vector<Sample> samples = run_together(4, 4, &seen);
  ASSERT_EQ(samples.size(), 3U);
  for (const Seen& one : seen) {
    EXPECT_GT(one.prepared.load(), 3U) << "the search, and three repeats";
    EXPECT_EQ(one.prepared.load(), seen[0].prepared.load());
    EXPECT_EQ(one.iterations.load(), seen[0].iterations.load());
  }
  for (const Sample& sample : samples) {
    EXPECT_TRUE(sample.verified);
    EXPECT_NEAR(sample.value, 2.5, 0.01) << "a million per second: n in 400 n nanoseconds";
  }
}

TEST(Together, WhatAnotherFindsWrongIsTold) {
  for (const std::uint32_t size : {4U, 2U}) {
    AllSeen seen;
    const std::vector<Sample> samples = run_together(size, size - 1, &seen);
    ASSERT_EQ(samples.size(), 3U);
    for (const Sample& sample : samples) EXPECT_FALSE(sample.verified);
  }
}

}  // namespace
}  // namespace heddle::bench::harness::bench_session_test
