#include "harness/results.hpp"

#include <heddle/heddle.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <ctime>
#include <fstream>

namespace heddle::bench::harness {

namespace {

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

}  // namespace

Origin origin_of(const std::string& command, std::size_t cores) {
  Origin origin{now(), machine(), version(), command, static_cast<double>(cores), 0};
  if (getloadavg(&origin.load, 1) != 1) origin.load = 0;
  return origin;
}

bool was_loaded(const Origin& origin) {
  return origin.load > kLoadedShare * origin.cores;
}

}  // namespace heddle::bench::harness
