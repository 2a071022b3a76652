#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/commands.hpp"
#include "base/config.hpp"
#include "bootstrap/common.hpp"
#include "heddle/heddle.h"
#include "tools/commands.hpp"
#include "tools/run/beside.hpp"

namespace heddle::tools {

int become(const WingCommand& command, int argc, char** argv) {
  const std::string folder = run::beside_program(command.in_build, "heddle", command.program);
  if (folder.empty()) {
    std::fprintf(stderr,
                 "heddle %s: %s is not beside this program, nor in lib/heddle: it was left out when Heddle was built "
                 "(HEDDLE_OBSERVE, HEDDLE_BENCH), or is not installed\n",
                 command.name, command.program);
    return 1;
  }
  std::error_code error;
  std::string heddle = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const std::string program = folder + '/' + command.program;
  std::vector<char*> words{heddle.data()};
  for (int i = 0; i < argc; ++i) words.push_back(argv[i]);
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  std::fprintf(stderr, "heddle %s: cannot start %s: %s\n", command.name, program.c_str(), std::strerror(errno));
  return 1;
}

// The heddle command.

namespace {

int help_command(int argc, char** argv);
int version_command(int argc, char** argv);

struct Command {
  WingCommand shown;  // its name and help; its program, where it is a wing's
  int (*run)(int argc, char** argv) = nullptr;

  [[nodiscard]] std::string_view name() const { return shown.name; }
  int start(int argc, char** argv) const { return run != nullptr ? run(argc, argv) : become(shown, argc, argv); }
};

constexpr Command here(const char* name, const char* help, int (*run)(int argc, char** argv)) {
  return {{name, help, nullptr, nullptr}, run};
}
constexpr Command observe(const char* name, const char* help) {
  return {{name, help, "heddle-observe", "../observe"}};
}
constexpr Command bench(const char* name, const char* help) {
  return {{name, help, "heddle-bench", "../bench"}};
}

constexpr std::array kCommands = {
    here("run", "start a program as the ranks of a job on this machine", run_command),
    here("oshrun", "start an OpenSHMEM program as the PEs of a job on this machine", oshrun_command),
    observe("hang", "say what a running job waits for, and who is to blame"),
    observe("trace", "make one picture of what the ranks of a job have noted (HEDDLE_TRACE)"),
    observe("explain", "say why the ranks of a traced job waited, and what would have helped"),
    observe("top", "show what the ranks of a running job do, again and again"),
    observe("metrics", "write the counters of a running job as OpenMetrics text"),
    here("info", "show version, machine, transports, launchers and settings (HEDDLE_* variables)", info_command),
    bench("bench", "measure Heddle, the machine's limit and the peers that are installed"),
    bench("report", "draw results of `heddle bench --json` as one HTML page"),
    here("help", "show this text, or that of a command", help_command),
    here("version", "show the version", version_command),
};

void print_usage(std::FILE* to) {
  std::fprintf(to,
               "usage: heddle COMMAND [arguments]\n\n"
               "Starts jobs of Heddle, tells about an installation, and measures it.\n\nCommands:\n\n");
  for (const Command& command : kCommands) {
    std::fprintf(to, "  %-10s %s\n", command.shown.name, command.shown.help);
  }
  std::fprintf(to, "\n`heddle COMMAND --help` tells more about a command.\n");
}

int reject(const char* word) {
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) names.push_back(command.name());
  const char* what = *word == '-' ? "option" : "command";
  std::fprintf(stderr, "heddle: there is no %s \"%s\"%s\n`heddle help` lists the commands\n", what, word,
               base::did_you_mean(word, names).c_str());
  return kUsageCode;
}

// `heddle help run` is `heddle run --help`.
int help_command(int argc, char** argv) {
  if (argc < 2) {
    print_usage(stdout);
    return 0;
  }
  const std::string_view name = argv[1];
  for (const Command& command : kCommands) {
    if (command.name() != name) continue;
    if (command.run == help_command) break;
    std::array<char, 7> option{"--help"};
    std::array<char*, 3> words{argv[1], option.data(), nullptr};
    return command.start(2, words.data());
  }
  if (name == "help") return help_command(0, nullptr);
  return reject(argv[1]);
}

int version_command(int, char**) {
  std::printf("heddle %d.%d.%d\n", HEDDLE_VERSION_MAJOR, HEDDLE_VERSION_MINOR, HEDDLE_VERSION_PATCH);
  return 0;
}

int main(int argc, char** argv) {
  bootstrap::open_standard_streams();
  if (argc < 2) {
    print_usage(stderr);
    return kUsageCode;
  }
  std::string_view name = argv[1];
  if (name == "--version") name = "version";
  if (name == "--help" || name == "-h") name = "help";
  for (const Command& command : kCommands) {
    if (command.name() == name) return base::after_output(name, command.start(argc - 1, argv + 1));
  }
  return reject(argv[1]);
}

}  // namespace

}  // namespace heddle::tools

int main(int argc, char** argv) {
  return heddle::tools::main(argc, argv);
}
