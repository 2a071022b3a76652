#include "report/report.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/options.hpp"

namespace heddle::bench::report {

// Made of the files beside this one, and of Chart.js, by embed.cmake.
extern const std::string_view kPageHtml;
extern const std::string_view kPageCss;
extern const std::string_view kPageJs;
extern const std::string_view kChartJs;  // empty: it was not there

namespace {

constexpr const char* kReportUsage = R"(usage: heddle report FILE.json… [-o OUT.html]

Draws results of `heddle bench --json FILE.json` as one HTML page, and prints its name. The page needs nothing else, and no network.
Of several files, each is compared with the first: what has changed, and whether that is more than the noise.

Options:

  -o OUT.html   the page (default heddle-report.html)
  -h, --help    show this text
)";

bool read_results(const std::string& path, std::vector<NamedResults>* runs, std::string* error) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    *error = "cannot read " + path + ": " + std::strerror(errno);
    return false;
  }
  std::string reason;
  auto results = harness::results_from(text.str(), &reason);
  if (!results) {
    *error = path + " is no result of heddle bench --json: " + reason;
    return false;
  }
  const std::string name = std::filesystem::path(path).filename().string();
  const bool taken = std::any_of(runs->begin(), runs->end(), [&](const NamedResults& run) { return run.name == name; });
  runs->push_back({taken ? path : name, std::move(*results)});
  return true;
}

}  // namespace

std::string page(const std::vector<NamedResults>& runs) {
  const std::pair<std::string_view, std::string> parts[] = {{"{{style}}", std::string(kPageCss)},
                                                            {"{{data}}", page_data(runs)},
                                                            {"{{library}}", std::string(kChartJs)},
                                                            {"{{script}}", std::string(kPageJs)}};
  std::string out;
  std::string_view rest = kPageHtml;
  // in the order of the page, so that no text is looked at again
  for (const auto& [name, text] : parts) {
    const std::size_t at = rest.find(name);
    out += std::string(rest.substr(0, at)) + text;
    rest.remove_prefix(at + name.size());
  }
  return out += rest;
}

bool write_report(const std::vector<std::string>& files, const std::string& out, std::string* error) {
  std::vector<NamedResults> runs;
  for (const std::string& file : files) {
    if (!read_results(file, &runs, error)) return false;
  }
  if (kChartJs.empty()) {
    std::fputs("heddle report: without charts, as this heddle was built without Chart.js (Debian: libjs-chart.js)\n",
               stderr);
  }
  std::ofstream stream(out);
  stream << page(runs);
  stream.close();
  if (!stream) *error = "cannot write " + out + ": " + std::strerror(errno);
  return static_cast<bool>(stream);
}

int run(int argc, char** argv) {
  std::vector<std::string> files;
  std::string out = "heddle-report.html";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h") {
      std::fputs(kReportUsage, stdout);
      return 0;
    }
    if (word == "-o" && i + 1 < argc) {
      out = argv[++i];
    } else if (word.starts_with("-")) {
      const std::string wrong = word == "-o" ? "-o needs a file" : '"' + word + "\" is no option";
      std::fprintf(stderr, "heddle report: %s; `heddle report --help` tells more\n", wrong.c_str());
      return 2;
    } else {
      files.push_back(word);
    }
  }
  if (files.empty()) {
    std::fprintf(stderr, "heddle report: no file given; `heddle report --help` tells more\n");
    return 2;
  }
  std::string error;
  if (!write_report(files, out, &error)) {
    std::fprintf(stderr, "heddle report: %s\n", error.c_str());
    return 1;
  }
  std::printf("%s\n", out.c_str());
  return 0;
}

// The command that repeats a figure.

