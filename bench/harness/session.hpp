// One participant's measurements: finds how many iterations fill the time, warms up by that,
// measures P around each repeat, repeats what was disturbed, and hands the samples on. Both
// processes of the participant make the same calls.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/channel.hpp"
#include "harness/cores.hpp"
#include "harness/options.hpp"
#include "harness/record.hpp"

namespace heddle::bench::harness {

// What one run of `n` iterations gave. Rank 0's counts; the other's is ignored.
struct Run {
  double elapsed_ns = 0;
  bool verified = true;
  std::vector<double> values =
      {};  // where a body gives several figures: one for each, in its unit, instead of the time
  // For figures with these metrics: context switches of all processes. Threads that sleep in the
  // kernel; and yields, and slices that ended.
  double voluntary = 0;
  double involuntary = 0;
};
// called a few times per figure, never per operation
using Body = std::function<Run(std::uint64_t n)>;

struct Figure {
  Key key;  // unit is filled in
  // latency: transfers per iteration (a round trip has 2); rate: operations; bandwidth: bytes
  double per_iteration = 1;
  std::uint64_t fixed = 0;  // > 0: this many iterations, no search
};

class Session {
 public:
  // `sink` receives the samples, in rank 0 only.
  Session(Channel& channel, const Options& options, std::function<void(const Sample&)> sink);

  void measure(const Figure& figure, const Body& body) { measure(std::span<const Figure>(&figure, 1), body); }
  // One body that gives several figures at once. The first one's `fixed` counts.
  void measure(std::span<const Figure> figures, const Body& body);

  [[nodiscard]] Channel& channel() { return channel_; }
  [[nodiscard]] std::uint32_t rank() const { return channel_.rank(); }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] const Cores& cores() const { return cores_; }
  // Should this bench, and this operation of it, be measured?
  [[nodiscard]] bool wants(const char* bench, const char* op = nullptr) const;
  [[nodiscard]] std::uint64_t samples() const { return samples_; }

 private:
  std::uint64_t find_iterations(const Body& body);
  // Both processes are awake and start within a cache transfer of each other.
  void meet();
  Run run_beside_others(const Body& body, std::uint64_t n);
  // True: the same repeat must be measured again.
  bool disturbed(Distance distance, int attempt, std::uint64_t cost_ns);

  Channel& channel_;
  const Options& options_;
  Cores cores_;
  std::function<void(const Sample&)> sink_;
  std::uint64_t samples_ = 0;
};

// Runs both processes of a participant: forks, makes the channel's rank known and calls
// `work(rank)` in each; the exit status of the pair. For participants that have no launcher of
// their own (the limit, UCX).
int run_pair(Channel& channel, const std::function<int(std::uint32_t rank)>& work);
// The same with more processes. The channel knows only ranks 0 and 1; the others are of a Crowd.
int run_group(Channel& channel, std::uint32_t processes, const std::function<int(std::uint32_t rank)>& work);

// Prints a sample as a line on stdout at once: the way from a participant to the driver.
void print_sample(const Sample& sample);

struct Interval {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
};
// Threads of one process that start together: the first start and the last end; and the time
// between them. `work(thread)` runs in `threads` threads; thread 0 is the caller, unless there is
// more than one.
Interval run_threads_between(std::uint32_t threads, const std::function<void(std::uint32_t thread)>& pin,
                             const std::function<void(std::uint32_t thread)>& work);
double run_threads(std::uint32_t threads, const std::function<void(std::uint32_t thread)>& pin,
                   const std::function<void(std::uint32_t thread)>& work);

}  // namespace heddle::bench::harness
