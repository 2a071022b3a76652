// The subcommands of `heddle` that are part of the core. A new one is a function and a row in
// main.cpp.
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

}  // namespace heddle::tools
