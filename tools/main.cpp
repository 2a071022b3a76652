// The heddle command.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/nearest.hpp"
#include "bench/bench.hpp"
#include "bootstrap/common.hpp"
#include "heddle/heddle.h"
#include "tools/commands.hpp"

namespace heddle::tools {
namespace {

struct Command {
  std::string_view name;
  const char* help;
  int (*run)(int argc, char** argv);
};

int help_command(int argc, char** argv);
int version_command(int argc, char** argv);

constexpr std::array kCommands = {
    Command{"run", "start a program as the ranks of a job on this machine", run_command},
    Command{"oshrun", "start an OpenSHMEM program as the PEs of a job on this machine", oshrun_command},
    Command{"hang", "say what a running job waits for, and who is to blame", hang_command},
    Command{"trace", "make one picture of what the ranks of a job have noted (HEDDLE_TRACE)", trace_command},
    Command{"explain", "say why the ranks of a traced job waited, and what would have helped", explain_command},
    Command{"top", "show what the ranks of a running job do, again and again", top_command},
    Command{"metrics", "write the counters of a running job as OpenMetrics text", metrics_command},
    Command{"info", "show version, machine, transports, launchers and settings (HEDDLE_* variables)", info_command},
    Command{"bench", "measure Heddle, the machine's limit and the peers that are installed", bench::main},
    Command{"report", "draw results of `heddle bench --json` as one HTML page", bench::report_main},
    Command{"help", "show this text, or that of a command", help_command},
    Command{"version", "show the version", version_command},
};

void print_usage(std::FILE* to) {
  std::fprintf(to,
               "usage: heddle COMMAND [arguments]\n\n"
               "Starts jobs of Heddle, tells about an installation, and measures it.\n\nCommands:\n\n");
  for (const Command& command : kCommands) {
    std::fprintf(to, "  %-10.*s %s\n", static_cast<int>(command.name.size()), command.name.data(), command.help);
  }
  std::fprintf(to, "\n`heddle COMMAND --help` tells more about a command.\n");
}

int refuse(const char* word) {
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) names.push_back(command.name);
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
    if (command.name != name) continue;
    if (command.run == help_command) break;
    std::array<char, 7> option{"--help"};
    std::array<char*, 3> words{argv[1], option.data(), nullptr};
    return command.run(2, words.data());
  }
  if (name == "help") return help_command(0, nullptr);
  return refuse(argv[1]);
}

int version_command(int, char**) {
  std::printf("heddle %d.%d.%d\n", HEDDLE_VERSION_MAJOR, HEDDLE_VERSION_MINOR, HEDDLE_VERSION_PATCH);
  return 0;
}

// A command fails if it could not write its output.
int after_output(std::string_view name, int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fprintf(stderr, "heddle %.*s: cannot write all of standard output%s%s\n", static_cast<int>(name.size()),
               name.data(), errno != 0 ? ": " : "", errno != 0 ? std::strerror(errno) : "");
  return code != 0 ? code : 1;
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
    if (command.name == name) return after_output(name, command.run(argc - 1, argv + 1));
  }
  return refuse(argv[1]);
}

}  // namespace
}  // namespace heddle::tools

int main(int argc, char** argv) {
  return heddle::tools::main(argc, argv);
}
