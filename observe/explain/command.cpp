// heddle explain: why the ranks of a traced job waited.
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "observe/commands.hpp"
#include "observe/explain/report.hpp"
#include "observe/trace/merge.hpp"
#include "observe/trace/packed.hpp"

namespace heddle::observe {
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
