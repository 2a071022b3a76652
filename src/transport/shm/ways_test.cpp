// Tests which way large transfers go, with scripted measurements.
#include "transport/shm/ways.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace heddle::transport::shm::ways_test {
namespace {

constexpr std::uint64_t kBytes = 65536;

// A peer to which the kernel takes 8000 ns, and bounce space `bounce`.
struct Script {
  Ways ways{2};
  std::uint64_t bounce_ns;
  int kernel = 0;
  int bounce = 0;
  int trials = 0;
  std::uint64_t spent = 0;

  static constexpr std::uint64_t kKernelNs = 8000;
  static constexpr std::uint64_t kTrialNs = 3000;  // lost by a trial that fails

  explicit Script(std::uint64_t ns) : bounce_ns(ns) {}
  Way step(std::uint64_t bytes = kBytes) {
    const bool unknown = ways.unknown(1, bytes);
    const Way way = ways.choose(1, bytes);
    if (way == Way::kernel) {
      ++kernel;
      spent += kKernelNs;
      ways.kernel_took(1, bytes, kKernelNs);
    } else if ((way == Way::trial || unknown) && bounce_ns > kKernelNs * 11 / 10) {
      ++trials;
      spent += kKernelNs + kTrialNs;
      ways.bounce_slow(1, bytes);
      ways.kernel_took(1, bytes, kKernelNs);
    } else {
      ++bounce;
      spent += bounce_ns;
      ways.bounce_took(1, bytes, bounce_ns);
    }
    return way;
  }
  void run(int steps) {
    kernel = bounce = trials = 0;
    spent = 0;
    for (int i = 0; i < steps; ++i) step();
  }
};

TEST(Ways, NearPeersGetBounceSpace) {
  Script near(3500);
  near.run(10000);
  EXPECT_GE(near.bounce, 9900);
  EXPECT_GE(near.kernel, 10) << "it is tried now and then, or nobody knew when it became better";
  EXPECT_LE(near.spent, 10000 * near.bounce_ns * 102 / 100);
}

TEST(Ways, FarPeersGetTheKernelAfterOneChunk) {
  Script far(41000);
  EXPECT_EQ(far.step(), Way::bounce);
  EXPECT_EQ(far.trials, 1);
  EXPECT_EQ(far.step(), Way::kernel);
  far.run(10000);
  EXPECT_EQ(far.bounce, 0);
  EXPECT_GE(far.trials, 100);
  EXPECT_LE(far.spent, 10000 * Script::kKernelNs * 102 / 100);
}

// As bad as it gets: bounce space is a little worse, so that it is tried most often.
TEST(Ways, LittleWorseCostsLittle) {
  for (const std::uint64_t ns : {8100U, 8500U, 8900U, 10000U, 12000U, 16000U}) {
    Script peer(ns);
    peer.run(10000);
    EXPECT_LE(peer.spent, 10000 * Script::kKernelNs * 105 / 100) << ns;
  }
}

TEST(Ways, ChangeIsNoticed) {
  Script peer(3500);
  peer.run(1000);
  peer.bounce_ns = 41000;
  peer.run(1000);
  EXPECT_LE(peer.bounce, 2) << "one transfer tells";
  EXPECT_LE(peer.spent, 1000 * Script::kKernelNs * 110 / 100);
  peer.bounce_ns = 3500;
  peer.run(1000);
  EXPECT_GE(peer.bounce, 800);
}

TEST(Ways, EachLengthByItself) {
  Script peer(41000);
  peer.step();
  EXPECT_EQ(peer.step(), Way::kernel);
  EXPECT_EQ(peer.ways.choose(1, 1 << 20), Way::bounce);
  EXPECT_EQ(peer.ways.choose(0, kBytes), Way::bounce) << "another peer";
}

// The time of short transfers hardly depends on their length, so transfers of one class are
// compared whatever their lengths are.
TEST(Ways, ShortOnesAreOfOneLength) {
  Ways ways(1);
  ways.bounce_took(0, 200, 1200);
  ways.kernel_took(0, 500, 1500);
  EXPECT_EQ(ways.choose(0, 130), Way::bounce);
  EXPECT_NEAR(static_cast<double>(ways.kernel_ns(0, 130)), 1500, 10);
  for (int i = 0; i < 10; ++i) ways.bounce_took(0, 130, 1800);
  EXPECT_EQ(ways.choose(0, 500), Way::kernel);
  for (const std::uint64_t bytes : {1024U, 4096U, 16384U}) EXPECT_EQ(ways.choose(0, bytes), Way::bounce) << bytes;
}

// Far or near, once both have been measured: no slower than the faster one.
TEST(Ways, ShortOnesToo) {
  for (const std::uint64_t bytes : {121U, 1024U, 8192U}) {
    for (const std::uint64_t bounce_ns : {300U, 1400U, 3000U}) {
      constexpr std::uint64_t kKernel = 1500;
      Ways ways(1);
      std::uint64_t spent = 0;
      for (int i = 0; i < 10000; ++i) {
        const bool kernel = ways.choose(0, bytes) == Way::kernel;
        spent += kernel ? kKernel : bounce_ns;
        kernel ? ways.kernel_took(0, bytes, kKernel) : ways.bounce_took(0, bytes, bounce_ns);
      }
      EXPECT_LE(spent, 10000 * std::min(bounce_ns, kKernel) * 103 / 100) << bytes << " " << bounce_ns;
    }
  }
}

TEST(Ways, KernelIsMeasured) {
  Ways ways(1);
  const std::uint64_t guess = ways.kernel_ns(0, kBytes);
  EXPECT_GT(guess, 5000U);
  for (int i = 0; i < 30; ++i) ways.kernel_took(0, kBytes, 20000);
  EXPECT_NEAR(static_cast<double>(ways.kernel_ns(0, kBytes)), 20000, 500);
  ways.kernel_took(0, kBytes, 10'000'000);  // this thread has lost its core
  EXPECT_LE(ways.kernel_ns(0, kBytes), 26000U);
  ways.kernel_took(0, kBytes, 0);
  EXPECT_GT(ways.kernel_ns(0, kBytes), 0U);
}

int kernel_copies(Ways& ways, std::uint64_t bytes = kBytes) {
  int copies = 0;
  while (ways.choose(0, bytes) == Way::kernel) ++copies;
  return copies;
}

TEST(Ways, WhoDoesNotAnswerIsAskedLessAndLess) {
  Ways ways(1);
  for (const int expected : {4, 8, 16, 32, 64, 64}) {
    ways.unanswered(0);
    EXPECT_EQ(kernel_copies(ways), expected);
  }
  ways.bounce_took(0, kBytes, 3000);
  ways.unanswered(0);
  EXPECT_EQ(kernel_copies(ways), 4);
}

// A target that loses its core with a chunk costs a slice of time: it is avoided for longer and
// longer, and forgiven when it has kept its core for a while.
TEST(Ways, WhoLosesItsCoreIsAvoided) {
  Ways ways(1);
  ways.bounce_took(0, kBytes, 3000);
  for (const int expected : {64, 128, 256, 512, 1024, 2048, 2048}) {
    ways.stalled(0);
    EXPECT_EQ(kernel_copies(ways), expected);
  }
  for (int i = 0; i < 64 * 3; ++i) ways.bounce_took(0, kBytes, 3000);
  ways.stalled(0);
  EXPECT_EQ(kernel_copies(ways), 2048 / 8 * 2);
}

// Short ones last less long, and the slice of time that it may cost is the same.
TEST(Ways, WhoLosesItsCoreIsAvoidedByManyShortOnes) {
  Ways ways(1);
  ways.stalled(0);
  EXPECT_EQ(kernel_copies(ways, 1000), 64 * 8);
  ways.unanswered(0);
  EXPECT_EQ(kernel_copies(ways, 1000), 4) << "that costs some microseconds only";
}

TEST(Ways, ImpossibleFiguresDoNoHarm) {
  Ways ways(1);
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{1} << 46}) {
    for (const std::uint64_t ns : {std::uint64_t{0}, ~std::uint64_t{0}}) {
      ways.kernel_took(0, bytes, ns);
      ways.bounce_took(0, bytes, ns);
      ways.bounce_slow(0, bytes);
      static_cast<void>(ways.choose(0, bytes));
      static_cast<void>(ways.kernel_ns(0, bytes));
    }
  }
}

}  // namespace
}  // namespace heddle::transport::shm::ways_test