namespace {

using harness::BenchRecord;

const std::set<std::string> kOps = {"put", "put_flush", "put_wait", "get", "am",   "tagged", "fadd",
                                    "add", "and",       "or",       "xor", "swap", "cswap"};
const std::set<std::string> kModes = {"shared", "offload", "delegate", "mutex", "auto", "auto_one"};
const std::set<std::string> kSizes = {"pingpong", "bandwidth", "duplex", "overlap", "programs"};
const std::set<std::string> kKept = {"--time", "--repeat", "--total-words"};

// The operation's name for --op: variants of a program have one name. Empty: the bench runs all of
// its operations.
std::string option_of(const std::string& bench, const std::string& op) {
  if (bench != "programs") return kOps.contains(op) && bench != "oversubscription" ? op : "";
  std::string longest;
  for (const std::string& name : harness::kProgramNames) {
    if ((op == name || op.starts_with(name + "_")) && name.size() > longest.size()) longest = name;
  }
  return longest;
}

std::string size_option(std::uint64_t bytes) {
  if (bytes != 0 && bytes % (1 << 20) == 0) return std::to_string(bytes >> 20) + "M";
  return bytes != 0 && bytes % 1024 == 0 ? std::to_string(bytes >> 10) + "K" : std::to_string(bytes);
}

// The different values of an option, in the order in which they were measured.
class Values {
 public:
  void add(const std::string& value) {
    if (std::find(all_.begin(), all_.end(), value) == all_.end()) all_.push_back(value);
  }
  [[nodiscard]] bool only(const std::string& value) const { return all_ == std::vector{value} || all_.empty(); }
  [[nodiscard]] std::string option(const char* name) const {
    std::string out;
    for (const std::string& value : all_) out += (out.empty() ? std::string(" ") + name + " " : ",") + value;
    return out;
  }

 private:
  std::vector<std::string> all_;
};

}  // namespace

std::string command_for(const std::vector<const BenchRecord*>& figures, const std::string& given) {
  const std::string full = figures.front()->key.bench;
  const std::size_t busy = full.find("_busy_");
  const std::string bench = full.substr(0, busy);
  const bool collective = harness::contains(harness::kCollectiveNames, bench);
  Values ops, sizes, threads, modes, memory, ranks;
  bool all_ops = false;
  bool peers = false;
  for (const BenchRecord* one : figures) {
    const harness::RecordKey& key = one->key;
    peers = peers || is_peer(*one);
    sizes.add(size_option(key.size_bytes));
    if (key.transport == "limit") continue;  // measured beside the others
    threads.add(std::to_string(key.threads));
    memory.add(key.memory);
    ranks.add(std::to_string(key.processes));
    if (collective) {
      const std::string form = key.op.substr(0, key.op.find('_'));
      if (harness::contains(harness::kCollectiveForms, form)) ops.add(form);
      continue;
    }
    if (kModes.contains(key.sharing) ? !is_peer(*one) : key.sharing == "exclusive") modes.add(key.sharing);
    ops.add(option_of(bench, key.op));
    all_ops = all_ops || option_of(bench, key.op).empty();
  }
  std::string out = "heddle bench " + bench;
  if (!all_ops && !collective) out += ops.option("--op");
  if (collective) out += ranks.option("--ranks") + ops.option("--form");
  if (kSizes.contains(bench) || (collective && bench != "barrier")) out += sizes.option("--size");
  if (!threads.only("1")) out += threads.option("--threads");
  if (!modes.only("exclusive")) out += modes.option("--sharing");
  for (const char* kind : {"registered", "adopted", "malloc", "own"}) {
    if (memory.only(kind)) out += memory.option("--memory");
  }
  if (busy != std::string::npos) out += " --busy " + full.substr(busy + 6);
  if (peers) out += " --peers";
  // How long it was measured, as the run was told.
  std::istringstream words(given);
  for (std::string word, value; words >> word;) {
    if (kKept.contains(word) && words >> value) out += " " + word + " " + value;
    if (word == "--switches" || word == "--quick") out += " " + word;
  }
  return out;
}

}  // namespace heddle::bench::report
