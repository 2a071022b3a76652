#include "tools/run/launcher.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/clock.hpp"
#include "base/config.hpp"
#include "bootstrap/common.hpp"

namespace heddle::tools::run {
namespace {

using bootstrap::local::Membership;

constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr std::uint64_t kTerminateNs = 2'000'000'000;  // between SIGTERM and SIGKILL
constexpr int kTimeoutCode = 124;                      // as timeout(1) has
constexpr int kCannotRunCode = 126;                    // as a shell has
constexpr int kNotFoundCode = 127;
constexpr int kSystemCode = 125;  // the launcher itself failed
constexpr int kCongestedMs = 2;
constexpr int kUnwatchedMs = 100;
// Per rank: socket, pidfd, pidfd of the joined process, card; with --tag two pipes.
constexpr std::size_t kDescriptorsPerRank = 4;
constexpr std::size_t kPipesPerRank = 2;
// The guardian's pipe, /dev/null, signalfd, pipe of failures, two of epoll and a socket to wait for
// ranks and at the door, two sinks, the memory of the node's board and that of an emulated machine;
// what starting a rank takes meanwhile (its ends of a socket and two pipes); reading a file in
// /proc.
constexpr std::size_t kDescriptorsBesides = 17;
// For clients that ask (`heddle top`, --metrics): so many more descriptors are wanted, but the
// launcher can do without them.
constexpr std::size_t kDescriptorsWanted = 128;
// for a client that asks, and for finding out whose process it is
constexpr std::size_t kMetricsDescriptors = MetricsPort::kDescriptors + 2;

std::uint64_t now_ns() {
  return base::SystemClock().now_ns();
}

// The most clients at --metrics at a time, so that everything else has its descriptors. Other
// clients ask at the door.
std::size_t guests_beyond(std::size_t needed) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur <= needed) return 1;
  return std::min<rlim_t>(1 + (files.rlim_cur - needed) / 2, MetricsPort::kMostGuests);
}

}  // namespace

Launcher::Launcher(const RunOptions& options) : options_(options), names_(*options.names), ranks_(options.ranks) {}
Launcher::~Launcher() = default;

int Launcher::run() {
  if (const base::Status status = prepare(); status != HEDDLE_DONE) return start_failed(status);
  if (const base::Status status = start_ranks(); status != HEDDLE_DONE) return start_failed(status);
  failures_writing_.reset();
  if (options_.timeout_ns != 0) timeout_at_ns_ = now_ns() + options_.timeout_ns;
  loop();
  if (!code_ && death_ && !ended_well_) code_ = death_;
  finish();
  return code_.value_or(0);
}

int Launcher::start_failed(base::Status) {
  failure(kSystemCode, "%s", base::last_message());
  finish();
  return *code_;
}

base::Status Launcher::prepare() {
  const std::size_t needed = open_descriptors() + kDescriptorsBesides + (options_.metrics ? kMetricsDescriptors : 0) +
                             options_.ranks * (kDescriptorsPerRank + (options_.tag ? kPipesPerRank : 0));
  if (const auto status = allow_descriptors(needed + kDescriptorsWanted, needed, &plan_.files); status != HEDDLE_DONE)
    return status;
  most_guests_ = guests_beyond(needed);
  ::signal(SIGCHLD, SIG_DFL);  // an inherited SIG_IGN would discard the ranks' exit codes
  auto guardian = Guardian::start();
  if (!guardian) return guardian.status();
  guardian_.emplace(std::move(*guardian));
  plan_.files = rank_descriptors(plan_.files, options_.ranks);

  ::signal(SIGPIPE, SIG_IGN);  // write(2) reports a reader of our output that has gone
  sigemptyset(&signals_handled_);
  for (const int signal : kForwarded) sigaddset(&signals_handled_, signal);
  if (::sigprocmask(SIG_BLOCK, &signals_handled_, &plan_.signals) != 0)
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "sigprocmask");
  signals_.reset(::signalfd(-1, &signals_handled_, SFD_CLOEXEC | SFD_NONBLOCK));
  null_.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
  std::array<int, 2> ends{};
  if (!signals_.valid() || !null_.valid() || ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "cannot open a signalfd, /dev/null or a pipe");
  }
  failures_.reset(ends[0]);
  failures_writing_.reset(ends[1]);
  plan_.options = &options_;
  plan_.guardian = &*guardian_;
  plan_.null = null_.get();
  plan_.failures = failures_writing_.get();
  if (const auto status = prepare_utofu(); status != HEDDLE_DONE) return status;
  const auto secret = bootstrap::make_secret();
  if (!secret) return secret.status();
  broker_.emplace(options_.ranks, *secret);
  if (const auto status = interests_.open(std::size_t{options_.ranks} * kSources); status != HEDDLE_DONE) return status;
  if (const auto status = watch_for_hangs(); status != HEDDLE_DONE) return status;
  if (const auto status = open_metrics(); status != HEDDLE_DONE) return status;
  broker_->on_joined([this](std::uint32_t rank) { joined(rank); });
  return HEDDLE_DONE;
}

