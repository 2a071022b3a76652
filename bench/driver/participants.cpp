#include "driver/participants.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "harness/duplex.hpp"
#include "programs/programs.hpp"

namespace heddle::bench::driver {

namespace {

using Arguments = std::vector<std::string>;

struct Peer {
  const char* name;
  const char* program;   // in bench/peers of the build tree
  const char* launcher;  // found in PATH; null: starts its processes itself
  const char* packages;
  std::vector<std::string> environment;
  bool pairs = false;  // also as several pairs of processes
  bool ours = false;   // Heddle under another face: `heddle run` starts it
};

const std::vector<Peer>& peers() {
  static const std::vector<Peer> all = {
      {"ucx", "peer_ucx", nullptr, "libucx-dev", {"UCX_WARN_UNUSED_ENV_VARS=n"}},
      {"openmpi", "peer_mpi", "mpirun", "libopenmpi-dev openmpi-bin", {}, true},
      // Debian's OpenSHMEM ends with a segmentation fault unless one-sided MPI over RDMA is left
      // out.
      {"oshmem", "peer_oshmem", "mpirun", "libopenmpi-dev openmpi-bin", {"OMPI_MCA_osc=^rdma"}},
      {"shmem", "peer_shmem", nullptr, "cmake", {}, false, true},
  };
  return all;
}

// The tool lies in tools/ of the build tree, the peers in bench/peers.
std::string peer_path(const std::string& program) {
  const std::string own = own_path();
  const std::size_t slash = own.rfind('/');
  return (slash == std::string::npos ? std::string(".") : own.substr(0, slash)) + "/../bench/peers/" + program;
}

void append(Arguments* to, const Arguments& from) {
  to->insert(to->end(), from.begin(), from.end());
}

bool only_limit(const harness::Options& options) {
  return options.names.size() == 1 && options.names[0] == "limit";
}

Program limit_program(const harness::Options& options, std::uint32_t repeat) {
  harness::Options limit = options;
  limit.names = {"limit"};
  Program program{"limit", {own_path(), "bench"}, {}};
  append(&program.arguments, harness::participant_arguments(limit, repeat));
  program.arguments.emplace_back("--pair");
  return program;
}

// Whatever the caller has chosen, which would contradict it, or measure something else than the
// peer.
std::vector<std::string> over(const char* transport, std::vector<std::string> more = {}) {
  more.insert(more.end(), {std::string("HEDDLE_TRANSPORT=") + transport, "HEDDLE_TRANSPORTS", "HEDDLE_NODE_RANKS",
                           "HEDDLE_UCX_TLS", "HEDDLE_UCX_NET_DEVICES"});
  return more;
}

Program heddle_program(const harness::Options& options, std::uint32_t repeat) {
  Program program{"heddle", {own_path(), "run", "-n", "2", "--bind", "core", own_path(), "bench"}, {}};
  harness::Options rest = options;
  if (rest.names.empty()) rest.names = harness::kUsualNames;
  std::erase(rest.names, "limit");
  append(&program.arguments, harness::participant_arguments(rest, repeat));
  return program;
}

// Once under each progress policy, with nothing else beside it.
void add_policies(const harness::Options& options, std::uint32_t repeat, std::vector<Program>* programs) {
  harness::Options alone = options;
  alone.names = {"convolution"};
  for (const char* policy : {"none", "idle", "adaptive"}) {
    Program program = heddle_program(alone, repeat);
    program.name = std::string("heddle, progress ") + policy;
    program.environment = {std::string("HEDDLE_PROGRESS=") + policy};
    programs->push_back(std::move(program));
  }
}

// Beside the application's own progress.
Program helped_program(const harness::Options& options, std::uint32_t repeat) {
  harness::Options alone = options;
  alone.names = {"overlap"};
  Program program = heddle_program(alone, repeat);
  program.name = "heddle, progress adaptive";
  program.environment = {"HEDDLE_PROGRESS=adaptive"};
  return program;
}

// The same on a fabric of 1 µs one way, as LLCL's was: what a mode adds there is another share of
// the whole.
Program fabric_program(const harness::Options& options, std::uint32_t repeat) {
  harness::Options fabric = options;
  fabric.names = {"overhead"};
  fabric.memory = "registered";
  if (fabric.threads.empty()) fabric.threads = {1};
  Program program = heddle_program(fabric, repeat);
  program.name = "heddle on a fabric of 1 us";
  program.environment = over("fault+shm", {"HEDDLE_FAULT_LATENCY=1us"});
  return program;
}

// Where the transport takes a limited number of messages at a time: 64 on their way, as on a card
// with a queue of that length.
Program busy_program(const harness::Options& options, std::uint32_t repeat) {
  harness::Options busy = options;
  busy.names = {"aggregation"};
  Program program = heddle_program(busy, repeat);
  program.name = "heddle on a busy fabric of 10 us";
  program.environment = over("fault+shm", {"HEDDLE_FAULT_LATENCY=10us"});
  return program;
}

Program peer_program(const Peer& peer, const std::string& path, const std::string& launcher,
                     const harness::Options& options, std::uint32_t repeat, std::uint32_t processes) {
  Program program{peer.name, {}, peer.environment};
  if (processes > 2) program.name += " as " + std::to_string(processes / 2) + " pairs of processes";
  if (!launcher.empty()) {
    // More processes than cores cannot have one each.
    const char* binding = processes > 2 ? "none" : "core";
    program.arguments = {launcher, "--allow-run-as-root",    "--oversubscribe", "--bind-to", binding,
                         "-n",     std::to_string(processes)};
  }
  if (peer.ours) program.arguments = {own_path(), "run", "-n", std::to_string(processes), "--bind", "core"};
  program.arguments.push_back(path);
  append(&program.arguments, harness::participant_arguments(options, repeat));
  if (launcher.empty() && !peer.ours) program.arguments.emplace_back("--pair");
  return program;
}

// More processes than cores; those of two are the ideal for the mixed work.
void add_oversubscribed(const harness::Options& options, std::uint32_t repeat, std::vector<Program>* programs) {
  harness::Options alone = options;
  alone.names = {"oversubscription"};
  for (const std::uint32_t count : harness::kOversubscribed) {
    Program program = heddle_program(alone, repeat);
    program.name = "heddle as " + std::to_string(count) + " processes";
    program.arguments[3] = std::to_string(count);
    program.arguments[5] = "none";
    programs->push_back(std::move(program));
  }
}

// As many processes as the others have threads.
void add_pairs(const harness::Options& options, std::uint32_t repeat, std::vector<Program>* programs) {
  harness::Options pairs = options;
  pairs.names = {"duplex"};
  pairs.threads = {1};
  for (const std::uint32_t count : harness::threads_or(options, harness::kDuplexThreads)) {
    if (count == 1) continue;
    Program program = heddle_program(pairs, repeat);
    program.name = "heddle as " + std::to_string(count) + " pairs of processes";
    // More processes than cores cannot have one each: arguments are PATH run -n 2 --bind core PATH
    // bench …
    program.arguments[3] = std::to_string(2 * count);
    program.arguments[5] = "none";
    programs->push_back(std::move(program));
  }
}

// The benches over a network have programs of their own.
harness::Options without_networks(const harness::Options& options) {
  harness::Options rest = options;
  std::erase_if(rest.names, [](const std::string& name) { return harness::is_network(name) || name == "programs"; });
  return rest;
}

// Why the peer cannot take part; empty: it can.
std::string missing(const Peer& peer) {
  if (access(peer_path(peer.program).c_str(), X_OK) != 0) {
    return std::string(peer.name) + ": " + peer.program + " was not built (Debian: " + peer.packages +
           ", then configure again)";
  }
  if (peer.launcher != nullptr && find_in_path(peer.launcher).empty()) {
    return std::string(peer.name) + ": " + peer.launcher + " is not in PATH (Debian: " + peer.packages + ")";
  }
  return {};
}

// Heddle, and UCX itself, over the same of UCX's transports.
void add_network(const char* name, const std::vector<std::string>& ways, const harness::Options& options,
                 std::uint32_t repeat, Participants* out) {
  if (options.names.empty() || !harness::wants_bench(options, name)) return;
  harness::Options alone = options;
  alone.names = {name};
  Program heddle = heddle_program(alone, repeat);
  heddle.name = std::string("heddle, ") + name;
  heddle.environment = over("ucx", ways);
  out->programs.push_back(std::move(heddle));
  if (!options.peers) return;
  const Peer& ucx = peers().front();
  if (const std::string why = missing(ucx); !why.empty()) {
    out->missing.push_back(why);
    return;
  }
  Program peer = peer_program(ucx, peer_path(ucx.program), {}, alone, repeat, 2);
  peer.name = std::string("ucx, ") + name;
  peer.environment.insert(peer.environment.end(), ways.begin(), ways.end());
  peer.environment.emplace_back("UCX_ALLOC_PRIO=md:posix,md:sysv,mmap");  // as Heddle asks of it
  out->programs.push_back(std::move(peer));
}

// ---- the bench `programs` ----

// A library that it is measured with. `start` is what stands before the program's path; the number
// of processes follows it.
struct ProgramPeer {
  std::string name;
  std::string path;
  std::string packages;
  std::vector<std::string> start;  // empty: the program forks
  std::vector<std::string> environment;
  bool no_messages = false;  // in more than two processes, only the exchange
  // a shell file that tells launcher and library path, of a peer that was installed beside the
  // system's
  std::string settings = {};
};

std::vector<ProgramPeer> debian_programs() {
  const std::string folder = peer_path("") + "../programs/program_";
  const std::vector<std::string> openmpi = {
      "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"};
  return {
      {"ucx", folder + "ucx", "libucx-dev", {}, {"UCX_WARN_UNUSED_ENV_VARS=n"}},
      {"openmpi", folder + "openmpi", "libopenmpi-dev openmpi-bin", openmpi, {}},
      {"mpich", folder + "mpich", "libmpich-dev mpich", {"mpirun.mpich", "-n"}, {}},
      {"oshmem", folder + "oshmem", "libopenmpi-dev openmpi-bin", openmpi, {"OMPI_MCA_osc=^rdma"}, true},
      {"shmem", folder + "shmem", "cmake", {own_path(), "run", "--bind", "none", "-n"}, {"HEDDLE_PEERS_DIR"}, true}};
}

// Those of scripts/install_peers.sh: a folder each, with peer.env, and the program that
// build_peers.sh made beside it.
std::vector<ProgramPeer> installed_programs() {
  const char* set = std::getenv("HEDDLE_PEERS_DIR");
  const std::filesystem::path root =
      set != nullptr && *set != '\0' ? std::string(set) : peer_path("") + "../../../peers";
  std::vector<ProgramPeer> out;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(root, none)) {
    const std::filesystem::path file = entry.path() / "peer.env";
    if (!std::filesystem::exists(file, none)) continue;
    out.push_back({entry.path().filename().string() + " of " + root.lexically_normal().string(),
                   (entry.path() / "heddle_program").string(),
                   "run bench/programs/build_peers.sh build/release",
                   {},
                   {"UCX_WARN_UNUSED_ENV_VARS=n"},
                   false,
                   file.string()});
  }
  std::sort(out.begin(), out.end(), [](const ProgramPeer& a, const ProgramPeer& b) { return a.name < b.name; });
  return out;
}

Program program_of(const ProgramPeer& peer, const harness::Options& options, std::uint32_t repeat,
                   std::uint32_t processes) {
  const std::string count = std::to_string(processes);
  Program program{peer.name, peer.start, peer.environment};
  if (!peer.settings.empty()) {
    // $0: the settings; $1: the number of processes; then the program and its arguments.
    program.arguments = {"bash", "-c",
                         ". \"$0\" && export LD_LIBRARY_PATH && count=$1 && shift && "
                         "if [[ -n $RUN ]]; then exec $RUN -n \"$count\" \"$@\"; else exec \"$@\"; fi",
                         peer.settings};
  }
  if (!program.arguments.empty()) program.arguments.push_back(count);
  program.arguments.push_back(peer.path);
  append(&program.arguments, harness::participant_arguments(options, repeat));
  append(&program.arguments, {"--processes", count});
  return program;
}

void add_programs(const harness::Options& options, std::uint32_t repeat, Participants* out) {
  std::vector<ProgramPeer> others;
  if (options.peers) {
    others = debian_programs();
    for (ProgramPeer& peer : installed_programs()) others.push_back(std::move(peer));
    std::erase_if(others, [&](const ProgramPeer& peer) {
      std::string why;
      if (access(peer.path.c_str(), X_OK) != 0) why = "its program was not built (" + peer.packages + ")";
      if (why.empty() && !peer.start.empty() && peer.start[0][0] != '/' && find_in_path(peer.start[0]).empty()) {
        why = peer.start[0] + " is not in PATH (Debian: " + peer.packages + ")";
      }
      if (!why.empty()) out->missing.push_back(peer.name + ": " + why);
      return !why.empty();
    });
  }
  for (const programs::Group group : programs::kGroups) {
    harness::Options part = options;
    part.names = {"programs"};
    part.ops = programs::asked_of(group, options);
    if (part.ops.empty()) continue;
    const std::uint32_t processes = programs::processes_of(group);
    Program heddle = heddle_program(part, repeat);
    // More processes than cores cannot have one each: arguments are PATH run -n 2 --bind core PATH
    // bench …
    heddle.arguments[3] = std::to_string(processes);
    heddle.arguments[5] = "none";
    // is for this program alone: the library would warn of it
    heddle.environment = {"HEDDLE_PEERS_DIR"};
    out->programs.push_back(std::move(heddle));
    for (const ProgramPeer& peer : others) {
      if (peer.no_messages && processes > 2 && !programs::contains(part.ops, "exchange")) continue;
      out->programs.push_back(program_of(peer, part, repeat, processes));
    }
  }
}

// Two ranks of a node, with two of another node beside them, and without.
void add_mixed(const harness::Options& options, std::uint32_t repeat, std::vector<Program>* programs) {
  harness::Options alone = options;
  alone.names = {"mixed_job"};
  const std::pair<const char*, std::vector<std::string>> jobs[] = {
      {"heddle, 2 nodes of 2 ranks",
       {"HEDDLE_NODE_RANKS=2", "HEDDLE_TRANSPORTS=shm,ucx", "HEDDLE_TRANSPORT", "HEDDLE_UCX_TLS",
        "HEDDLE_UCX_NET_DEVICES", "UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"}},
      {"heddle, 1 node of 4 ranks", over("shm")}};
  for (const auto& [name, environment] : jobs) {
    Program program = heddle_program(alone, repeat);
    program.name = name;
    program.environment = environment;
    program.arguments[3] = std::to_string(harness::kMixedProcesses);
    program.arguments[5] = "none";
    programs->push_back(std::move(program));
  }
}

}  // namespace

