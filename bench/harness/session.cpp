#include "harness/session.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

namespace heddle::bench::harness {

namespace {

constexpr int kAttempts = 4;
// two cores of one package exchange a line in less; "far" is a fact about the machine
constexpr double kFarNs = 150;
constexpr double kChanged = 1.6;

Distance judge(double before, double after) {
  const double low = std::min(before, after);
  const double high = std::max(before, after);
  if (high > kChanged * low) return Distance::changed;
  return low > kFarNs ? Distance::far : Distance::near;
}

const char* unit_of(const std::string& metric) {
  if (metric == "latency") return "ns";
  if (metric == "cycles" || metric == "callbacks" || metric == "doorbells") return metric.c_str();
  if (metric == "voluntary") return "sleeps";
  if (metric == "involuntary") return "yields";
  return metric == "bandwidth" ? "GB/s" : "Mop/s";
}

double value_of(const Figure& figure, const Run& run, std::uint64_t n) {
  const double things = figure.per_iteration * static_cast<double>(n);
  const double elapsed_ns = run.elapsed_ns;
  if (figure.key.metric == "voluntary") return run.voluntary / things;
  if (figure.key.metric == "involuntary") return run.involuntary / things;
  if (elapsed_ns <= 0) return 0;
  if (figure.key.metric == "latency") return elapsed_ns / things;
  // bytes per ns are GB/s
  return things / elapsed_ns * (figure.key.metric == "bandwidth" ? 1 : 1000);
}

rusage usage() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used;
}

// To `mine`, if that is further.
template <class Further>
void move_to(std::atomic<std::uint64_t>* word, std::uint64_t mine, Further&& further) {
  std::uint64_t now = word->load(std::memory_order_relaxed);
  while (further(mine, now) && !word->compare_exchange_weak(now, mine, std::memory_order_relaxed)) {
  }
}

}  // namespace

BenchSession::BenchSession(Channel& channel, const BenchOptions& options, std::function<void(const Sample&)> sink)
    : channel_(channel),
      options_(options),
      cores_(options.cores.empty() ? Cores::allowed() : Cores::parse(options.cores)),
      sink_(std::move(sink)) {}

bool BenchSession::wants(const char* bench, const char* op) const {
  if (!wants_bench(options_, bench)) return false;
  if (op == nullptr) return true;
  const std::string name = op;
  // put_flush and put_wait are put; tagged is the peers' counterpart of am; fadd stands for all
  // atomics.
  return wants_op(options_, op) || (name.starts_with("put") && wants_op(options_, "put")) ||
         (name == "tagged" && wants_op(options_, "am"));
}

std::uint64_t BenchSession::find_iterations(const Body& body) {
  const auto time = [&](std::uint64_t count) {
    const auto elapsed = static_cast<std::uint64_t>(run_beside_others(body, count).elapsed_ns);
    return std::max<std::uint64_t>(channel_.share(elapsed), 1);
  };
  std::uint64_t n = 1;
  while (true) {
    std::uint64_t took = time(n);
    // One interruption must not pass for a slow operation, or the repeats are too short to say
    // anything. The same is true of costs that each run has once, such as a last answer. So n is
    // extrapolated only from a run of half that time.
    if (2 * took >= options_.target_ns) took = std::min(took, time(n));
    const double more = static_cast<double>(options_.target_ns) / static_cast<double>(took);
    if (more <= 2) return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(n) * more));
    n = static_cast<std::uint64_t>(static_cast<double>(n) * std::min(more, 16.0)) + 1;
  }
}

