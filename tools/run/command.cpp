#include <cstdio>

#include "tools/commands.hpp"
#include "tools/run/calls.hpp"
#include "tools/run/launcher.hpp"
#include "tools/run/options.hpp"
#include "tools/trace/merge.hpp"

namespace heddle::tools {
namespace {

constexpr int kSystemCode = 125;  // `heddle run` itself failed

int start(int argc, char** argv, const run::Names& names) {
  std::string answer;
  auto options = run::parse(argc, argv, names, &answer);
  if (!options) {
    std::fprintf(stderr, "%s: %s\n", names.command, base::last_message());
    return kUsageCode;
  }
  if (!answer.empty()) {
    std::fputs(answer.c_str(), stdout);
    return 0;
  }
  if (options->trace.empty()) return run::Launcher(*options).run();
  trace::clear(options->trace);
  if (options->trace_calls && run::preload_calls(&*options) != HEDDLE_DONE) {
    std::fprintf(stderr, "%s: warning: %s\n", names.command, base::last_message());
  }
  const int code = run::Launcher(*options).run();
  if (trace::merge(options->trace, trace::Parts::remove, names.command) == HEDDLE_DONE) return code;
  std::fprintf(stderr, "%s: there is no trace: %s\n", names.command, base::last_message());
  return code != 0 ? code : kSystemCode;
}

}  // namespace

int run_command(int argc, char** argv) {
  return start(argc, argv, run::kRunNames);
}

int oshrun_command(int argc, char** argv) {
  return start(argc, argv, run::kOshrunNames);
}

}  // namespace heddle::tools
