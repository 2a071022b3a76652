#include "driver/participants.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "harness/channel.hpp"
#include "harness/core_time.hpp"
#include "harness/cores.hpp"
#include "measure/programs.hpp"

namespace heddle::bench::driver {

namespace {

using harness::BenchOptions;
using Words = std::vector<std::string>;

const Words kUcxTcp = {"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"};

// A library that Heddle is compared with.
struct Peer {
  std::string name;
  std::string path;  // of its program
  std::string packages;
  Words start;  // the words before the number of processes and the path; empty: it forks
  Words environment = {};
  bool in_all = false;    // not only in `programs`
  bool in_pairs = false;  // duplex also by several pairs of processes
  bool networks_only = false;
  bool messages = true;  // without: of programs of more than two processes only the exchange
  // a shell file with launcher and library path, of one that was installed by itself
  std::string settings = {};
};

// The tool lies in tools/ of the build tree, the programs in bench/libraries.
std::string folder() {
  const std::string own = own_path();
  const std::size_t slash = own.rfind('/');
  return (slash == std::string::npos ? std::string(".") : own.substr(0, slash)) + "/../bench/libraries/";
}

std::vector<Peer> packaged() {
  const Words mpirun = {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"};
  const std::string program = folder() + "bench_";
  const std::string openmpi = "libopenmpi-dev openmpi-bin";
  return {
      {"ucx", program + "ucx", "libucx-dev", {}, {"UCX_WARN_UNUSED_ENV_VARS=n"}, true},
      {"ofi", program + "ofi", "libfabric-dev", {}, {}, false, false, true},
      {"openmpi", program + "openmpi", openmpi, mpirun, {}, true, true},
      {"mpich", program + "mpich", "libmpich-dev mpich", {"mpirun.mpich", "-n"}},
      // Debian's OpenSHMEM ends with a segmentation fault unless one-sided MPI over RDMA is left
      // out.
      {"oshmem", program + "oshmem", openmpi, mpirun, {"OMPI_MCA_osc=^rdma"}, true, false, false, false},
      {"shmem",
       program + "shmem",
       "cmake",
       {own_path(), "run", "--bind", "none", "-n"},
       {"HEDDLE_PEERS_DIR"},
       true,
       false,
       false,
       false},
  };
}

// Those of scripts/install_peers.sh: a folder each, with peer.env, and the program that
// build_peers.sh made beside it. They take part in `programs`.
std::vector<Peer> installed() {
  const char* set = std::getenv("HEDDLE_PEERS_DIR");
  const std::filesystem::path root = set != nullptr && *set != '\0' ? std::string(set) : folder() + "../../../peers";
  std::vector<Peer> out;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(root, none)) {
    const std::filesystem::path file = entry.path() / "peer.env";
    if (!std::filesystem::exists(file, none)) continue;
    Peer& peer = out.emplace_back();
    peer.name = entry.path().filename().string() + " of " + root.lexically_normal().string();
    peer.path = (entry.path() / "heddle_program").string();
    peer.packages = "run bench/libraries/build_peers.sh build/release";
    // $0: the settings; $1: the number of processes; then the program and its arguments.
    peer.start = {"/bin/bash", "-c",
                  ". \"$0\" && export LD_LIBRARY_PATH && count=$1 && shift && "
                  "if [[ -n $RUN ]]; then exec $RUN -n \"$count\" \"$@\"; else exec \"$@\"; fi",
                  file.string()};
    peer.environment = {"UCX_WARN_UNUSED_ENV_VARS=n"};
  }
  std::sort(out.begin(), out.end(), [](const Peer& a, const Peer& b) { return a.name < b.name; });
  return out;
}

// Why the peer cannot take part; empty: it can.
std::string missing(const Peer& peer) {
  if (access(peer.path.c_str(), X_OK) != 0) return "its program was not built (Debian: " + peer.packages + ")";
  if (peer.start.empty() || peer.start[0][0] == '/' || !find_in_path(peer.start[0]).empty()) return {};
  return peer.start[0] + " is not in PATH (Debian: " + peer.packages + ")";
}

// Removes the caller's choices that would contradict this, or measure something other than the
// peer.
Words over(const char* transport, Words more = {}) {
  more.insert(more.end(), {std::string("HEDDLE_TRANSPORT=") + transport, "HEDDLE_TRANSPORTS", "HEDDLE_NODE_RANKS",
                           "HEDDLE_UCX_TLS", "HEDDLE_NET_DEVICES"});
  return more;
}

// Puts the participants together, in the order in which they take their turns.
class Party {
 public:
  Party(const BenchOptions& options, std::uint32_t repeat) : options_(options), repeat_(repeat) {
    if (!options.peers) return;
    peers_ = packaged();
    if (wants("programs") || harness::are_collectives(options)) {
      for (Peer& peer : installed()) peers_.push_back(std::move(peer));
    }
    std::erase_if(peers_, [&](const Peer& peer) {
      const std::string why = missing(peer);
      if (!why.empty()) out_.missing.push_back(peer.name + ": " + why);
      return !why.empty();
    });
  }

