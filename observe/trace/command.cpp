// heddle trace: one picture from what the processes of a job have noted.
#include <cstdio>
#include <string>
#include <string_view>

#include "observe/commands.hpp"
#include "observe/trace/merge.hpp"

namespace heddle::observe {
namespace {

constexpr const char* kTraceHelp =
    R"(usage: heddle trace PATH

Makes one file of what the ranks of a job have noted in PATH.rank0, PATH.rank1, … (a job started
with HEDDLE_TRACE=PATH), and writes it to PATH. The picture is looked at with https://ui.perfetto.dev,
which opens files of this machine without sending them anywhere, or asked by Perfetto's
trace_processor. `heddle run --trace PATH` does this by itself.

  -k, --keep     leave PATH.rank… where they are; otherwise they are removed
  -h, --help     show this text

The exit code is 0, 1 if there is nothing to be read or PATH cannot be written, and 2 for wrong
arguments.
)";

}  // namespace

int trace_command(int argc, char** argv) {
  std::string path;
  bool keep = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "-h" || word == "--help") {
      std::fputs(kTraceHelp, stdout);
      return 0;
    }
    if (word == "-k" || word == "--keep") {
      keep = true;
    } else if (word.starts_with('-') || !path.empty()) {
      std::fprintf(stderr, "heddle trace: \"%s\" is %s; `heddle trace --help` tells more\n", argv[i],
                   word.starts_with('-') ? "no option" : "one path too many");
      return kUsageCode;
    } else {
      path = word;
    }
  }
  if (path.empty()) {
    std::fprintf(stderr, "heddle trace: no path given; `heddle trace --help` tells more\n");
    return kUsageCode;
  }
  if (trace::merge(path, keep ? trace::Parts::keep : trace::Parts::remove, "heddle trace") == HEDDLE_DONE) return 0;
  std::fprintf(stderr, "heddle trace: there is no picture: %s\n", base::last_message());
  const std::string stay = trace::left(path);
  if (!stay.empty()) {
    std::fprintf(stderr, "heddle trace: what the ranks have noted stays in %s; `heddle trace %s` tries again\n",
                 stay.c_str(), path.c_str());
  }
  return 1;
}

}  // namespace heddle::observe
