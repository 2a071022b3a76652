#include <cstdio>

#include "tools/commands.hpp"
#include "tools/run/launcher.hpp"
#include "tools/run/options.hpp"

namespace heddle::tools {

int run_command(int argc, char** argv) {
  std::string help;
  const auto options = run::parse(argc, argv, &help);
  if (!options) {
    std::fprintf(stderr, "heddle run: %s\n", base::last_message());
    return kUsageCode;
  }
  if (!help.empty()) {
    std::fputs(help.c_str(), stdout);
    return 0;
  }
  return run::Launcher(*options).run();
}

}  // namespace heddle::tools
