// Many processes and threads on few cores: the job starts, every message arrives once, it ends, and
// its memory is bounded.
#include "launched.hpp"

namespace heddle::tests::scale_test {
namespace {

constexpr long long kGiB = 1LL << 30;

Launched run(int processes, int workers, int threads, int messages) {
  return Launched({HEDDLE_TOOL, "run", "-n", std::to_string(processes), "--timeout", "80", HEDDLE_SCALE_RANK,
                   std::to_string(workers), std::to_string(threads), std::to_string(messages)});
}

void expect_all_left(const Launched& job, long long processes) {
  auto left = job.numbers("left");
  std::sort(left.begin(), left.end());
  ASSERT_EQ(left.size(), static_cast<std::size_t>(processes));
  for (long long rank = 0; rank < processes; ++rank) EXPECT_EQ(left[static_cast<std::size_t>(rank)], rank);
}

// The one number that a job said of `word`.
long long said(const Launched& job, const std::string& word) {
  const auto numbers = job.numbers(word);
  EXPECT_EQ(numbers.size(), 1U) << word << ": " << job.out();
  return numbers.empty() ? -1 : numbers[0];
}

TEST(Scale, SixtyFourProcessesOfFourWorkersStayUnderOneGiB) {
  Launched job = run(64, 4, 1, 4);
  ASSERT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
  expect_all_left(job, 64);
  std::printf("mapped %.1f MiB, memfds %.1f MiB\n", static_cast<double>(said(job, "mapped")) / (1 << 20),
              static_cast<double>(said(job, "bytes")) / (1 << 20));
  EXPECT_LT(said(job, "mapped"), kGiB) << "shared pages counted once for each process that has touched them";
  EXPECT_LT(said(job, "bytes"), kGiB);
  EXPECT_GE(said(job, "files"), 64) << "the segments were not found, so their memory was not measured";
  EXPECT_GT(said(job, "bytes"), 0);
  // Each rank meets 63 others. One that asked the launcher now and then slept a dozen times for
  // each.
  EXPECT_LT(said(job, "slept"), 8 * 64 * 63);
}

TEST(Scale, EightProcessesOfEightThreadsOnFewCores) {
  Launched job = run(8, 8, 8, 300);
  ASSERT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
  expect_all_left(job, 8);
}

}  // namespace
}  // namespace heddle::tests::scale_test
