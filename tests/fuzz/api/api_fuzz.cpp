// Every function of the C API with valid pointers and random values, by two ranks that also misuse
// it: closed and foreign handles, lengths beyond all, arguments that the ranks do not agree on.
// Whatever is asked for, nothing may crash, hang, or write elsewhere.
//
//   api_fuzz [--seed N] [--calls N] [--round N] [--seconds S] [--transport NAME] [--mode MODE]
//   [--patience S]
//   heddle run -n 2 api_fuzz …     two processes instead of two threads
//   api_fuzz --list                the functions that it calls
//
// Ends with 0; 3 and the last calls where a call fails that may not, succeeds that may not, or does
// not return; by a signal, after the last calls, where the library faults.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string_view>
#include <thread>

#include "rank.hpp"

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(
    void (*callback)());  // NOLINT: the sanitizers' name

namespace heddle::tests::api {
namespace {

Trace* g_traces[2];  // of this process

void print_all() {
  for (const Trace* trace : g_traces) {
    if (trace != nullptr) trace->print();
  }
}

void fault(int number) {
  std::signal(number, SIG_DFL);
  std::fprintf(stderr, "api_fuzz: signal %d\n", number);
  print_all();
  std::raise(number);
}

void tell_faults() {
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(print_all);
    std::signal(SIGABRT, fault);
    return;
  }
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) std::signal(number, fault);
}

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "api_fuzz: %s: %s\n", what, heddle_last_error());
  std::_Exit(2);
}

