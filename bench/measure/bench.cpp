#include "measure/bench.hpp"

#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace heddle::bench::measure {

Needs needs_of(const harness::BenchSession& session) {
  const harness::BenchOptions& options = session.options();
  if (only_programs(options))
    return {session.size() == 2 && has_threads(options) ? kMostThreads : 1, kDataAt + kDataBytes};
  Needs needs{1, kDataBytes};
  const auto raise = [&](const char* bench, const std::vector<std::uint32_t>& threads) {
    if (session.wants(bench)) needs.lanes = std::max(needs.lanes, *std::max_element(threads.begin(), threads.end()));
  };
  for (const char* bench : {"rate", "gups"}) raise(bench, harness::threads_of(options));
  raise("overhead", harness::threads_or(options, harness::kOverheadThreads));
  raise("duplex", harness::threads_or(options, harness::kDuplexThreads));
  raise("convolution", harness::threads_or(options, harness::kConvolutionThreads));
  raise("oversubscription", {harness::oversubscription_threads(session.size())});
  raise("fairness", {8});
  if (const char* network = harness::network_of(options)) raise(network, harness::network_threads(options));
  const auto sizes = harness::sizes_or(options, {kMostBytes});
  const std::uint64_t largest = *std::max_element(sizes.begin(), sizes.end());
  needs.region_bytes = std::max(needs.region_bytes, largest);
  if (session.wants("duplex")) {
    needs.region_bytes = std::max(needs.region_bytes, harness::duplex_stretch(options) * needs.lanes);
  }
  if (session.wants("gups")) {
    needs.region_bytes = std::max(needs.region_bytes, 8 * gups_words_per_rank(options.total_words, options.quick));
  }
  needs.region_bytes += kDataAt;
  return needs;
}

bool Bench::wants_program(const char* program) const {
  if (!wants("programs") || (!options_.ops.empty() && !contains(options_.ops, program))) return false;
  return std::any_of(std::begin(kGroups), std::end(kGroups), [&](Group group) {
    return processes_of(group) == size() && contains(programs_of(group), program);
  });
}

void Bench::leave_out(const char* bench, std::uint64_t bytes, const std::string& takes) const {
  if (rank() != 0 || options_.sizes.empty()) return;
  harness::print_left_out(bench, bytes, takes);
}

std::vector<std::uint64_t> Bench::sizes(const char* bench, std::vector<std::uint64_t> standard,
                                        std::uint64_t most) const {
  auto out = harness::sizes_or(options_, std::move(standard));
  if (wants(bench)) {
    for (const std::uint64_t bytes : out) {
      if (bytes > most) leave_out(bench, bytes, "at most " + std::to_string(most));
    }
  }
  std::erase_if(out, [most](std::uint64_t bytes) { return bytes > most; });
  return out;
}

std::vector<std::uint64_t> Bench::program_sizes(std::vector<std::uint64_t> standard, std::uint64_t most) const {
  auto out = sizes("programs", std::move(standard), most);
  if (options_.quick && out.size() > 2) out.erase(out.begin() + 1, out.end() - 1);
  if (identity_.is_variant) std::erase_if(out, [](std::uint64_t bytes) { return bytes > 8; });
  return out;
}

std::vector<std::uint32_t> Bench::program_threads(std::vector<std::uint32_t> standard) const {
  auto out = harness::threads_or(options_, std::move(standard));
  if (options_.quick && out.size() > 1) out.erase(out.begin(), out.end() - 1);
  std::erase_if(out, [](std::uint32_t count) { return count > kMostThreads; });
  return out;
}

Figure Bench::figure(const Task& task) const {
  Figure out;
  out.key.bench = task.bench;
  out.key.op = task.op;
  out.key.transport = identity_.transport;
  out.key.sharing = identity_.sharing;
  out.key.memory = options_.memory == "malloc" ? "malloc" : identity_.memory;
  out.key.metric = task.metric;
  out.key.processes = size();
  out.key.threads = task.threads;
  out.key.workers = identity_.own_queues ? task.threads : 1;
  out.key.size_bytes = task.bytes;
  out.per_iteration = task.per_iteration;
  return out;
}

