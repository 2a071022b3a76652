// The subcommands of `heddle`: those of the core, and how those of the wings are started. A new one
// of the core is a function and a row in main.cpp.
#pragma once

#include "base/commands.hpp"

namespace heddle::tools {

// Each parses its own arguments: argv[0] is the subcommand's name. The result is the exit code.
int run_command(int argc, char** argv);
int oshrun_command(int argc, char** argv);
int info_command(int argc, char** argv);
int info_schedule_command(int argc, char** argv);  // heddle info --schedule …
int info_job_command();                            // heddle info --job

using base::kUsageCode;

// The commands that the wings bring: each wing has one program, which stands beside `heddle` where
// it was built or installed, and is started as the command.

struct WingCommand {
  const char* name;
  const char* help;
  const char* program;   // of the wing
  const char* in_build;  // its folder, from that of `heddle`, where both are built
};

// Becomes the wing's program: argv[0] is the path of `heddle`, by which that starts jobs; the
// command's name and its arguments follow. Returns the exit code only where there is no such
// program, or it cannot be started; then it has been told on standard error.
int become(const WingCommand& command, int argc, char** argv);

}  // namespace heddle::tools