class Watchdog {
 public:
  explicit Watchdog(double patience)
      : thread_([this, patience] {
          while (!over_.load(std::memory_order_relaxed)) {
            usleep(100'000);
            for (const Trace* trace : g_traces) {
              if (trace != nullptr) trace->watch(patience);
            }
          }
        }) {}
  ~Watchdog() {
    over_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

heddle_context join(const char* bootstrap, const char* transport, heddle_inproc_job job, std::uint32_t rank,
                    const char* progress) {
  heddle_context_options options{};
  options.size = sizeof options;
  options.bootstrap = bootstrap;
  options.transport = transport;
  options.job = job;
  options.rank = rank;
  options.progress = progress;
  heddle_context context{};
  if (heddle_context_join(&options, &context) != HEDDLE_DONE) fail("cannot join");
  return context;
}

const char* progress_of(std::uint64_t seed) {
  constexpr const char* kAll[] = {"none", "none", "idle", "adaptive", "dedicated:1"};
  return kAll[seed % std::size(kAll)];
}

int summary(const Settings& settings, std::uint64_t rounds) {
  std::uint64_t calls = 0;
  std::size_t missed = 0;
  std::map<std::string, std::uint64_t> good;
  std::map<std::string, std::uint64_t> made;
  for (const Trace* trace : g_traces) {
    if (trace == nullptr) continue;
    calls += trace->calls();
    for (const auto& [name, count] : trace->counts) made[name] += count;
    for (const auto& [name, count] : trace->good) good[name] += count;
  }
  for (const Row& row : table()) {
    if (settings.verbose) {
      std::printf("%-36s %8llu %8llu\n", row.name, static_cast<unsigned long long>(made[row.name]),
                  static_cast<unsigned long long>(good[row.name]));
    }
    if (made[row.name] > 0) continue;
    std::printf("%s was not called\n", row.name);
    ++missed;
  }
  std::printf("api_fuzz: %llu calls in %llu rounds, %s, --seed %llu\n", static_cast<unsigned long long>(calls),
              static_cast<unsigned long long>(rounds), settings.transport.c_str(),
              static_cast<unsigned long long>(settings.seed));
  // So many calls leave none out, unless the table is wrong.
  return missed > 0 && settings.calls >= 20'000 && settings.seconds == 0 ? 4 : 0;
}

std::int64_t until(const Settings& settings) {
  return settings.seconds > 0 ? now_ns() + static_cast<std::int64_t>(settings.seconds * 1e9) : 0;
}

int run_threads(const Settings& settings) {
  static Meeting meeting{};
  Trace traces[2] = {{settings.seed, 0}, {settings.seed, 1}};
  for (int i = 0; i < 2; ++i) g_traces[i] = &traces[i];
  const Watchdog watchdog(settings.patience);
  Rank ranks[2] = {{settings, 0, meeting, traces[0]}, {settings, 1, meeting, traces[1]}};
  const std::int64_t end = until(settings);
  std::uint64_t rounds = 0;
  for (std::uint64_t left = settings.calls; left > 0; ++rounds) {
    if (end > 0 && now_ns() > end) break;
    const std::uint64_t calls = std::min(left, settings.round);
    left -= calls;
    heddle_inproc_job job{};
    if (heddle_inproc_create(2, &job) != HEDDLE_DONE) fail("no job");
    const std::uint64_t seed = settings.seed * 1'000'003 + rounds;
    for (Meeting::Side& side : meeting.sides) side.workers = 0;
    std::thread threads[2];
    for (std::uint32_t i = 0; i < 2; ++i) {
      threads[i] = std::thread([&, i] {
        ranks[i].round(join("inproc", settings.transport.c_str(), job, i, progress_of(seed)), seed, calls, end);
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (heddle_inproc_close(job) != HEDDLE_DONE) fail("the job is in use");
  }
  const int result = summary(settings, rounds);
  return result;
}

// One round in each of two processes. They meet in a page that rank 0 makes.
int run_processes(const Settings& settings) {
  const heddle_context context = join("auto", settings.transport.c_str(), {}, 0, progress_of(settings.seed));
  std::uint32_t number = 0;
  std::uint32_t size = 0;
  if (heddle_context_rank(context, &number) != HEDDLE_DONE || heddle_context_size(context, &size) != HEDDLE_DONE)
    fail("rank");
  if (size != 2) fail("two ranks are needed");
  std::int64_t mine[2] = {getpid(), -1};
  if (number == 0) {
    mine[1] = memfd_create("api_fuzz", MFD_CLOEXEC);
    if (mine[1] < 0 || ftruncate(static_cast<int>(mine[1]), sizeof(Meeting)) != 0) fail("no memory to meet in");
  }
  std::int64_t all[4];
  if (heddle_context_exchange(context, mine, sizeof mine, all) != HEDDLE_DONE) fail("exchange");
  const std::string path = "/proc/" + std::to_string(all[0]) + "/fd/" + std::to_string(all[1]);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) fail("the other rank's memory cannot be opened");
  void* page = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (page == MAP_FAILED) fail("mmap");
  Trace trace(settings.seed, number);
  g_traces[number] = &trace;
  {
    const Watchdog watchdog(settings.patience);
    Rank rank(settings, number, *static_cast<Meeting*>(page), trace);
    rank.round(context, settings.seed * 1'000'003, settings.calls, until(settings));
  }
  g_traces[number] = nullptr;
  return number == 0 ? (g_traces[number] = &trace, summary(settings, 1)) : 0;
}

heddle_sharing mode_of(std::string_view name) {
  constexpr std::string_view kNames[] = {"any", "exclusive", "shared", "offload", "delegate", "", "auto"};
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (!name.empty() && name == kNames[i]) return static_cast<heddle_sharing>(i);
  }
  std::fprintf(stderr, "api_fuzz: --mode %.*s; any, exclusive, shared, offload, delegate or auto\n",
               static_cast<int>(name.size()), name.data());
  std::_Exit(2);
}

int usage() {
  std::fprintf(
      stderr,
      "usage: api_fuzz [--list] [--verbose] [--seed N] [--calls N] [--round N] [--seconds S] [--transport NAME] "
      "[--mode MODE] [--patience S]\n");
  return 2;
}

}  // namespace
}  // namespace heddle::tests::api

int main(int count, char** words) {
  using namespace heddle::tests::api;  // NOLINT: the whole program
  Settings settings;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--list") {
      for (const Row& row : table()) std::printf("%s\n", row.name);
      return 0;
    }
    if (word == "--verbose") {
      settings.verbose = true;
      continue;
    }
    if (i + 1 == count) return usage();
    const char* value = words[++i];
    if (word == "--seed")
      settings.seed = std::strtoull(value, nullptr, 0);
    else if (word == "--calls")
      settings.calls = std::strtoull(value, nullptr, 0);
    else if (word == "--round")
      settings.round = std::max(1ULL, std::strtoull(value, nullptr, 0));
    else if (word == "--seconds")
      settings.seconds = std::strtod(value, nullptr);
    else if (word == "--transport")
      settings.transport = value;
    else if (word == "--mode")
      settings.mode = mode_of(value);
    else if (word == "--patience")
      settings.patience = std::strtod(value, nullptr);
    else
      return usage();
  }
  tell_faults();
  const bool launched = std::getenv("HEDDLE_LOCAL_FD") != nullptr || std::getenv("PMIX_RANK") != nullptr;
  return launched ? run_processes(settings) : run_threads(settings);
}