  Participants all() {
    if (harness::are_collectives(options_)) return collectives();
    if (options_.names.empty() || named("limit")) add_limit();
    // The benches over a network, and the programs, have participants of their own.
    BenchOptions general = options_;
    std::erase_if(general.names,
                  [](const std::string& name) { return harness::is_network(name) || name == "programs"; });
    BenchOptions ours = general;
    if (ours.names.empty()) ours.names = harness::kUsualNames;
    if (general.names.empty() && !options_.names.empty()) ours.names.clear();
    std::erase_if(ours.names, [](const std::string& name) { return name == "limit" || name == "convolution"; });
    if (!ours.names.empty()) add_heddle("heddle", ours);
    add_papers();
    add_network("network_tcp", "ucx", kUcxTcp);
    add_network("network_posix", "ucx", {"UCX_TLS=posix,self"});
    add_network("network_ofi", "ofi", {});
    if (HEDDLE_HAS_UCX && named("network_ofi") && options_.peers)
      add_heddle("heddle, ucx", alone("network_ofi"), over("ucx", kUcxTcp));
    if (wants("mixed_job")) add_mixed();
    if (wants("programs")) add_programs();
    if (ours.names.empty()) return std::move(out_);
    for (const Peer& peer : peers_) {
      if (!peer.in_all) continue;
      add_peer(peer, general, 2);
      if (!peer.in_pairs || !wants("duplex")) continue;
      for (const std::uint32_t count : pairs()) add_peer(peer, alone("duplex", 1), 2 * count);
    }
    return std::move(out_);
  }

 private:
  // Jobs of each number of processes; UCX and libfabric have no such operations here.
  Participants collectives() {
    std::erase_if(peers_, [](const Peer& peer) { return peer.name.starts_with("ucx") || peer.networks_only; });
    for (const std::uint32_t ranks : options_.ranks) {
      const bool few = ranks <= harness::Cores::parse(options_.cores).count();
      add_heddle("heddle", options_, {"HEDDLE_PEERS_DIR"}, ranks, few ? "core" : "none");
      for (const Peer& peer : peers_) add_peer(peer, options_, ranks);
    }
    return std::move(out_);
  }

  [[nodiscard]] bool named(const char* name) const { return measure::contains(options_.names, name); }
  [[nodiscard]] bool wants(const char* name) const { return harness::wants_bench(options_, name); }
  [[nodiscard]] BenchOptions alone(const char* bench, std::uint32_t threads = 0) const {
    BenchOptions one = options_;
    one.names = {bench};
    if (threads != 0) one.threads = {threads};
    return one;
  }
  [[nodiscard]] std::vector<std::uint32_t> pairs() const {
    auto counts = harness::threads_or(options_, harness::kDuplexThreads);
    std::erase(counts, 1U);
    return counts;
  }
  void add(Program program, const BenchOptions& options) {
    const Words words = harness::participant_arguments(options, repeat_);
    program.arguments.insert(program.arguments.end(), words.begin(), words.end());
    out_.programs.push_back(std::move(program));
  }
  void add_limit() {
    add({"limit", {own_path(), "bench"}, {}}, alone("limit"));
    out_.programs.back().arguments.emplace_back("--pair");
  }
  // More processes than cores cannot have one each.
  void add_heddle(const std::string& name, const BenchOptions& options, Words environment = {},
                  std::uint32_t processes = 2, const char* binding = nullptr) {
    if (binding == nullptr) binding = processes > 2 ? "none" : "core";
    add({name,
         {own_path(), "run", "-n", std::to_string(processes), "--bind", binding, own_path(), "bench"},
         environment},
        options);
  }
  void add_peer(const Peer& peer, const BenchOptions& options, std::uint32_t processes) {
    Program program{peer.name, peer.start, peer.environment};
    const std::string count = std::to_string(processes);
    if (!peer.start.empty()) program.arguments.push_back(count);
    program.arguments.push_back(peer.path);
    add(std::move(program), options);
    Words& words = out_.programs.back().arguments;
    words.insert(words.end(), {"--processes", count});
  }

