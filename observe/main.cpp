// heddle-observe: the commands that look at running and ended jobs. `heddle` starts it.

#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/commands.hpp"
#include "observe/commands.hpp"
#include "observe/explain/blame.hpp"
#include "observe/trace/merge.hpp"

int main(int argc, char** argv) {
  using namespace heddle;  // NOLINT(google-build-using-namespace)
  constexpr std::array kCommands = {
      base::ProgramCommand{"hang", observe::hang_command},       base::ProgramCommand{"trace", observe::trace_command},
      base::ProgramCommand{"explain", observe::explain_command}, base::ProgramCommand{"top", observe::top_command},
      base::ProgramCommand{"metrics", observe::metrics_command},
  };
  return base::run_command(kCommands, argc, argv);
}

namespace heddle::observe {

// heddle trace: one picture from what the processes of a job have noted.

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
  std::fprintf(stderr, "heddle trace: %s\n", base::last_message());
  const std::string stay = trace::left(path);
  if (!stay.empty()) {
    std::fprintf(stderr, "heddle trace: what the ranks have noted stays in %s; `heddle trace %s` tries again\n",
                 stay.c_str(), path.c_str());
  }
  return 1;
}

// heddle explain: why the ranks of a traced job waited.

namespace {

constexpr const char* kExplainHelp =
    R"(usage: heddle explain [options] PATH

Says where the time went that the ranks of a traced job spent waiting: by cause, largest first, who
is to blame, what it did meanwhile, and what would have helped by how much. PATH is what
`heddle run --trace PATH` has written, or the PATH of a job started with HEDDLE_TRACE=PATH that has
left PATH.rank0, PATH.rank1, …

  -a, --all      tell every cause of 10 us and more; otherwise the ten largest
  -j, --json     one JSON object on one line
  -h, --help     show this text

A rank that waits for one which itself waits is counted to whom that one waits for. The exit code is
0, 1 if there is nothing to be read, and 2 for wrong arguments.
)";

constexpr std::size_t kMostCauses = 10;

struct Arguments {
  std::string path;
  bool all = false;
  bool json = false;
};

int explain_files(const Arguments& arguments) {
  std::vector<std::string> others;
  auto recordings = trace::open(arguments.path, &others);
  if (!recordings) {
    std::fprintf(stderr, "heddle explain: %s\n", base::last_message());
    return 1;
  }
  trace::tell_others(others, "heddle explain");
  base::Status status = trace::align(recordings->processes);
  base::Result<explain::Story> story = explain::Story{};
  if (status == HEDDLE_DONE) story = explain::tell(recordings->processes);
  if (status != HEDDLE_DONE || !story) {
    std::fprintf(stderr, "heddle explain: %s\n", base::last_message());
    return 1;
  }
  const explain::Report report = explain::sum_up(*story);
  const std::string text = arguments.json ? explain::json_of(report, *story)
                                          : explain::text_of(report, *story, arguments.all ? SIZE_MAX : kMostCauses);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

int explain_command(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "-h" || word == "--help") {
      std::fputs(kExplainHelp, stdout);
      return 0;
    }
    if (word == "-a" || word == "--all") {
      arguments.all = true;
    } else if (word == "-j" || word == "--json") {
      arguments.json = true;
    } else if (word.starts_with('-') || !arguments.path.empty()) {
      std::fprintf(stderr, "heddle explain: \"%s\" is %s; `heddle explain --help` tells more\n", argv[i],
                   word.starts_with('-') ? "no option" : "one path too many");
      return kUsageCode;
    } else {
      arguments.path = word;
    }
  }
  if (arguments.path.empty()) {
    std::fprintf(stderr, "heddle explain: no path given; `heddle explain --help` tells more\n");
    return kUsageCode;
  }
  try {
    return explain_files(arguments);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "heddle explain: there is no memory for so many records\n");
    return 1;
  }
}

}  // namespace heddle::observe
