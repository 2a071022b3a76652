// The subcommands of `heddle`. A new one is a function and a row in main.cpp.
#pragma once

namespace heddle::tools {

// Each parses its own arguments: argv[0] is the subcommand's name. The result is the exit code.
int run_command(int argc, char** argv);
int oshrun_command(int argc, char** argv);
int hang_command(int argc, char** argv);
int trace_command(int argc, char** argv);
int explain_command(int argc, char** argv);
int top_command(int argc, char** argv);
int metrics_command(int argc, char** argv);
int info_command(int argc, char** argv);
int info_schedule_command(int argc, char** argv);  // heddle info --schedule …
int info_job_command();                            // heddle info --job

// The exit code for invalid arguments.
inline constexpr int kUsageCode = 2;

}  // namespace heddle::tools
