#include "report/report.hpp"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

namespace heddle::bench::report {

namespace {

constexpr const char* kReportUsage = R"(usage: heddle report FILE.json… [-o OUT.html]

Draws results of `heddle bench --json FILE.json` as one HTML page, several files beside each other, and prints its name.

Options:

  -o OUT.html   the page (default heddle-report.html)
  -h, --help    show this text
)";

bool read_results(const std::string& path, std::vector<harness::Record>* records, std::vector<harness::Origin>* origins,
                  std::string* error) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    *error = "cannot read " + path + ": " + std::strerror(errno);
    return false;
  }
  std::string reason;
  const auto results = harness::results_from(text.str(), &reason);
  if (!results) {
    *error = path + " is no result of heddle bench --json: " + reason;
    return false;
  }
  origins->push_back(results->origin);
  records->insert(records->end(), results->records.begin(), results->records.end());
  return true;
}

}  // namespace

bool write_report(const std::vector<std::string>& files, const std::string& out, std::string* error) {
  std::vector<harness::Record> records;
  std::vector<harness::Origin> origins;
  for (const std::string& file : files) {
    if (!read_results(file, &records, &origins, error)) return false;
  }
  std::ofstream stream(out);
  stream << page(records, origins);
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
      std::fprintf(stderr, "heddle report: unknown or incomplete option %s\n%s", word.c_str(), kReportUsage);
      return 2;
    } else {
      files.push_back(word);
    }
  }
  if (files.empty()) {
    std::fprintf(stderr, "heddle report: no file given\n%s", kReportUsage);
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