void BenchSession::meet() {
  channel_.barrier();
  int spins = 0;
  channel_.barrier_while([&] {
    if (++spins > 10'000) sched_yield();  // they share a core
  });
}

// Those of --busy compute only meanwhile: P is measured without them.
Run BenchSession::run_beside_others(const Body& body, std::uint64_t n) {
  const bool busy = rank() == 0 && options_.busy != 0;
  if (busy) channel_.let_others_compute(true);
  meet();
  Run run = body(n);
  if (busy) channel_.let_others_compute(false);
  return run;
}

bool BenchSession::disturbed(Distance distance, int attempt, std::uint64_t cost_ns) {
  // Rank 0 decides for all: the budget is shared.
  bool again = false;
  if (rank() == 0 && distance != Distance::near && attempt + 1 < kAttempts) again = channel_.spend_retry_ns(cost_ns);
  return channel_.share(again ? 1 : 0) != 0;
}

// More than two processes are left to the scheduler; ranks 0 and 1 have a core each for P.
void BenchSession::pin_for_p() const {
  if (rank() < 2) cores_.pin_sharing(rank(), 0);
}

Run BenchSession::run_together(std::uint64_t n, const Together& work) {
  TogetherMemory& memory = channel_.memory().together;
  work.prepare();
  if (rank() == 0) {
    for (auto* word : {&memory.end_ns, &memory.voluntary, &memory.involuntary})
      word->store(0, std::memory_order_relaxed);
    memory.wrong.store(0, std::memory_order_relaxed);
    memory.begin_ns.store(~std::uint64_t{0}, std::memory_order_relaxed);
  }
  meet();
  const rusage before = usage();
  const Interval own = work.run(n);
  const rusage after = usage();
  const auto add = [](std::atomic<std::uint64_t>& to, long switches) {
    to.fetch_add(static_cast<std::uint64_t>(switches), std::memory_order_relaxed);
  };
  add(memory.voluntary, after.ru_nvcsw - before.ru_nvcsw);
  add(memory.involuntary, after.ru_nivcsw - before.ru_nivcsw);
  move_to(&memory.begin_ns, own.begin_ns, std::less<>());
  move_to(&memory.end_ns, own.end_ns, std::greater<>());
  channel_.barrier();
  Run run;
  run.elapsed_ns = static_cast<double>(memory.end_ns.load(std::memory_order_relaxed) -
                                       memory.begin_ns.load(std::memory_order_relaxed));
  run.voluntary = static_cast<double>(memory.voluntary.load(std::memory_order_relaxed));
  run.involuntary = static_cast<double>(memory.involuntary.load(std::memory_order_relaxed));
  if (!work.right()) memory.wrong.fetch_add(1, std::memory_order_relaxed);
  channel_.barrier();
  run.verified = memory.wrong.load(std::memory_order_relaxed) == 0;
  return run;
}

void BenchSession::measure(std::span<const Figure> figures, const Together& work) {
  measure(figures, [&](std::uint64_t n) { return run_together(n, work); });
}

void BenchSession::measure(std::span<const Figure> figures, const Body& body) {
  pin_for_p();
  channel_.barrier();
  const std::uint64_t fixed = figures.front().fixed;
  const std::uint64_t n = fixed > 0 ? fixed : find_iterations(body);
  for (std::uint32_t repeat = 0; repeat < options_.repeat; ++repeat) {
    Sample sample;
    Run run;
    for (int attempt = 0;; ++attempt) {
      const std::uint64_t begin = now_ns();
      pin_for_p();
      const double before = channel_.ping_pong_ns();
      run = run_beside_others(body, n);
      channel_.barrier();
      pin_for_p();
      const double after = channel_.ping_pong_ns();
      sample.verified = run.verified;
      sample.p_ns = (before + after) / 2;
      sample.distance = judge(before, after);
      if (!disturbed(sample.distance, attempt, now_ns() - begin)) break;
    }
    for (std::size_t i = 0; i < figures.size(); ++i) {
      if (rank() != 0) continue;
      sample.key = figures[i].key;
      sample.key.unit = unit_of(sample.key.metric);
      sample.value = i < run.values.size() ? run.values[i] : value_of(figures[i], run, n);
      sink_(sample);
    }
  }
}

int run_group(Channel& channel, std::uint32_t processes, const std::function<int(std::uint32_t rank)>& work) {
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (std::uint32_t rank = 1; rank < processes; ++rank) {
    const pid_t child = fork();
    if (child < 0) {
      std::perror("heddle bench: fork");
      for (const pid_t one : children) kill(one, SIGKILL);
      return 1;
    }
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      channel.set_rank(rank, processes);
      const int status = work(rank);
      std::fflush(nullptr);
      _exit(status);
    }
    children.push_back(child);
  }
  channel.set_rank(0, processes);
  // If another process ends early, it arrives at no barrier any more: end this one too, and the
  // others with it.
  std::atomic<bool> over{false};
  std::atomic<int> other{0};
  std::thread watcher([&] {
    for (std::size_t left = children.size(); left > 0; --left) {
      int status = 0;
      while (wait(&status) < 0 && errno == EINTR) {
      }
      const int ended = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (ended != 0) other.store(ended);
      if (ended != 0 && !over.load()) {
        std::fprintf(stderr, "heddle bench: another process ended with status %d\n", ended);
        std::_Exit(1);
      }
    }
  });
  const int status = work(0);
  over.store(true);
  watcher.join();
  return status != 0 ? status : other.load();
}

void print_sample(const Sample& sample) {
  std::string line = to_json(sample) + "\n";
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}

void print_left_out(const char* bench, std::uint64_t bytes, const std::string& takes) {
  std::printf("%s%s of %llu bytes: it takes %s\n", std::string(kLeftOut).c_str(), bench,
              static_cast<unsigned long long>(bytes), takes.c_str());
  std::fflush(stdout);
}

Interval run_threads(std::uint32_t threads, const std::function<void(std::uint32_t)>& pin,
                     const std::function<void(std::uint32_t)>& work) {
  std::vector<std::uint64_t> begin(threads);
  std::vector<std::uint64_t> end(threads);
  std::atomic<std::uint32_t> ready{0};  // partner: itself, in the other threads
  const auto run = [&](std::uint32_t thread) {
    pin(thread);
    ready.fetch_add(1, std::memory_order_acq_rel);
    while (ready.load(std::memory_order_acquire) < threads) sched_yield();
    begin[thread] = now_ns();
    work(thread);
    end[thread] = now_ns();
  };
  if (threads == 1) {
    run(0);
  } else {
    std::vector<std::thread> pool;
    pool.reserve(threads);
    for (std::uint32_t thread = 0; thread < threads; ++thread) pool.emplace_back(run, thread);
    for (std::thread& thread : pool) thread.join();
  }
  return {*std::min_element(begin.begin(), begin.end()), *std::max_element(end.begin(), end.end())};
}

}  // namespace heddle::bench::harness
