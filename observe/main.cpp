// heddle-observe: the commands that look at running and ended jobs. `heddle` starts it.
#include <array>

#include "base/commands.hpp"
#include "observe/commands.hpp"

int main(int argc, char** argv) {
  using namespace heddle;  // NOLINT(google-build-using-namespace)
  constexpr std::array kCommands = {
      base::ProgramCommand{"hang", observe::hang_command},       base::ProgramCommand{"trace", observe::trace_command},
      base::ProgramCommand{"explain", observe::explain_command}, base::ProgramCommand{"top", observe::top_command},
      base::ProgramCommand{"metrics", observe::metrics_command},
  };
  return base::run_command(kCommands, argc, argv);
}
