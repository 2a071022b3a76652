// For the tests of the launcher: calling it, and reading its output.
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "launched.hpp"

namespace heddle::tests {

inline constexpr const char* kHeddle = HEDDLE_TOOL;
inline constexpr const char* kRank = HEDDLE_LAUNCH_RANK;

inline std::vector<std::string> words(const std::vector<std::string>& options,
                                      const std::vector<std::string>& command) {
  std::vector<std::string> all = {kHeddle, "run"};
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), command.begin(), command.end());
  return all;
}
inline std::vector<std::string> shell(const std::vector<std::string>& options, const std::string& script) {
  return words(options, {"/bin/sh", "-c", script});
}

inline std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

inline std::multimap<std::string, int> lines_of(const std::string& text) {
  std::multimap<std::string, int> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.emplace(line, 0);
  return lines;
}

inline testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << part << "\" is not in \"" << text << "\"";
}

inline std::vector<pid_t> children_of(pid_t pid) {
  const std::string id = std::to_string(pid);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

}  // namespace heddle::tests
