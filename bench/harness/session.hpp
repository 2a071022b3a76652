// One participant's measurements: finds how many iterations fill the time, warms up by that,
// measures P around each repeat, repeats disturbed measurements, and hands the samples on. All
// processes of the participant make the same calls; between ranks 0 and 1 P is measured.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/channel.hpp"
#include "harness/cores.hpp"
#include "harness/options.hpp"
#include "harness/record.hpp"

namespace heddle::bench::harness {

// The result of one run of `n` iterations. Rank 0's result counts; those of other ranks are
// ignored.
struct Run {
  double elapsed_ns = 0;
  bool verified = true;
  std::vector<double> values =
      {};  // if a body gives several figures: one value for each, in its unit, instead of the time
  // For figures with these metrics: context switches of all processes. Threads that sleep in the
  // kernel; and yields, and slices that ended.
  double voluntary = 0;
  double involuntary = 0;
};
// called a few times per figure, never per operation
using Body = std::function<Run(std::uint64_t n)>;

struct Interval {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  [[nodiscard]] double ns() const { return static_cast<double>(end_ns - begin_ns); }
};

// The work of every process, if the time counts from the first begin to the last end. Called a few
// times per figure.
struct Together {
  std::function<void()> prepare;                 // before all begin
  std::function<Interval(std::uint64_t n)> run;  // n iterations
  std::function<bool()> right;                   // after all have ended: is what came here right?
};

struct Figure {
  RecordKey key;  // unit is filled in
  // latency: transfers per iteration (a round trip has 2); rate: operations; bandwidth: bytes
  double per_iteration = 1;
  std::uint64_t fixed = 0;  // > 0: this many iterations, no search
};

class BenchSession {
 public:
  // `sink` receives the samples, in rank 0 only.
  BenchSession(Channel& channel, const BenchOptions& options, std::function<void(const Sample&)> sink);

  void measure(const Figure& figure, const Body& body) { measure(std::span<const Figure>(&figure, 1), body); }
  // One body that gives several figures at once. The first one's `fixed` counts.
  void measure(std::span<const Figure> figures, const Body& body);
  void measure(std::span<const Figure> figures, const Together& work);

  [[nodiscard]] Channel& channel() { return channel_; }
  [[nodiscard]] std::uint32_t rank() const { return channel_.rank(); }
  [[nodiscard]] std::uint32_t size() const { return channel_.size(); }
  [[nodiscard]] const BenchOptions& options() const { return options_; }
  [[nodiscard]] const Cores& cores() const { return cores_; }
  // Should this bench, and this operation of it, be measured?
  [[nodiscard]] bool wants(const char* bench, const char* op = nullptr) const;

 private:
  std::uint64_t find_iterations(const Body& body);
  // All processes are awake and start within a cache transfer of each other.
  void meet();
  void pin_for_p() const;
  Run run_together(std::uint64_t n, const Together& work);
  Run run_beside_others(const Body& body, std::uint64_t n);
  // True: the same repeat must be measured again.
  bool disturbed(Distance distance, int attempt, std::uint64_t cost_ns);

  Channel& channel_;
  const BenchOptions& options_;
  Cores cores_;
  std::function<void(const Sample&)> sink_;
};

// Runs the processes of a participant that has no launcher of its own (the limit, UCX): forks,
// makes the channel's rank known and calls `work(rank)` in each; the exit status of all.
int run_group(Channel& channel, std::uint32_t processes, const std::function<int(std::uint32_t rank)>& work);

// The same for a size that a bench does not measure, with the sizes that it takes: a line that
// begins with kLeftOut.
inline constexpr std::string_view kLeftOut = "left out: ";
void print_left_out(const char* bench, std::uint64_t bytes, const std::string& takes);

// Prints a sample as a line on stdout at once: the way from a participant to the driver.
void print_sample(const Sample& sample);

// Threads of one process that start together: the first start and the last end. `work(thread)` runs
// in `threads` threads; thread 0 is the caller, unless there is more than one.
Interval run_threads(std::uint32_t threads, const std::function<void(std::uint32_t thread)>& pin,
                     const std::function<void(std::uint32_t thread)>& work);

}  // namespace heddle::bench::harness
