// The commands of heddle-observe. A new one is a function, a row in main.cpp, and a row in
// tools/main.cpp.
#pragma once

#include "base/commands.hpp"

namespace heddle::observe {

// Each parses its own arguments: argv[0] is the command's name. The result is the exit code.
int hang_command(int argc, char** argv);
int trace_command(int argc, char** argv);
int explain_command(int argc, char** argv);
int top_command(int argc, char** argv);
int metrics_command(int argc, char** argv);

using base::kUsageCode;

}  // namespace heddle::observe
