#include "tofu/emulator/engine.hpp"

#include <gtest/gtest.h>

namespace tofu_emulator::job_watch_test {
namespace {

using Finding = JobWatch::Finding;
constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kLimit = 10 * kSecond;

// One look each tenth of a second; the members say what happens in that time.
struct Job {
  JobWatch watch{kLimit};
  JobWatch::Seen seen{kSecond, 5, 0, 0};
  std::uint64_t moves = 0;
  std::uint64_t uses_ns = kSecond / 10;
  std::uint64_t kept_out_ns = 0;

  // How often it was found in so many looks.
  int found(Finding wanted, int looks) {
    int count = 0;
    for (int i = 0; i < looks; ++i) {
      seen.now_ns += kSecond / 10;
      seen.moved += moves;
      seen.used_ns += uses_ns;
      seen.kept_out_ns += kept_out_ns;
      count += watch.look(seen) == wanted ? 1 : 0;
    }
    return count;
  }
};

TEST(JobWatch, TellsAStandstillOnceWhenItHasLastedTheLimit) {
  Job job;
  EXPECT_EQ(job.found(Finding::stands_still, 100), 0);
  EXPECT_EQ(job.found(Finding::stands_still, 1), 1);
  EXPECT_EQ(job.found(Finding::nothing, 1000), 1000);
  job.moves = 1;
  EXPECT_EQ(job.found(Finding::nothing, 1), 1);
  job.moves = 0;
  EXPECT_EQ(job.found(Finding::stands_still, 101), 1) << "the next standstill";
}

TEST(JobWatch, TakesASleepingProcessForNoCulprit) {
  Job job;
  job.uses_ns = kSecond / 1000;  // a look each millisecond
  EXPECT_EQ(job.found(Finding::nothing, 1000), 1000);
}

TEST(JobWatch, SaysNothingOfAJobThatMoves) {
  Job job;
  job.moves = 1;
  job.kept_out_ns = kSecond / 50;
  EXPECT_EQ(job.found(Finding::nothing, 1000), 1000);
}

TEST(JobWatch, TellsOnceThatTheInterfacesGetNoCore) {
  Job job;
  job.moves = 1;
  job.kept_out_ns = kSecond / 20;  // half of the time
  EXPECT_EQ(job.found(Finding::starved, 101), 1);
  EXPECT_EQ(job.watch.last_window_ns(), kLimit);
  EXPECT_EQ(job.watch.last_kept_out_ns(), kLimit / 2);
  EXPECT_EQ(job.found(Finding::nothing, 1000), 1000);
}

TEST(JobWatch, DoesNotCallAStandstillStarved) {
  Job job;
  job.kept_out_ns = kSecond / 10;
  EXPECT_EQ(job.found(Finding::starved, 1000), 0);
}

TEST(JobWatch, TakesAnEngineThatBeganAnewForNotStarved) {
  Job job;
  job.moves = 1;
  job.seen.kept_out_ns = 1000;
  EXPECT_EQ(job.found(Finding::nothing, 1), 1);
  job.seen.kept_out_ns = 0;
  EXPECT_EQ(job.found(Finding::nothing, 150), 150);
}

TEST(JobWatch, OfNoLimitFindsNothing) {
  Job job;
  JobWatch never(0);
  for (int i = 0; i < 1000; ++i) {
    job.seen.now_ns += kSecond;
    job.seen.used_ns += kSecond;
    EXPECT_EQ(never.look(job.seen), Finding::nothing);
  }
}

}  // namespace
}  // namespace tofu_emulator::job_watch_test
