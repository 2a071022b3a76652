#include "work/collective.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "driver/spawn.hpp"
#include "harness/collective_times.hpp"
#include "harness/cores.hpp"
#include "harness/option_values.hpp"
#include "heddle/heddle.h"
#include "work/collective_calls.hpp"

namespace heddle::bench::work {

namespace {

constexpr std::uint64_t kSilenceNs = 120'000'000'000;

class Heddle {
 public:
  explicit Heddle(const harness::CollectiveOptions& options) : options_(options) {
    must(heddle_context_join(nullptr, &context_), "heddle_context_join");
    must(heddle_team_world(context_, &team_), "heddle_team_world");
    must(heddle_team_rank(team_, &rank_), "heddle_team_rank");
    must(heddle_team_size(team_, &size_), "heddle_team_size");
  }
  Heddle(const Heddle&) = delete;
  Heddle& operator=(const Heddle&) = delete;
  ~Heddle() {
    must(heddle_team_free(team_), "heddle_team_free");
    must(heddle_context_leave(context_), "heddle_context_leave");
  }

  [[nodiscard]] static const char* name() { return "heddle"; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  void barrier() { must(heddle_barrier(team_), "heddle_barrier"); }
  void exchange(const void* mine, std::size_t bytes, void* all) {
    must(heddle_context_exchange(context_, mine, bytes, all), "heddle_context_exchange");
  }
  [[nodiscard]] double* send() const { return send_; }
  [[nodiscard]] double* receive() const { return receive_; }
  [[nodiscard]] std::string algorithm() const { return algorithm_; }

  bool make(const std::string& operation, const std::string& form, std::size_t doubles) {
    operation_ = operation;
    form_ = form;
    doubles_ = doubles;
    place(doubles * std::max(size_, 2U));
    algorithm_ = "-";
    if (form != "persistent") return true;
    // Of another operation than the one that is named: what is chosen.
    const bool named = options_.algorithm.starts_with(operation + ".");
    const heddle_collective_options options{sizeof options, named ? options_.algorithm.c_str() : nullptr, 0};
    must(call(Form::persistent, &options), "the init");
    const char* text = nullptr;
    must(heddle_collective_algorithm(collective_, &text), "heddle_collective_algorithm");
    algorithm_ = text;
    return true;
  }
  void start() {
    if (form_ == "persistent") must(heddle_collective_start(collective_), "heddle_collective_start");
    if (form_ == "nonblocking") must(call(Form::nonblocking, nullptr), "the start");
  }
  void wait() {
    if (form_ == "blocking") {
      must(call(Form::blocking, nullptr), "the operation");
    } else {
      must(heddle_collective_wait(collective_, HEDDLE_FOREVER), "heddle_collective_wait");
    }
  }
  void drop() {
    if (form_ == "persistent") must(heddle_collective_free(collective_), "heddle_collective_free");
    barrier();  // nobody puts there any more
    must(heddle_region_release(region_), "heddle_region_release");
    own_.clear();
  }

 private:
  void must(heddle_status status, const char* what) const {
    if (status >= 0) return;
    std::fprintf(stderr, "heddle bench: %s: %s\n", what, heddle_last_error());
    if (context_.id != 0) heddle_context_abort(context_, 1, heddle_last_error());
    std::exit(1);
  }

  void place(std::size_t doubles) {
    const std::size_t bytes = (2 * doubles + 16) * sizeof(double);
    must(heddle_region_alloc(context_, options_.memory == "own" ? 64 : bytes, &region_), "heddle_region_alloc");
    void* address = nullptr;
    must(heddle_region_address(region_, &address, nullptr), "heddle_region_address");
    if (options_.memory == "own") {
      own_.resize(bytes / sizeof(double));
      address = own_.data();
    }
    send_ = static_cast<double*>(address);
    receive_ = send_ + doubles + 8;
  }

  heddle_status call(Form form, const heddle_collective_options* options) {
    return call_collective(operation_, {form, team_, rank_, size_, send_, receive_, doubles_, options, &collective_});
  }

  const harness::CollectiveOptions& options_;
  heddle_context context_{};
  heddle_team team_{};
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
  heddle_region region_{};
  std::vector<double> own_;
  double* send_ = nullptr;
  double* receive_ = nullptr;
  std::string operation_;
  std::string form_;
  std::string algorithm_;
  std::size_t doubles_ = 0;
  heddle_collective collective_{};
};

// A word that two processes of a job answer each other in; nothing of Heddle. Null: there is none,
// and stderr says why.
std::atomic<std::uint64_t>* shared_word(Heddle& library) {
  std::array<std::array<char, 64>, 2> names{};
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "/heddle-bench-%d", static_cast<int>(::getpid()));
  library.exchange(name.data(), name.size(), names.data());
  const bool first = library.rank() == 0;
  int file = first ? ::shm_open(names[0].data(), O_RDWR | O_CREAT | O_EXCL, 0600) : -1;
  const bool made = first && file >= 0 && ::ftruncate(file, 4096) == 0;
  library.barrier();
  if (!first) file = ::shm_open(names[0].data(), O_RDWR, 0600);
  void* memory =
      file >= 0 && (made || !first) ? ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (memory == MAP_FAILED) std::perror("heddle bench: the shared line of the limit");
  if (file >= 0) ::close(file);
  std::array<std::uint64_t, 2> there{};
  const std::uint64_t mine = memory == MAP_FAILED ? 0 : 1;
  library.exchange(&mine, sizeof mine, there.data());
  if (first) ::shm_unlink(names[0].data());
  return there[0] + there[1] == 2 ? static_cast<std::atomic<std::uint64_t>*>(memory) : nullptr;
}

// What a barrier of two can at best take: one line that goes to and fro, half a round trip; and
// barriers one after the other, by turns with it.
void print_barriers_beside_the_line(Heddle& library, const harness::CollectiveOptions& options) {
  constexpr std::uint64_t kRounds = 20'000;
  std::atomic<std::uint64_t>* word = shared_word(library);
  if (word == nullptr) return;
  std::array<std::vector<double>, 2> times_ns;
  std::uint64_t turn = library.rank();
  for (std::uint32_t repeat = 0; repeat < options.repeat; ++repeat) {
    library.barrier();
    std::uint64_t begin = harness::now_ns();
    for (std::uint64_t i = 0; i < kRounds; ++i, turn += 2) {
      harness::spin_until([&] { return word->load(std::memory_order_acquire) == turn; });
      word->store(turn + 1, std::memory_order_release);
    }
    times_ns[0].push_back(static_cast<double>(harness::now_ns() - begin) / (2 * kRounds));
    library.barrier();
    begin = harness::now_ns();
    for (std::uint64_t i = 0; i < kRounds; ++i) library.barrier();
    times_ns[1].push_back(static_cast<double>(harness::now_ns() - begin) / kRounds);
  }
  if (library.rank() == 0) {
    const std::array<const char*, 2> what = {"limit,barrier,one_after_another,line",
                                             "heddle,barrier,one_after_another,-"};
    for (std::size_t i = 0; i < what.size(); ++i) {
      const harness::Summary ns = harness::summarize(times_ns[i]);
      std::printf("%s,2,0,0,0,0,%.0f,%.0f,%.0f,0,0,yes\n", what[i], ns.median, ns.low95, ns.high95);
    }
  }
  ::munmap(word, 4096);
}

// Itself once more, in a job of so many processes.
int run_job(std::uint32_t ranks, int argc, char** argv) {
  const std::string own = driver::own_path();
  const char* binding = ranks <= harness::Cores::allowed().count() ? "core" : "none";
  driver::Program program{"heddle", {own, "run", "-n", std::to_string(ranks), "--bind", binding, own, "bench"}, {}};
  program.arguments.insert(program.arguments.end(), argv + 1, argv + argc);
  return driver::run(program, kSilenceNs, [](const std::string& line) { std::puts(line.c_str()); });
}

}  // namespace

int run_collectives(int argc, char** argv) {
  std::string error;
  const auto options = harness::parse_collective_options(argc, argv, &error);
  if (!options) {
    std::fprintf(stderr, "heddle bench: %s\n%s", error.c_str(), harness::kHelpHint);
    return 2;
  }
  if (std::getenv("HEDDLE_LOCAL_RANK") == nullptr) {
    for (const std::uint32_t ranks : options->ranks) {
      if (const int status = run_job(ranks, argc, argv); status != 0) return status;
    }
    return 0;
  }
  Heddle library(*options);
  const bool right = harness::CollectiveTimes(library, *options).run();
  const bool barrier = std::find(options->names.begin(), options->names.end(), "barrier") != options->names.end();
  if (barrier && library.size() == 2) print_barriers_beside_the_line(library, *options);
  return right ? 0 : 1;
}

}  // namespace heddle::bench::work
