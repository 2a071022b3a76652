#include "harness/results.hpp"

#include <heddle/heddle.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <ctime>
#include <fstream>

namespace heddle::bench::harness {

namespace {

constexpr double kFormat = 1;
constexpr double kLoadedShare = 0.5;  // of the cores

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

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm parts{};
  char text[40] = "";
  if (localtime_r(&time, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M %z", &parts);
  return text;
}

std::string version() {
  return std::to_string(HEDDLE_VERSION_MAJOR) + "." + std::to_string(HEDDLE_VERSION_MINOR) + "." +
         std::to_string(HEDDLE_VERSION_PATCH);
}

template <class T>
bool take(const JsonObject& header, const char* name, T* out, std::string* error) {
  const auto found = header.find(name);
  const T* value = found != header.end() ? std::get_if<T>(&found->second) : nullptr;
  if (value == nullptr) {
    *error = std::string("its header's member \"") + name + "\" is missing or of another type";
    return false;
  }
  *out = *value;
  return true;
}

}  // namespace

Origin origin_of(const std::string& command, std::size_t cores) {
  Origin origin{now(), machine(), version(), command, static_cast<double>(cores), 0};
  if (getloadavg(&origin.load, 1) != 1) origin.load = 0;
  return origin;
}

bool was_loaded(const Origin& origin) {
  return origin.load > kLoadedShare * origin.cores;
}

std::string to_json(const Results& results) {
  const Origin& origin = results.origin;
  std::string out = "{\"heddle_bench\":" + std::to_string(static_cast<int>(kFormat)) +
                    ",\"date\":" + json_quote(origin.date) + ",\"machine\":" + json_quote(origin.machine) +
                    ",\"cores\":" + json_number(origin.cores) + ",\"load\":" + json_number(origin.load) +
                    ",\"version\":" + json_quote(origin.version) + ",\"command\":" + json_quote(origin.command) +
                    ",\n\"records\":[\n";
  for (std::size_t i = 0; i < results.records.size(); ++i) {
    out += to_json(results.records[i]) + (i + 1 < results.records.size() ? ",\n" : "\n");
  }
  return out + "]}\n";
}

std::optional<Results> results_from(std::string_view text, std::string* error) {
  JsonObject header;
  const auto rows = parse_json_table(text, "records", &header, error);
  if (!rows) return std::nullopt;
  Results results;
  Origin& origin = results.origin;
  double format = 0;
  if (!take(header, "heddle_bench", &format, error)) return std::nullopt;
  if (format != kFormat) {
    *error = "it is of format " + json_number(format) + ", and this heddle reads format " + json_number(kFormat);
    return std::nullopt;
  }
  if (!take(header, "date", &origin.date, error) || !take(header, "machine", &origin.machine, error) ||
      !take(header, "version", &origin.version, error) || !take(header, "command", &origin.command, error) ||
      !take(header, "cores", &origin.cores, error) || !take(header, "load", &origin.load, error)) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < rows->size(); ++i) {
    std::string reason;
    const auto record = record_from((*rows)[i], &reason);
    if (!record) {
      *error = "record " + std::to_string(i) + ": " + reason;
      return std::nullopt;
    }
    results.records.push_back(*record);
  }
  return results;
}

}  // namespace heddle::bench::harness