std::vector<Figure> Bench::by_windows(const Task& task, std::uint64_t windows) const {
  std::vector<Figure> out = {figure(task)};
  for (const char* metric : {"voluntary", "involuntary"}) {
    if (!options_.switches) break;
    out.push_back(out.front());
    out.back().key.metric = metric;
    out.back().per_iteration = static_cast<double>(windows);
  }
  return out;
}

harness::Interval Bench::run(std::uint32_t threads, std::uint64_t n, const Work& work) {
  if (only_first_pair_ && rank() >= 2) {
    meet_();
    return {~std::uint64_t{0}, 0};
  }
  // More processes than cores are left to the scheduler, as launchers leave them.
  const auto pin = [&](std::uint32_t thread) {
    size() > 2 ? session_.cores().unpin() : session_.cores().pin_sharing(rank() % 2, thread);
  };
  const auto time = harness::run_threads(threads, pin, [&](std::uint32_t lane) { work.each(lane, n); });
  meet_();
  return time;
}

void Bench::measure(std::span<const Figure> figures, std::uint32_t threads, const Work& work) {
  harness::Together parts;
  parts.prepare = [&] {
    ++runs_;
    if (work.prepare) work.prepare(runs_);
  };
  parts.run = [&](std::uint64_t n) { return run(threads, n, work); };
  parts.right = [&] { return !work.right || work.right(runs_); };
  session_.measure(figures, parts);
}

// The target sleeps meanwhile, or waits on a worker that does not carry them out.
bool Bench::can_measure_atomics() {
  const char* const progress = std::getenv("HEDDLE_PROGRESS");
  const bool helped = progress != nullptr && *progress != '\0' && std::strcmp(progress, "none") != 0;
  if (!identity_.owner_signals || helped) return true;
  if (rank() == 0 && !std::exchange(told_atomics_, true)) {
    std::fprintf(stderr,
                 "heddle bench: without atomics and gups: over %s a thread of the target carries atomics out; "
                 "HEDDLE_PROGRESS=adaptive gives it one\n",
                 identity_.transport.c_str());
  }
  return false;
}

bool Bench::everywhere(bool here) {
  harness::Channel& channel = session_.channel();
  if (rank() < 2) channel.flag(rank()).store(here ? 1 : 0, std::memory_order_relaxed);
  channel.barrier();
  const bool both = channel.flag(0).load() != 0 && channel.flag(1).load() != 0;
  channel.barrier();
  return both;
}

double Bench::together(std::uint32_t threads, Owner owner, const std::function<void(std::uint32_t lane)>& work) const {
  const auto pin = [&](std::uint32_t thread) {
    if (owner == Owner::helps) {
      session_.cores().pin_sharing(rank(), thread);
    } else {
      session_.cores().pin_alone(rank(), thread);
    }
  };
  return harness::run_threads(threads, pin, work).ns();
}

void Bench::at_origin(std::span<const Figure> figures, std::uint32_t threads, Owner owner,
                      const std::function<Run(std::uint64_t n)>& work) {
  session_.measure(figures, [&](std::uint64_t n) {
    ++turn_;
    std::atomic<std::uint64_t>& over = session_.channel().flag(3);
    Run run;
    if (rank() == 0) {
      run = work(n);
      over.store(turn_, std::memory_order_release);
    } else if (rank() == 1 && owner == Owner::helps) {
      together(threads, owner, [&](std::uint32_t lane) {
        for (std::uint32_t idle = 0; over.load(std::memory_order_acquire) != turn_;) {
          idle = progress_(lane) ? 0 : idle + 1;
          if (idle > 100) sched_yield();
        }
      });
    }
    session_.channel().barrier();
    return run;
  });
}

void Bench::at_origin(const Task& task, Owner owner,
                      const std::function<void(std::uint32_t lane, std::uint64_t n)>& each) {
  const Figure one = figure(task);
  at_origin(std::span(&one, 1), task.threads, owner, [&](std::uint64_t n) {
    return Run{together(task.threads, owner, [&](std::uint32_t lane) { each(lane, n); })};
  });
}

}  // namespace heddle::bench::measure