  void add_papers() {
    if (wants("overlap")) {
      add_heddle("heddle, progress adaptive", alone("overlap"), {"HEDDLE_PROGRESS=adaptive"});
    }
    for (const char* policy : {"none", "idle", "adaptive"}) {
      if (!wants("convolution")) break;
      add_heddle(std::string("heddle, progress ") + policy, alone("convolution"),
                 {std::string("HEDDLE_PROGRESS=") + policy});
    }
    if (wants("overhead")) {
      // A fabric of 1 µs one way, as LLCL's was. There, the cost that a mode adds is a different
      // share of the whole.
      BenchOptions fabric = alone("overhead", options_.threads.empty() ? 1 : 0);
      fabric.memory = "registered";
      add_heddle("heddle on a fabric of 1 us", fabric, over("fault+shm", {"HEDDLE_FAULT=latency=1us"}));
    }
    if (wants("duplex")) {
      for (const std::uint32_t count : pairs()) {
        add_heddle("heddle as " + std::to_string(count) + " pairs of processes", alone("duplex", 1), {}, 2 * count);
      }
    }
    if (wants("oversubscription")) {
      for (const std::uint32_t count : harness::kOversubscribed) {
        add_heddle("heddle as " + std::to_string(count) + " processes", alone("oversubscription"), {}, count);
      }
    }
  }
  // A bench of one transport measures that transport, even if the caller has chosen another for
  // jobs.
  static void tell_unused(const char* name, const char* transport) {
    for (const char* variable : {"HEDDLE_TRANSPORTS", "HEDDLE_TRANSPORT"}) {
      const char* const set = std::getenv(variable);
      if (set == nullptr || *set == '\0' || std::string_view(set) == transport) continue;
      std::fprintf(stderr, "heddle bench: %s measures %s; %s=%s does not count for it\n", name, transport, variable,
                   set);
    }
  }

  // Heddle, and UCX or libfabric itself, over the same of its transports.
  void add_network(const char* name, const char* library, const Words& ways) {
    if (!named(name)) return;
    tell_unused(name, library);
    add_heddle(std::string("heddle, ") + name, alone(name), over(library, ways));
    for (Peer peer : peers_) {
      if (peer.name != library) continue;
      peer.name += std::string(", ") + name;
      peer.environment.insert(peer.environment.end(), ways.begin(), ways.end());
      // as Heddle asks of it
      peer.environment.emplace_back("UCX_ALLOC_PRIO=md:posix,md:sysv,mmap");
      add_peer(peer, alone(name), 2);
    }
  }
  // Two ranks of a node, with two of another node beside them, and without.
  void add_mixed() {
    const Words joint = {"HEDDLE_NODE_RANKS=2", "HEDDLE_TRANSPORTS=shm,ucx", "HEDDLE_TRANSPORT",  "HEDDLE_UCX_TLS",
                         "HEDDLE_NET_DEVICES",  "UCX_TLS=tcp,self",          "UCX_NET_DEVICES=lo"};
    add_heddle("heddle, 2 nodes of 2 ranks", alone("mixed_job"), joint, harness::kMixedProcesses);
    add_heddle("heddle, 1 node of 4 ranks", alone("mixed_job"), over("shm"), harness::kMixedProcesses);
  }
  void add_programs() {
    for (const measure::Group group : measure::kGroups) {
      BenchOptions part = alone("programs");
      part.ops = measure::asked_of(group, options_);
      if (part.ops.empty()) continue;
      const std::uint32_t processes = measure::processes_of(group);
      // HEDDLE_PEERS_DIR is for this program alone: the library would warn of it.
      add_heddle("heddle", part, {"HEDDLE_PEERS_DIR"}, processes);
      for (const Peer& peer : peers_) {
        if (peer.networks_only) continue;
        if (!peer.messages && processes > 2 && !measure::contains(part.ops, "exchange")) continue;
        add_peer(peer, part, processes);
      }
    }
  }