// As HEDDLE_HANG_SECONDS says, here or for the ranks. If another setting cannot be read they reject
// to join, each with a message: the program may mean to set it itself.
base::Status Launcher::watch_for_hangs() {
  constexpr std::string_view kName = "HEDDLE_HANG_SECONDS";
  base::Config::Overrides overrides;
  for (const auto& [name, value] : options_.environment) {
    if (name == kName) overrides[name] = value;
  }
  const auto config = base::Config::read(overrides);
  if (!config) {
    return std::string_view(base::last_message()).starts_with(kName) ? config.status() : HEDDLE_DONE;
  }
  watchdog_.emplace(*broker_, options_.ranks,
                    bootstrap::local::Watchdog::Options{config->number(base::Var::hang_seconds), names_.rank},
                    [this](const bootstrap::local::Watchdog::Lines& report) { say_each(report); });
  // Even without a door, the job is watched.
  static_cast<void>(watchdog_->open_door());
  return HEDDLE_DONE;
}

base::Status Launcher::open_metrics() {
  if (!options_.metrics || !watchdog_) return HEDDLE_DONE;
  auto opened =
      MetricsPort::open(*options_.metrics, options_.metrics_for, most_guests_,
                        [this](MetricsPort::Answer answer) { watchdog_->ask_counters(std::move(answer), now_ns()); });
  if (!opened) return opened.status();
  metrics_ = std::move(*opened);
  if (*options_.metrics == 0) say("metrics are at http://127.0.0.1:%u/metrics", metrics_->port());
  return HEDDLE_DONE;
}

base::Status Launcher::prepare_utofu() {
  if (options_.utofu.shape.empty()) return HEDDLE_DONE;
  auto world = make_utofu_world();
  if (!world) return world.status();
  utofu_ = std::move(*world);
  plan_.utofu = utofu_.get();
  // Inserted first, so that --env overrides it.
  const auto variables = utofu_environment(options_.utofu, options_.ranks, plan_.utofu);
  options_.environment.insert(options_.environment.begin(), variables.begin(), variables.end());
  return HEDDLE_DONE;
}

base::Status Launcher::start_ranks() {
  std::vector<cpu_set_t> places;
  if (options_.bind_cores) {
    bool wrapped = false;
    auto placed = place(options_.ranks, options_.threads, &wrapped);
    if (!placed) return placed.status();
    places = std::move(*placed);
    if (wrapped) {
      say("warning: fewer cores than %u processes x %u threads; some processes share cores", options_.ranks,
          std::max(options_.threads, 1U));
    }
  }
  for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) {
    auto child = spawn(plan_, rank, places.empty() ? std::nullopt : std::optional(places[rank]));
    if (!child) return child.status();
    Rank& it = ranks_[rank];
    it.child = std::move(*child);
    it.running = true;
    ++running_;
    broker_->attach(rank, bootstrap::ProcessFd::unlisted(std::move(it.child.socket)));
    if (options_.tag) {
      it.output = TaggedStream(std::move(it.child.output), rank, &out_);
      it.error = TaggedStream(std::move(it.child.error), rank, &err_);
    }
    if (const base::Status status = watch(rank); status != HEDDLE_DONE) return status;
  }
  return HEDDLE_DONE;
}

