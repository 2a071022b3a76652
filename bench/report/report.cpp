#include "report/report.hpp"

#include <sys/utsname.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

namespace heddle::bench::report {

namespace {

constexpr const char* kReportUsage = "usage: heddle report FILE.json… [-o OUT.html]   (default heddle-report.html)\n";

std::string machine() {
  std::string model;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line) && model.empty();) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) model = line.substr(colon + 2);
  }
  utsname name{};
  if (uname(&name) != 0) return model;
  if (model.empty()) model = name.machine;
  return model + ", " + name.sysname + " " + name.release;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32] = "";
  if (localtime_r(&now, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

bool read_records(const std::string& path, std::vector<harness::Record>* records, std::string* error) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    *error = "cannot read " + path + ": " + std::strerror(errno);
    return false;
  }
  std::string reason;
  const auto objects = harness::parse_json(text.str(), &reason);
  if (!objects) {
    *error = path + " is not an array of flat JSON objects: " + reason;
    return false;
  }
  for (std::size_t i = 0; i < objects->size(); ++i) {
    const auto record = harness::record_from((*objects)[i], &reason);
    if (!record) {
      *error = path + ": record " + std::to_string(i) + ": " + reason + "; is it from heddle bench --json?";
      return false;
    }
    records->push_back(*record);
  }
  return true;
}

}  // namespace

bool write_report(const std::vector<std::string>& files, const std::string& out, std::string* error) {
  std::vector<harness::Record> records;
  for (const std::string& file : files) {
    if (!read_records(file, &records, error)) return false;
  }
  std::ofstream stream(out);
  stream << page(records, machine(), today());
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
