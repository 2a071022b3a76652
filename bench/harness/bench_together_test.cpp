#include "harness/session.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace heddle::bench::harness {
namespace {

constexpr std::uint32_t kSize = 4;

struct Seen {
  std::atomic<std::uint64_t> prepared{0};
  std::atomic<std::uint64_t> ended{0};
  std::atomic<std::uint64_t> iterations{0};
};

struct Outcome {
  std::vector<Sample> samples;
  std::array<std::array<Seen, kSize>, 2> seen;  // of two figures
};

// A participant of threads, each with a mapping of its own, as processes have; `wrong`: who finds
// its result wrong in figure 1.
void run_together(std::uint32_t size, std::uint32_t wrong, Outcome* outcome) {
  auto channel = Channel::create(0);
  ASSERT_TRUE(channel);
  Options options;
  options.repeat = 3;
  options.target_ns = 200'000;
  std::vector<std::thread> processes;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    processes.emplace_back([&, rank] {
      auto own = Channel::open(channel->path());
      ASSERT_TRUE(own);
      own->set_rank(rank, size);
      Session session(*own, options, [&](const Sample& sample) { outcome->samples.push_back(sample); });
      for (std::uint32_t i = 0; i < 2; ++i) {
        Figure figure;
        figure.key.metric = "rate";
        Seen& seen = outcome->seen[i][rank];
        // Nobody looks at the result before all have ended, nor begins before all are prepared.
        const auto all_have = [&, i](std::atomic<std::uint64_t> Seen::* what, std::uint64_t count) {
          for (std::uint32_t other = 0; other < size; ++other) {
            if ((outcome->seen[i][other].*what).load() < count) return false;
          }
          return true;
        };
        const Together work{[&] { seen.prepared.fetch_add(1); },
                            [&](std::uint64_t n) {
                              EXPECT_TRUE(all_have(&Seen::prepared, seen.prepared.load()));
                              if (rank == 1) std::this_thread::yield();
                              seen.iterations.fetch_add(n);
                              seen.ended.fetch_add(1);
                              // Each sees its own part of what all take together: from 1000 n to
                              // 1400 n.
                              return Interval{1000 * n + rank, 1000 * n + 100 * n * (rank + 1)};
                            },
                            [&, i, rank] {
                              EXPECT_TRUE(all_have(&Seen::ended, seen.prepared.load()));
                              return i == 0 || rank != wrong;
                            }};
        session.measure(std::span(&figure, 1), work);
      }
    });
  }
  for (std::thread& process : processes) process.join();
}

TEST(Together, AllDoTheSameAndRankZeroHasTheSamples) {
  Outcome outcome;
  run_together(kSize, kSize, &outcome);
  EXPECT_EQ(outcome.samples.size(), 6U);
  for (const auto& figure : outcome.seen) {
    for (const Seen& one : figure) {
      EXPECT_GT(one.prepared.load(), 3U) << "the search, and three repeats";
      EXPECT_EQ(one.prepared.load(), figure[0].prepared.load());
      EXPECT_EQ(one.iterations.load(), figure[0].iterations.load());
    }
  }
  for (const Sample& sample : outcome.samples) {
    EXPECT_TRUE(sample.verified);
    EXPECT_NEAR(sample.value, 2.5, 0.01) << "a million per second: n in 400 n nanoseconds";
  }
}

TEST(Together, WhatAnotherFindsWrongIsTold) {
  Outcome outcome;
  run_together(kSize, 3, &outcome);
  ASSERT_EQ(outcome.samples.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(outcome.samples[i].verified, i < 3) << i;
}

TEST(Together, TwoAreEnough) {
  Outcome outcome;
  run_together(2, 1, &outcome);
  ASSERT_EQ(outcome.samples.size(), 6U);
  EXPECT_TRUE(outcome.samples[0].verified);
  EXPECT_FALSE(outcome.samples[5].verified);
}

}  // namespace
}  // namespace heddle::bench::harness