// Reads the errors of children that could not start the program. The pipe ends when every child is
// past its exec, which may take any time (a file system that does not answer).
void Launcher::take_failures() {
  if (!failures_.valid()) return;
  SpawnFailure failed{};
  const ssize_t got = ::read(failures_.get(), &failed, sizeof failed);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got != static_cast<ssize_t>(sizeof failed)) return failures_.reset();
  const bool missing = failed.error == ENOENT || failed.error == ENOTDIR;
  const char* const why = std::strerror(failed.error);
  switch (failed.step) {
    case SpawnStep::start:
      failure(missing ? kNotFoundCode : kCannotRunCode, "cannot start %s: %s", options_.command.front().c_str(), why);
      break;
    case SpawnStep::bind:
      failure(kSystemCode,
              "--bind core: %s %u cannot be bound to its cores (sched_setaffinity): %s; this system forbids it, or has "
              "taken cores away; without --bind the processes run where the system lets them",
              names_.rank, failed.rank, why);
      break;
    case SpawnStep::redirect:
    case SpawnStep::inherit:
    case SpawnStep::limit:
      failure(kSystemCode, "cannot prepare %s %u (%s): %s", names_.rank, failed.rank,
              failed.step == SpawnStep::limit      ? "its limit of descriptors"
              : failed.step == SpawnStep::redirect ? "its standard streams"
                                                   : "its environment and connection",
              why);
      break;
  }
  enter(Stage::killing);
}

void Launcher::loop() {
  while (running_ > 0) {
    watch_changed();
    await();
    if (broker_->congested()) {
      for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) broker_->serve(rank);
    }
    take_abort();
    if (watchdog_) watchdog_->tick(now_ns());
    check_deadlines();
  }
}

base::Status Launcher::watch(std::uint32_t rank) {
  const Rank& it = ranks_[rank];
  const auto set = [&](Source source, int fd, short events) {
    return interests_.set(rank * kSources + source, fd, events);
  };
  const short running = it.running ? POLLIN : 0;
  // All are tried: its end above all must be seen, and a closed one forgotten.
  const base::Status of_process = set(process, it.child.pidfd.get(), running);
  const base::Status of_joined = set(joined_process, it.joined_pidfd.get(), running);
  const base::Status of_socket = set(socket, broker_->socket(rank), it.running ? broker_->events(rank) : 0);
  const base::Status of_output = set(output, it.output.fd(), it.output.readable_fd() >= 0 ? POLLIN : 0);
  const base::Status of_error = set(error, it.error.fd(), it.error.readable_fd() >= 0 ? POLLIN : 0);
  for (const base::Status status : {of_process, of_joined, of_socket, of_output, of_error}) {
    if (status != HEDDLE_DONE) return status;
  }
  return HEDDLE_DONE;
}

// Follows the changes of the last round.
void Launcher::watch_changed() {
  const bool paused = out_.full() != output_paused_ || err_.full() != error_paused_;
  output_paused_ = out_.full();
  error_paused_ = err_.full();
  std::vector<std::uint32_t> changed = broker_->take_touched();
  changed.insert(changed.end(), handled_.begin(), handled_.end());
  handled_.clear();
  if (paused) {
    changed.resize(options_.ranks);
    std::iota(changed.begin(), changed.end(), 0U);
  }
  for (const std::uint32_t rank : changed) {
    if (watch(rank) == HEDDLE_DONE) continue;
    handled_.push_back(rank);  // tried again: its end must not be missed
    failure(kSystemCode, "%s", base::last_message());
    enter(Stage::killing);
  }
}

