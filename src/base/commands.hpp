// What the programs of commands share: `heddle`, and those of the wings, which `heddle` becomes
// (tools/commands.hpp).
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>

namespace heddle::base {

// The exit code for invalid arguments.
inline constexpr int kUsageCode = 2;

struct ProgramCommand {
  std::string_view name;
  int (*run)(int argc, char** argv);  // argv[0] is the command's name; the result is the exit code
};

// The exit code of a command that has ended with `code`: it fails if it could not write its output.
inline int after_output(std::string_view name, int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fprintf(stderr, "heddle %.*s: cannot write all of standard output%s%s\n", static_cast<int>(name.size()),
               name.data(), errno != 0 ? ": " : "", errno != 0 ? std::strerror(errno) : "");
  return code != 0 ? code : 1;
}

// The main function of a wing's program: argv[0] is the path of `heddle`, argv[1] the command.
inline int run_command(std::span<const ProgramCommand> commands, int argc, char** argv) {
  for (const ProgramCommand& command : commands) {
    if (argc > 1 && command.name == argv[1]) return after_output(command.name, command.run(argc - 1, argv + 1));
  }
  std::fprintf(stderr, "this program is started by heddle: heddle COMMAND, where COMMAND is one of");
  for (const ProgramCommand& command : commands) {
    std::fprintf(stderr, " %.*s", static_cast<int>(command.name.size()), command.name.data());
  }
  std::fprintf(stderr, "\n");
  return kUsageCode;
}

}  // namespace heddle::base
