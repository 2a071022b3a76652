// Waits of windows cost few context switches: the number is bounded, not a time, so that it holds
// on a loaded machine, too. Sleeps in the kernel are bounded, each of which costs a system call
// here, a wake-up there and two switches; yields are only shown, since each waits for its turn in
// them where threads share a core.
#include <sched.h>

#include <algorithm>

#include "launched.hpp"

namespace heddle::tests::windows_test {
namespace {

struct Case {
  const char* sharing;
  std::uint32_t threads;
  std::uint32_t processes;
};

std::string name_of(const testing::TestParamInfo<Case>& about) {
  return std::string(about.param.sharing) + "_" + std::to_string(about.param.threads) + "_threads_" +
         std::to_string(about.param.processes) + "_processes";
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const char* sharing : {"exclusive", "shared", "offload", "delegate"}) {
    for (const std::uint32_t threads : {1U, 2U, 4U}) {
      for (const std::uint32_t processes : {2U, 4U}) all.push_back({sharing, threads, processes});
    }
  }
  return all;
}

// Sleeps of all processes for a window of 64 messages there and an answer back. Usual on two cores,
// without load: 0.006 (at most 0.14); beside three busy processes 1 (at most 2.8); beside a build
// 4.03 and 4.35 were seen, each once. In offload mode 0.06 to 10 (at most 23), loaded or not. A
// thread that wakes others at each message, or an executor that sleeps after each record, is beyond
// the bounds in each of several runs; what others do beside a run is not.
constexpr int kRuns = 3;
double most_sleeps(const std::string& sharing) {
  return sharing == "offload" ? 64 : 4;
}

double sum_of(Launched& job, const char* word) {
  double sum = 0;
  for (const long long one : job.numbers(word)) sum += static_cast<double>(one);
  return sum;
}

class Windows : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(In, Windows, testing::ValuesIn(all_cases()), name_of);

TEST_P(Windows, FewSleepsInTheKernel) {
  constexpr int kWindows = 400;
  const Case given = GetParam();
  const double windows = double{kWindows} * given.threads * given.processes / 2;
  double least = 0;
  for (int run = 0; run < kRuns; ++run) {
    Launched job({HEDDLE_TOOL, "run", "-n", std::to_string(given.processes), "--bind", "none", "--timeout", "100",
                  "--env", std::string("HEDDLE_SHARING=") + given.sharing, HEDDLE_WINDOWS_RANK,
                  std::to_string(given.threads), std::to_string(kWindows)});
    ASSERT_EQ(job.wait(), 0) << job.err();
    const double slept = sum_of(job, "slept") / windows;
    std::printf("%s, %u threads, %u processes: %.3f sleeps, %.3f yields per window\n", given.sharing, given.threads,
                given.processes, slept, sum_of(job, "yielded") / windows);
    least = run == 0 ? slept : std::min(least, slept);
    if (least <= most_sleeps(given.sharing)) break;
  }
  EXPECT_LE(least, most_sleeps(given.sharing));
}

// Two ranks that share a core hand it on twice for a window: by yields or, beside others that
// compute there, by sleeps. Waits that took each chunk of a long message for idle time handed it on
// for each 64 KiB.
struct OnOneCore {
  const char* name;
  const char* messages;
  const char* bytes;
  int windows;
  double most;  // times that both ranks give the core away for a window
};

// What is started meanwhile runs on the calling thread's core only.
class OneCore {
 public:
  OneCore() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    EXPECT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_{};
};

class SharedCore : public testing::TestWithParam<OnOneCore> {};
INSTANTIATE_TEST_SUITE_P(With, SharedCore,
                         testing::Values(OnOneCore{"round_trips", "1", "8", 4000, 2.5},
                                         OnOneCore{"messages_of_256_KiB", "1", "262144", 400, 4},
                                         OnOneCore{"messages_of_16_MiB", "1", "16777216", 8, 32},
                                         OnOneCore{"windows_of_1_MiB", "8", "1048576", 20, 32}),
                         [](const auto& about) { return std::string(about.param.name); });

TEST_P(SharedCore, IsHandedOnOnceForEachAnswer) {
  const OnOneCore given = GetParam();
  const OneCore core;
  // Others that compute take the core away, too, but not as often in each of several runs.
  constexpr int kMoreRuns = 5;
  double least = 0;
  for (int run = 0; run < kMoreRuns; ++run) {
    Launched job({HEDDLE_TOOL, "run", "-n", "2", "--bind", "none", "--timeout", "100", "--env", "HEDDLE_PROGRESS=none",
                  HEDDLE_WINDOWS_RANK, "1", std::to_string(given.windows), given.messages, given.bytes});
    ASSERT_EQ(job.wait(), 0) << job.err();
    const double slept = sum_of(job, "slept") / given.windows;
    const double yielded = sum_of(job, "yielded") / given.windows;
    std::printf("%s: %.3f sleeps, %.3f yields per window\n", given.name, slept, yielded);
    least = run == 0 ? slept + yielded : std::min(least, slept + yielded);
    if (least <= given.most) break;
  }
  EXPECT_LE(least, given.most);
}

}  // namespace
}  // namespace heddle::tests::windows_test
