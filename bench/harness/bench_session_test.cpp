#include "harness/session.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace heddle::bench::harness {
namespace {

// Both processes of a participant as threads, each with a mapping of its own; rank 0's samples.
template <class Work>
std::vector<Sample> run_both(const Options& options, Work&& work) {
  std::vector<Sample> samples;
  auto channel = Channel::create(0);
  EXPECT_TRUE(channel);
  if (!channel) return samples;
  const auto process = [&](std::uint32_t rank) {
    auto own = Channel::open(channel->path());
    ASSERT_TRUE(own);
    own->set_rank(rank);
    Session session(*own, options, [&](const Sample& sample) {
      EXPECT_EQ(rank, 0U);
      samples.push_back(sample);
    });
    work(session);
  };
  std::thread other([&] { process(1); });
  process(0);
  other.join();
  return samples;
}

Options short_options() {
  Options options;
  options.repeat = 2;
  options.target_ns = 200'000;
  return options;
}

Figure figure(const char* op, const char* metric) {
  Figure out;
  out.key.op = op;
  out.key.metric = metric;
  return out;
}

TEST(Session, OneBodyMayGiveSeveralFigures) {
  const std::vector<Sample> samples = run_both(short_options(), [](Session& session) {
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

TEST(Session, AFixedNumberIsNotSearchedFor) {
  std::array<std::atomic<std::uint64_t>, 2> runs{};
  const std::vector<Sample> samples = run_both(short_options(), [&](Session& session) {
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

TEST(Session, WhatIsAskedForIsWanted) {
  Options options = short_options();
  options.names = {"rate", "overhead"};
  options.ops = {"put"};
  run_both(options, [](Session& session) {
    EXPECT_TRUE(session.wants("rate", "put"));
    EXPECT_FALSE(session.wants("rate", "get"));
    EXPECT_FALSE(session.wants("gups"));
    EXPECT_TRUE(session.wants("overhead"));
  });
}

}  // namespace
}  // namespace heddle::bench::harness
