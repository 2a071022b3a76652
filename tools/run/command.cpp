#include <cstdio>
#include <string>

#include "tools/commands.hpp"
#include "tools/run/calls.hpp"
#include "tools/run/launcher.hpp"
#include "tools/run/options.hpp"
#include "tools/trace/merge.hpp"

namespace heddle::tools {
namespace {

constexpr int kSystemCode = 125;  // `heddle run` itself failed

// Makes the picture of a traced job that has ended with `code`. Returns the command's exit code.
int make_picture(const run::Options& options, bool joined, int code) {
  const char* const command = options.names->command;
  if (trace::merge(options.trace, trace::Parts::remove, command) == HEDDLE_DONE) return code;
  const std::string why = base::last_message();
  const std::string left = trace::left(options.trace);
  if (left.empty() && !joined) {
    std::fprintf(stderr,
                 "%s: warning: there is no trace: the program has not joined a Heddle job (it made no context), so "
                 "there is nothing to show\n",
                 command);
    return code;
  }
  std::fprintf(stderr, "%s: there is no trace: %s\n", command, why.c_str());
  if (!left.empty()) {
    std::fprintf(stderr, "%s: what the ranks have noted stays in %s; `heddle trace %s` tries again\n", command,
                 left.c_str(), options.trace.c_str());
  }
  return code != 0 ? code : kSystemCode;
}

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
  run::Launcher launcher(*options);
  const int code = launcher.run();
  return make_picture(*options, launcher.has_been_joined(), code);
}

}  // namespace

int run_command(int argc, char** argv) {
  return start(argc, argv, run::kRunNames);
}

int oshrun_command(int argc, char** argv) {
  return start(argc, argv, run::kOshrunNames);
}

}  // namespace heddle::tools
