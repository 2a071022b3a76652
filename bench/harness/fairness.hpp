// What is said of runs in which several threads receive messages: who ran how many of the handlers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace heddle::bench::harness {

// As for UCCS.
inline constexpr std::uint32_t kFairnessThreads = 8;
inline constexpr std::uint64_t kFairnessMessages = 1050;
inline constexpr double kFairnessEven = static_cast<double>(kFairnessMessages) / kFairnessThreads;

// Handlers run by each of the threads; the last number is of those that ran on the library's own
// threads.
using FairnessRun = std::array<std::uint64_t, kFairnessThreads + 1>;

// The figures of a series of runs, and their values in the same order:
//   deviation      standard deviation between the threads of a run; the median over the runs
//   between_runs   standard deviation of one thread's number between the runs; the mean over the
//                  threads
//   thread_0 …     the mean over the runs; library: of the library's own threads
//   sorted_0 … sorted_100   the runs sorted by thread 0's number: that number in the first, …, the
//                           last run
std::vector<std::string> fairness_figures();
std::vector<double> fairness_values(std::span<const FairnessRun> runs);

}  // namespace heddle::bench::harness