Participants participants(const harness::Options& options, std::uint32_t repeat) {
  Participants out;
  const auto& names = options.names;
  if (names.empty() || std::find(names.begin(), names.end(), "limit") != names.end()) {
    out.programs.push_back(limit_program(options, repeat));
  }
  if (only_limit(options)) return out;
  const harness::Options general = without_networks(options);
  const auto here = [](const std::string& name) { return name != "limit" && name != "convolution"; };
  if (names.empty() || std::any_of(general.names.begin(), general.names.end(), here)) {
    harness::Options rest = general;
    std::erase(rest.names, "convolution");
    out.programs.push_back(heddle_program(rest, repeat));
  }
  if (harness::wants_bench(options, "overlap")) out.programs.push_back(helped_program(options, repeat));
  if (harness::wants_bench(options, "convolution")) add_policies(options, repeat, &out.programs);
  if (harness::wants_bench(options, "overhead")) out.programs.push_back(fabric_program(options, repeat));
  if (harness::wants_bench(options, "aggregation")) out.programs.push_back(busy_program(options, repeat));
  if (harness::wants_bench(options, "duplex")) add_pairs(options, repeat, &out.programs);
  if (harness::wants_bench(options, "oversubscription")) add_oversubscribed(options, repeat, &out.programs);
  add_network("network_tcp", {"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"}, options, repeat, &out);
  add_network("network_posix", {"UCX_TLS=posix,self"}, options, repeat, &out);
  if (harness::wants_bench(options, "mixed_job")) add_mixed(options, repeat, &out.programs);
  if (harness::wants_bench(options, "programs")) add_programs(options, repeat, &out);
  if (!options.peers || (general.names.empty() && !names.empty())) return out;
  for (const Peer& peer : peers()) {
    if (const std::string why = missing(peer); !why.empty()) {
      out.missing.push_back(why);
      continue;
    }
    const std::string path = peer_path(peer.program);
    const std::string launcher = peer.launcher != nullptr ? find_in_path(peer.launcher) : std::string();
    out.programs.push_back(peer_program(peer, path, launcher, general, repeat, 2));
    if (!peer.pairs || !harness::wants_bench(options, "duplex")) continue;
    harness::Options pairs = options;
    pairs.names = {"duplex"};
    pairs.threads = {1};
    for (const std::uint32_t count : harness::threads_or(options, harness::kDuplexThreads)) {
      if (count > 1) out.programs.push_back(peer_program(peer, path, launcher, pairs, repeat, 2 * count));
    }
  }
  return out;
}

}  // namespace heddle::bench::driver
