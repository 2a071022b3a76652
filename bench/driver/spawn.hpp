// Starts a participant and reads what it prints, line by line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace heddle::bench::driver {

struct Program {
  std::string name;
  std::vector<std::string> arguments;    // arguments[0] is the path, or a name to be found in PATH
  std::vector<std::string> environment;  // K=V, added to this process's; K: without that one
};

// Runs the program in a process group of its own, its stdin empty, its stderr ours; hands each line
// of its stdout to `line`. Ends it (the whole group) if it prints nothing for `silence_ns`. It dies
// with this process. The exit status; 128 + signal; -1 if it could not be started, 124 if it was
// silent (a message on stderr says so).
int run(const Program& program, std::uint64_t silence_ns, const std::function<void(const std::string&)>& line);

// The full path of the command `heddle`, which has started this program and starts all jobs; it is
// set once, by main().
void set_own_path(const char* path);
std::string own_path();
// The full path of a program found in PATH ("" if there is none).
std::string find_in_path(const std::string& name);

}  // namespace heddle::bench::driver
