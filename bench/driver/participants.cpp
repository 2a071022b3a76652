#include "driver/participants.hpp"

#include <unistd.h>

#include <algorithm>

namespace heddle::bench::driver {

namespace {

using Arguments = std::vector<std::string>;

struct Peer {
  const char* name;
  const char* program;   // in bench/peers of the build tree
  const char* launcher;  // found in PATH; null: starts its processes itself
  const char* packages;
  std::vector<std::string> environment;
};

const std::vector<Peer>& peers() {
  static const std::vector<Peer> all = {
      {"ucx", "peer_ucx", nullptr, "libucx-dev", {"UCX_WARN_UNUSED_ENV_VARS=n"}},
      {"openmpi", "peer_mpi", "mpirun", "libopenmpi-dev openmpi-bin", {}},
      // Debian's OpenSHMEM ends with a segmentation fault unless one-sided MPI over RDMA is left out.
      {"oshmem", "peer_oshmem", "mpirun", "libopenmpi-dev openmpi-bin", {"OMPI_MCA_osc=^rdma"}},
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

Program heddle_program(const harness::Options& options, std::uint32_t repeat) {
  Program program{"heddle", {own_path(), "run", "-n", "2", "--bind", "core", own_path(), "bench"}, {}};
  harness::Options rest = options;
  if (rest.names.empty()) rest.names = harness::kBenchNames;
  std::erase(rest.names, "limit");
  append(&program.arguments, harness::participant_arguments(rest, repeat));
  return program;
}

}  // namespace

Participants participants(const harness::Options& options, std::uint32_t repeat) {
  Participants out;
  const auto& names = options.names;
  if (names.empty() || std::find(names.begin(), names.end(), "limit") != names.end()) {
    out.programs.push_back(limit_program(options, repeat));
  }
  if (only_limit(options)) return out;
  out.programs.push_back(heddle_program(options, repeat));
  if (!options.peers) return out;
  for (const Peer& peer : peers()) {
    const std::string path = peer_path(peer.program);
    const std::string launcher = peer.launcher != nullptr ? find_in_path(peer.launcher) : std::string();
    if (access(path.c_str(), X_OK) != 0) {
      out.missing.push_back(std::string(peer.name) + ": " + peer.program + " was not built (Debian: " + peer.packages +
                            ", then configure again)");
      continue;
    }
    if (peer.launcher != nullptr && launcher.empty()) {
      out.missing.push_back(std::string(peer.name) + ": " + peer.launcher +
                            " is not in PATH (Debian: " + peer.packages + ")");
      continue;
    }
    Program program{peer.name, {}, peer.environment};
    if (!launcher.empty()) {
      program.arguments = {launcher, "--allow-run-as-root", "--oversubscribe", "--bind-to", "core", "-n", "2"};
    }
    program.arguments.push_back(path);
    append(&program.arguments, harness::participant_arguments(options, repeat));
    if (launcher.empty()) program.arguments.emplace_back("--pair");
    out.programs.push_back(std::move(program));
  }
  return out;
}

}  // namespace heddle::bench::driver
