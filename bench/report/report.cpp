#include "report/report.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

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

}  // namespace heddle::bench::report