// Waits for something to happen, and handles it.
void Launcher::await() {
  std::array<pollfd, 7> few{};
  std::size_t count = 0;
  const auto also = [&](int fd, short events) { few[count++] = {fd, events, 0}; };  // -1: none
  also(interests_.fd(), POLLIN);
  also(failures_.get(), POLLIN);
  also(signals_.get(), POLLIN);
  also(out_.waiting() ? out_.fd() : -1, POLLOUT);
  also(err_.waiting() ? err_.fd() : -1, POLLOUT);
  also(watchdog_ ? watchdog_->door_fd() : -1, POLLIN);
  also(metrics_ != nullptr ? metrics_->fd() : -1, POLLIN);
  if (::poll(few.data(), count, wait_ms()) <= 0) return;
  if (few[1].revents != 0) take_failures();
  if (few[2].revents != 0) take_signals();
  if (few[3].revents != 0 || few[4].revents != 0) {
    out_.flush();
    err_.flush();
  }
  tell_failed_output();
  if (few[5].revents != 0) watchdog_->serve_door();
  if (few[6].revents != 0) metrics_->serve();
  if (few[0].revents == 0) return;
  for (const std::uint32_t number : interests_.ready()) {
    handle(number / kSources, static_cast<Source>(number % kSources));
  }
}

void Launcher::handle(std::uint32_t rank, Source source) {
  handled_.push_back(rank);
  Rank& it = ranks_[rank];
  if (source == output) return it.output.serve();
  if (source == error) return it.error.serve();
  if (!it.running) return;  // its process has ended, as this round has shown before
  if (source == socket) return serve_socket(rank);
  if (source == process) return process_ended(rank);
  if (it.joined_pidfd.valid()) joined_process_ended(rank);
}

// Called before the process learns that it has joined, so that the guardian knows every member at
// any time.
void Launcher::joined(std::uint32_t rank) {
  Rank& it = ranks_[rank];
  const pid_t pid = broker_->pid(rank);
  if (pid <= 1 || pid == it.child.pid) return;
  // A process that has already ended has closed its socket; otherwise only the process that we
  // started can miss it.
  it.joined_pidfd = open_pidfd(pid);
  handled_.push_back(rank);
  // If the guardian is gone, somebody killed it; the job goes on without it.
  if (it.joined_pidfd.valid()) static_cast<void>(guardian_->announce_process(pid));
}

void Launcher::serve_socket(std::uint32_t rank) {
  broker_->serve(rank);
  Rank& it = ranks_[rank];
  if (broker_->membership(rank) != Membership::lost || it.lost_told) return;
  it.lost_told = true;
  if (!broker_->problem(rank).empty()) {
    death(rank, 1, name_of(rank, it.child.pid) + " was cut off: " + broker_->problem(rank));
  } else if (stage_ == Stage::running) {
    // Usually the rank's death follows at once and says more. Otherwise the grace time begins here.
    lost_ = rank;
    enter(Stage::grace);
  }
}

void Launcher::joined_process_ended(std::uint32_t rank) {
  Rank& it = ranks_[rank];
  it.joined_pidfd.reset();
  broker_->serve(rank);
  if (broker_->membership(rank) == Membership::left) return;
  const pid_t joined = broker_->pid(rank);
  broker_->ended(rank);
  take_abort();
  if (broker_->membership(rank) == Membership::left) return;
  death(rank, 1,
        std::string(names_.rank) + ' ' + std::to_string(rank) + " (pid " + std::to_string(joined) +
            ", started by pid " + std::to_string(it.child.pid) + ") ended without " + names_.leaving);
}

// On an emulated machine, a process that breaks a rule aborts, and the others exit when they learn
// of it. If several have ended by the same poll, the one killed by a signal is the one to report.
std::optional<std::uint32_t> Launcher::killed_first(std::uint32_t rank) const {
  if (options_.utofu.shape.empty()) return std::nullopt;
  const auto how = [](const Rank& one) {
    siginfo_t info{};
    const bool known = ::waitid(P_PID, static_cast<id_t>(one.child.pid), &info, WEXITED | WNOWAIT | WNOHANG) == 0;
    return known && info.si_pid != 0 ? info.si_code : 0;
  };
  if (how(ranks_[rank]) != CLD_EXITED) return std::nullopt;
  for (std::uint32_t other = 0; other < options_.ranks; ++other) {
    if (!ranks_[other].running || other == rank) continue;
    if (const int code = how(ranks_[other]); code == CLD_KILLED || code == CLD_DUMPED) return other;
  }
  return std::nullopt;
}

