// heddle-bench: the commands that measure. `heddle` starts it.
#include <array>

#include "base/commands.hpp"
#include "bench.hpp"
#include "driver/participants.hpp"

int main(int argc, char** argv) {
  using namespace heddle;  // NOLINT(google-build-using-namespace)
  constexpr std::array kCommands = {base::ProgramCommand{"bench", bench::main},
                                    base::ProgramCommand{"report", bench::report_main}};
  if (argc > 0) bench::driver::set_own_path(argv[0]);
  return base::run_command(kCommands, argc, argv);
}