  const BenchOptions& options_;
  std::uint32_t repeat_;
  std::vector<Peer> peers_;
  Participants out_;
};

}  // namespace

Participants participants(const BenchOptions& options, std::uint32_t repeat) {
  return Party(options, repeat).all();
}

namespace {

volatile sig_atomic_t running_group = 0;  // the participant that runs; for the handler below

// Ctrl-C reaches only the driver, since participants have groups of their own: hand it on, then end
// as usual.
void forward(int signal) {
  if (running_group > 0) kill(-running_group, SIGTERM);
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  raise(signal);
}

void forward_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    action.sa_handler = forward;
    sigaction(signal, &action, nullptr);
  }
}

[[noreturn]] void become(const Program& program, int out, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, 0);
  dup2(out, 1);
  std::vector<char*> arguments;
  for (const std::string& argument : program.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  for (const std::string& variable : program.environment) {
    if (variable.find('=') != std::string::npos) {
      putenv(const_cast<char*>(variable.c_str()));
    } else {
      unsetenv(variable.c_str());
    }
  }
  execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "heddle bench: %s: %s\n", arguments[0], std::strerror(errno));
  _exit(127);
}

// Reads lines until the end or until nothing comes for too long; false: silent.
bool read_lines(int fd, std::uint64_t silence_ns, const std::function<void(const std::string&)>& line) {
  std::string text;
  char buffer[65536];
  while (true) {
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(silence_ns / 1'000'000));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    text.append(buffer, static_cast<std::size_t>(got));
    std::size_t end = 0;
    while ((end = text.find('\n')) != std::string::npos) {
      line(text.substr(0, end));
      text.erase(0, end + 1);
    }
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A launcher is asked first, so that it can take its processes along; then the group is ended for
// good.
void end(pid_t child) {
  kill(-child, SIGTERM);
  for (int i = 0; i < 200; ++i) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child) break;
    usleep(10'000);
  }
  kill(-child, SIGKILL);
}

}  // namespace

int run(const Program& program, std::uint64_t silence_ns, const std::function<void(const std::string&)>& line) {
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) != 0) {
    std::perror("heddle bench: pipe");
    return -1;
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    std::perror("heddle bench: fork");
    close(pipes[0]);
    close(pipes[1]);
    return -1;
  }
  if (child == 0) become(program, pipes[1], parent);
  setpgid(child, child);
  running_group = child;
  forward_signals();
  close(pipes[1]);
  const bool spoke = read_lines(pipes[0], silence_ns, line);
  if (!spoke) {
    std::fprintf(stderr, "heddle bench: %s printed nothing for %llu s; ended\n", program.name.c_str(),
                 static_cast<unsigned long long>(silence_ns / 1'000'000'000));
    end(child);
  }
  close(pipes[0]);
  const int status = wait_for(child);
  running_group = 0;
  return spoke ? status : 124;
}

namespace {
std::string heddle_at;
}  // namespace

void set_own_path(const char* path) {
  heddle_at = path;
}

std::string own_path() {
  return heddle_at;
}

std::string find_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "/usr/bin:/bin";
  rest += ':';
  for (std::size_t colon = 0; (colon = rest.find(':')) != std::string::npos; rest.erase(0, colon + 1)) {
    const std::string candidate = rest.substr(0, colon) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

Busy::Busy(harness::Channel& channel, const harness::Cores& cores, std::uint32_t count) {
  const pid_t parent = getpid();
  for (std::uint32_t i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child < 0) {
      std::perror("heddle bench: --busy: fork");
      return;
    }
    if (child > 0) {
      children_.push_back(child);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    // As processes of two ranks: cores 0, 1, 0, 1, …, or as many as there are.
    cores.pin_sharing(i % 2, i / 2);
    harness::Computation computation;
    channel.compute_when_told([&] { computation.run(20'000); });
  }
}

Busy::~Busy() {
  for (const pid_t child : children_) {
    kill(child, SIGKILL);
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

}  // namespace heddle::bench::driver
