#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tap/trace_file.hpp"
#include "tools/commands.hpp"
#include "tools/run/beside.hpp"
#include "tools/run/launcher.hpp"
#include "tools/run/options.hpp"

namespace heddle::tools {

namespace {

constexpr int kSystemCode = 125;  // `heddle run` itself failed

// `heddle trace PATH`, and its exit code.
int call_trace(const std::string& path) {
  std::string word = "trace";
  std::string file = path;
  std::string heddle = "heddle";
  const std::array<char*, 4> words{heddle.data(), word.data(), file.data(), nullptr};
  // The launcher has blocked signals, which it has read from a descriptor.
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, "/proc/self/exe", nullptr, &attributes, words.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    std::fprintf(stderr, "heddle run: cannot start heddle trace %s: %s\n", path.c_str(), std::strerror(error));
    return kSystemCode;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSystemCode;
}

// Makes the picture of a traced job that has ended with `code`. Returns the command's exit code.
int make_picture(const run::RunOptions& options, bool joined, int code) {
  if (!joined && std::ranges::none_of(tap::trace_files(options.trace), tap::is_trace_file)) {
    std::fprintf(stderr,
                 "%s: warning: there is no trace: the program has not joined a Heddle job (it made no context), so "
                 "there is nothing to show\n",
                 options.names->command);
    return code;
  }
  const int picture = call_trace(options.trace);
  return code == 0 && picture != 0 ? kSystemCode : code;
}

int start(int argc, char** argv, const run::Names& names) {
  std::string answer;
  auto options = run::parse(argc, argv, names, &answer);
  if (!options) {
    std::fprintf(stderr, "%s: %s\n", names.command, base::last_message());
    return kUsageCode;
  }
  if (!answer.empty()) {
    std::fputs(answer.c_str(), stdout);
    return 0;
  }
  if (options->trace.empty()) return run::Launcher(*options).run();
  tap::remove_trace_files(options->trace);
  if (options->trace_calls && run::preload_calls(&*options) != HEDDLE_DONE) {
    std::fprintf(stderr, "%s: warning: %s\n", names.command, base::last_message());
  }
  run::Launcher launcher(*options);
  const int code = launcher.run();
  return make_picture(*options, launcher.has_been_joined(), code);
}

}  // namespace

int run_command(int argc, char** argv) {
  return start(argc, argv, run::kRunNames);
}

int oshrun_command(int argc, char** argv) {
  return start(argc, argv, run::kOshrunNames);
}

}  // namespace heddle::tools

namespace heddle::tools::run {

namespace {

constexpr const char* kPreload = "LD_PRELOAD";

// The value that the ranks would get without us.
std::string preloaded(const RunOptions& options) {
  const char* const inherited = std::getenv(kPreload);
  std::string value = inherited != nullptr ? inherited : "";
  for (const auto& [name, given] : options.environment) {
    if (name == kPreload) value = given;
  }
  return value;
}

}  // namespace

base::Status preload_calls(RunOptions* options) {
  const std::string before = preloaded(*options);
  std::string value = before;
  for (const char* file : {"libheddle_mpi_calls.so", "libheddle_shmem_calls.so"}) {
    const std::string folder = beside_program("../observe/calls", "heddle/calls", file);
    if (folder.empty()) continue;
    if (folder.find_first_of(": ") != std::string::npos) {
      return base::fail(HEDDLE_ERR_SYSTEM,
                        "calls of MPI and OpenSHMEM are not traced by name: LD_PRELOAD cannot name a library in %s",
                        folder.c_str());
    }
    if (!value.empty()) value += ':';
    value += folder + '/' + file;
  }
  if (value != before) options->environment.emplace_back(kPreload, value);
  return HEDDLE_DONE;
}

}  // namespace heddle::tools::run