void Launcher::process_ended(std::uint32_t rank) {
  if (!ranks_[rank].running) return;  // process_ended() of another rank has handled it already
  if (const auto other = killed_first(rank)) process_ended(*other);
  Rank& it = ranks_[rank];
  it.running = false;
  --running_;
  handled_.push_back(rank);
  take_failures();       // written before the process ended; it says more than the exit code
  broker_->ended(rank);  // first: the other ranks learn of it before the launcher composes messages
  take_abort();
  judge(rank);
  if (held_ && !after_another(held_->rank)) judge_held();
  it.child.pidfd.reset();
}

// Whether a rank left the job before this one and its process still runs: the way that process ends
// may explain why this one failed.
bool Launcher::after_another(std::uint32_t rank) const {
  if (!broker_->has_joined(rank)) return false;
  for (const std::uint32_t other : broker_->departures()) {
    if (other == rank) return false;
    if (ranks_[other].running) return true;
  }
  return false;
}

// No rank that left before it has failed: reports the held failure.
void Launcher::judge_held() {
  const Held held = *held_;
  held_.reset();
  failure(held.code, "%s %u (pid %d) exited with code %d", names_.rank, held.rank, ranks_[held.rank].child.pid,
          held.code);
}

void Launcher::judge(std::uint32_t rank) {
  if (std::exchange(ranks_[rank].judged, true)) return;
  const pid_t pid = ranks_[rank].child.pid;
  // It stays a zombie until the end of the job, so that its number, which also names its group, is
  // not reused.
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0) {
    failure(kSystemCode, "%s %u (pid %d) cannot be waited for: %s", names_.rank, rank, pid, std::strerror(errno));
    return;
  }
  const bool was_in = broker_->has_joined(rank);
  const bool in_it = was_in && broker_->membership(rank) != Membership::left;
  if (info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED) {
    death(rank, 128 + info.si_status,
          name_of(rank, pid) + " was killed by signal " + std::to_string(info.si_status) + " (" +
              ::strsignal(info.si_status) + (info.si_code == CLD_DUMPED ? ", core dumped)" : ")"));
  } else if (info.si_status != 0 && in_it && options_.forgives_deaths) {
    death(rank, info.si_status,
          name_of(rank, pid) + " exited with code " + std::to_string(info.si_status) + " without " + names_.leaving);
  } else if (info.si_status != 0) {
    if (!held_) held_ = Held{rank, info.si_status};
    // it left before the held rank
    if (held_->rank != rank && !after_another(rank)) held_ = Held{rank, info.si_status};
    enter(Stage::grace);
  } else if (in_it) {
    death(rank, 1, name_of(rank, pid) + " exited without " + names_.leaving);
  } else {
    if (was_in || !broker_->anybody_joined()) ended_well_ = true;
    if (was_in || !broker_->anybody_joined() || stage_ != Stage::running) return;
    say("warning: %s %u (pid %d) exited without joining the job that other %ss have joined", names_.rank, rank, pid,
        names_.rank);
  }
}

void Launcher::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGUSR1 && signal != SIGUSR2) patience_.over = ReaderPatience::Over::by_signal;
    if (signal == SIGINT && ++interrupts_ > 1) {
      failure(128 + SIGINT, "interrupted twice; killing the job");
      enter(Stage::killing);
      continue;
    }
    signal_ranks(signal, false);
    if (signal == SIGINT) {
      say("interrupted; waiting for %u process%s, Ctrl-C again kills", running_, running_ == 1 ? "" : "es");
    }
  }
}

// A rank may abort the job because of a death of which the others have heard through the dead one's
// socket, which is closed a moment before its process has ended. That death is the first failure;
// the end of other ranks that abort the job is not. They all share one such moment. It may be long
// where processors are busy: helper threads, which run where nobody else does, end last.
void Launcher::await_deaths() {
  const std::uint64_t until = now_ns() + 5'000'000'000;
  const auto ends = [until](const base::Fd& pidfd) {
    pollfd end{pidfd.get(), POLLIN, 0};
    const std::uint64_t now = now_ns();
    return ::poll(&end, 1, now < until ? static_cast<int>((until - now) / 1'000'000) : 0) == 1;
  };
  for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) {
    const Rank& it = ranks_[rank];
    if (broker_->has_aborted(rank) || broker_->membership(rank) != Membership::lost) continue;
    if (it.joined_pidfd.valid() && ends(it.joined_pidfd)) joined_process_ended(rank);
    if (!it.running) {
      judge(rank);
    } else if (!it.joined_pidfd.valid() && ends(it.child.pidfd)) {
      process_ended(rank);
    }
  }
}

