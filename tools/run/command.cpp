#include <cstdio>

#include "tools/commands.hpp"
#include "tools/run/launcher.hpp"
#include "tools/run/options.hpp"

namespace heddle::tools {
namespace {

int start(int argc, char** argv, const run::Names& names) {
  std::string answer;
  const auto options = run::parse(argc, argv, names, &answer);
  if (!options) {
    std::fprintf(stderr, "%s: %s\n", names.command, base::last_message());
    return kUsageCode;
  }
  if (!answer.empty()) {
    std::fputs(answer.c_str(), stdout);
    return 0;
  }
  return run::Launcher(*options).run();
}

}  // namespace

int run_command(int argc, char** argv) {
  return start(argc, argv, run::kRunNames);
}

int oshrun_command(int argc, char** argv) {
  return start(argc, argv, run::kOshrunNames);
}

}  // namespace heddle::tools
