// One job from start to end: starts the ranks, serves their bootstrap, detects deaths, forwards
// signals and output, and returns only when all processes have ended.
#pragma once

#include <memory>
#include <optional>

#include "bootstrap/local/watchdog.hpp"
#include "tools/run/interests.hpp"
#include "tools/run/metrics_port.hpp"
#include "tools/run/output.hpp"
#include "tools/run/spawn.hpp"

namespace heddle::tools::run {

class Launcher {
 public:
  explicit Launcher(const RunOptions& options);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // The exit code of the command.
  int run();
  // Some process has joined the job at some time.
  [[nodiscard]] bool has_been_joined() const {
    return broker_ && (broker_->anybody_joined() || !broker_->departures().empty());
  }

 private:
  struct Rank {
    Child child;
    bool running = false;
    // valid if a process other than the one started has joined (a script's child, for example)
    base::Fd joined_pidfd;
    bool lost_told = false;
    bool judged = false;  // what the end of its process means
    bool dead = false;    // with --exit-code survivors: its death has been told
    TaggedStream output;
    TaggedStream error;
  };
  // Each stage includes the earlier ones.
  enum class Stage { running, grace, terminating, killing };
  // The events of a rank's descriptors.
  enum Source : std::uint32_t { output, error, socket, joined_process, process, kSources };

  base::Status prepare();
  base::Status prepare_utofu();
  base::Status watch_for_hangs();
  base::Status open_metrics();
  base::Status start_ranks();
  int start_failed(base::Status status);
  void take_failures();
  void loop();
  base::Status watch(std::uint32_t rank);
  void watch_changed();
  void await();
  void handle(std::uint32_t rank, Source source);
  void serve_socket(std::uint32_t rank);
  void process_ended(std::uint32_t rank);
  [[nodiscard]] std::optional<std::uint32_t> killed_first(std::uint32_t rank) const;
  void joined(std::uint32_t rank);
  void joined_process_ended(std::uint32_t rank);
  void judge(std::uint32_t rank);
  [[nodiscard]] bool after_another(std::uint32_t rank) const;
  void judge_held();
  void take_signals();
  void take_abort();
  void await_deaths();
  [[nodiscard]] int wait_ms() const;
  void check_deadlines();
  void end_by_time();
  void enter(Stage stage);
  // The first failure decides the exit code and is printed. Later ones follow from it, or from the
  // launcher's ending of the job.
  [[gnu::format(printf, 3, 4)]] void failure(int code, const char* format, ...);
  // A rank has died: a failure, unless the survivors decide.
  void death(std::uint32_t rank, int code, const std::string& text);
  [[nodiscard]] std::string name_of(std::uint32_t rank, pid_t pid) const;
  [[gnu::format(printf, 2, 3)]] void say(const char* format, ...);
  void say_each(const bootstrap::local::Watchdog::Lines& lines);
  void signal_ranks(int signal, bool all);
  void finish();
  void finish_output();
  void tell_failed_output();

  RunOptions options_;
  const Names& names_;
  std::optional<Guardian> guardian_;
  SpawnPlan plan_;
  base::Fd null_;
  base::Fd utofu_;     // --utofu: the emulated machine's memory
  base::Fd failures_;  // read end of the pipe of SpawnFailure
  base::Fd failures_writing_;
  base::Fd signals_;
  sigset_t signals_handled_{};
  Sink out_{STDOUT_FILENO};
  Sink err_{STDERR_FILENO};
  std::optional<bootstrap::local::Broker> broker_;
  std::optional<bootstrap::local::Watchdog> watchdog_;
  std::unique_ptr<MetricsPort> metrics_;  // --metrics
  std::size_t most_guests_ = 1;           // of these
  std::vector<Rank> ranks_;
  std::uint32_t running_ = 0;
  // Those of the ranks: five of each. The few others are polled.
  Interests interests_;
  std::vector<std::uint32_t> handled_;  // ranks whose awaited events may have changed
  bool output_paused_ = false;          // out_ was full when interests_ was told last
  bool error_paused_ = false;
  bool failed_output_told_ = false;

  Stage stage_ = Stage::running;
  std::uint64_t stage_ends_ns_ = 0;  // 0: no end by time
  std::uint64_t timeout_at_ns_ = 0;
  std::uint32_t lost_ = 0;  // the first rank whose connection ended before its process
  bool abort_taken_ = false;
  int interrupts_ = 0;
  ReaderPatience patience_;  // for readers of the output, after all ranks have ended
  std::optional<int> code_;  // of the first failure
  // --exit-code survivors: of the first death; a rank has ended well.
  std::optional<int> death_;
  bool ended_well_ = false;
  // A rank that failed while another rank, which left the job earlier, still runs: its failure may
  // only be a consequence of that rank's.
  struct Held {
    std::uint32_t rank;
    int code;
  };
  std::optional<Held> held_;
};

}  // namespace heddle::tools::run