void Launcher::take_abort() {
  const auto& abort = broker_->aborted();
  if (!abort || abort_taken_) return;
  abort_taken_ = true;
  await_deaths();
  const char* colon = abort->message.empty() ? "" : ": ";
  // it has finished its work; deaths of the others are no failures
  if (abort->code == 0 && abort->message.empty()) {
    if (!code_) code_ = 0;
    return enter(Stage::terminating);
  }
  const std::string text = std::string(names_.rank) + ' ' + std::to_string(abort->rank) + " aborts the job with code " +
                           std::to_string(abort->code) + colon + abort->message;
  // After a death, the message says what could not go on without the dead rank.
  if (code_ && stage_ == Stage::grace && !abort->message.empty()) say("%s", text.c_str());
  failure(abort->code, "%s", text.c_str());
  enter(Stage::terminating);
}

int Launcher::wait_ms() const {
  if (broker_->congested()) return kCongestedMs;
  if (!handled_.empty()) return kUnwatchedMs;
  std::uint64_t next = UINT64_MAX;
  if (stage_ends_ns_ != 0) next = stage_ends_ns_;
  if (timeout_at_ns_ != 0) next = std::min(next, timeout_at_ns_);
  if (watchdog_ && watchdog_->due_ns() != 0) next = std::min(next, watchdog_->due_ns());
  if (next == UINT64_MAX) return -1;
  const std::uint64_t now = now_ns();
  if (next <= now) return 0;
  return static_cast<int>(std::min<std::uint64_t>((next - now) / 1'000'000 + 1, 3'600'000));
}

// If ranks wait in the library, the user is first told what they wait for.
void Launcher::end_by_time() {
  timeout_at_ns_ = 0;
  patience_.over = ReaderPatience::Over::by_time;
  // replaces any earlier code: a user who sets a limit wants to know that it was reached
  code_.reset();
  failure(kTimeoutCode, "the time limit of %.6g s is over; ending %u processes",
          static_cast<double>(options_.timeout_ns) / 1e9, running_);
  if (stage_ > Stage::grace || !watchdog_ || !watchdog_->somebody_waits()) return enter(Stage::terminating);
  stage_ends_ns_ = 0;  // the answer comes in any case, and soon
  watchdog_->inquire(
      [this](const bootstrap::local::Watchdog::Lines& report) {
        if (stage_ <= Stage::grace) say_each(report);
        enter(Stage::terminating);
      },
      now_ns());
}

void Launcher::check_deadlines() {
  const std::uint64_t now = now_ns();
  if (timeout_at_ns_ != 0 && now >= timeout_at_ns_ && running_ > 0) end_by_time();
  if (stage_ends_ns_ == 0 || now < stage_ends_ns_ || running_ == 0) return;
  if (stage_ == Stage::grace) {
    if (held_) judge_held();
    if (death_ && !code_) code_ = death_;  // a rank that is ended now has not ended well
    // No failure yet: a rank has closed its connection but its process still runs.
    failure(1, "%s %u (pid %d) has closed its connection to the launcher without %s", names_.rank, lost_,
            ranks_[lost_].child.pid, names_.leaving);
    say("%u processes still run %.6g s after the failure; ending them (--grace S|unlimited leaves them more time)",
        running_, static_cast<double>(options_.grace_ns) / 1e9);
    enter(Stage::terminating);
  } else {
    enter(Stage::killing);
  }
}

void Launcher::enter(Stage stage) {
  if (stage <= stage_) return;
  stage_ = stage;
  switch (stage) {
    case Stage::running:
      return;
    case Stage::grace:
      stage_ends_ns_ = options_.grace_ns == kUnlimited ? 0 : now_ns() + options_.grace_ns;
      return;
    case Stage::terminating:
      stage_ends_ns_ = now_ns() + kTerminateNs;
      signal_ranks(SIGTERM, false);
      // a stopped process does not handle SIGTERM before it continues
      signal_ranks(SIGCONT, false);
      return;
    case Stage::killing:
      stage_ends_ns_ = 0;
      signal_ranks(SIGKILL, true);
      return;
  }
}

// all: also the groups of ranks that have ended, for processes that they left running. The group
// numbers are still theirs, since the ranks are not reaped before finish(). A process that has left
// the group (setpgid, setsid) gets the signal separately; one that is still in the group must not
// get it twice.
void Launcher::signal_ranks(int signal, bool all) {
  for (const Rank& it : ranks_) {
    const pid_t group = it.child.pid;
    if (group <= 0 || !(all || it.running)) continue;
    ::kill(-group, signal);
    if (it.running && ::getpgid(group) != group) ::kill(group, signal);
    const pid_t joined = broker_->pid(static_cast<std::uint32_t>(&it - ranks_.data()));
    if (it.joined_pidfd.valid() && ::getpgid(joined) != group) send_signal(it.joined_pidfd, signal);
  }
}

void Launcher::failure(int code, const char* format, ...) {
  if (code_) return;
  code_ = code;
  std::array<char, 2048> text;
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  say("%s", text.data());
  enter(Stage::grace);
}

void Launcher::death(std::uint32_t rank, int code, const std::string& text) {
  if (!options_.forgives_deaths) return failure(code, "%s", text.c_str());
  if (std::exchange(ranks_[rank].dead, true)) return;
  if (stage_ <= Stage::grace) say("%s", text.c_str());
  if (!death_) death_ = code;
  enter(Stage::grace);
}

std::string Launcher::name_of(std::uint32_t rank, pid_t pid) const {
  return std::string(names_.rank) + ' ' + std::to_string(rank) + " (pid " + std::to_string(pid) + ')';
}

void Launcher::say_each(const bootstrap::local::Watchdog::Lines& lines) {
  for (const std::string& line : lines) say("%s", line.c_str());
}

void Launcher::say(const char* format, ...) {
  std::array<char, 2200> text;
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  err_.add(std::string(names_.command) + ": " + text.data() + '\n');
  err_.flush();
}

void Launcher::finish() {
  signal_ranks(SIGKILL, true);
  for (Rank& it : ranks_) {
    while (it.child.pid > 0 && ::waitpid(it.child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    it.child.pid = 0;
  }
  guardian_.reset();
  finish_output();
}

// Writes what the ranks wrote before they ended. A process that has left its group may still hold a
// pipe; the launcher does not wait for it. As with other programs, a reader of the output may take
// any time (a pager, a stopped terminal), unless a signal or the time limit has ended the job, or
// comes now.
void Launcher::finish_output() {
  patience_.signals = signals_.get();
  patience_.until_ns = timeout_at_ns_;
  const bool ended_by_itself = patience_.over == ReaderPatience::Over::no;
  for (Rank& it : ranks_) {
    it.output.drain(&patience_);
    it.error.drain(&patience_);
  }
  out_.finish(&patience_);
  tell_failed_output();
  if (out_.dropped() > 0) {
    say("%zu bytes of the %ss' output or more are lost: nobody has read it for %d s", out_.dropped(), names_.rank,
        static_cast<int>(Sink::kPatienceNs / 1'000'000'000));
  }
  err_.finish(&patience_);
  if (ended_by_itself && patience_.over == ReaderPatience::Over::by_time && out_.dropped() + err_.dropped() > 0) {
    code_ = kTimeoutCode;
  }
  if (!code_ && out_.dropped() + err_.dropped() > 0) code_ = kSystemCode;
  if (!code_ && (out_.failed() || err_.failed())) code_ = kSystemCode;
  // as it ends other programs whose reader goes before they have written all
  if (!code_ && (out_.error() == EPIPE || err_.error() == EPIPE)) code_ = 128 + SIGPIPE;
}

// Once. The ranks go on: their work may be worth more than what they print.
void Launcher::tell_failed_output() {
  if (failed_output_told_ || !out_.failed()) return;
  failed_output_told_ = true;
  say("cannot write the %ss' output: %s; what is not written is lost, and the exit code is not 0", names_.rank,
      std::strerror(out_.error()));
}

}  // namespace heddle::tools::run
