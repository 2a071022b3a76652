// The participants of a session, and their processes: starting a participant, and reading what it
// prints, line by line.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/channel.hpp"
#include "harness/cores.hpp"
#include "harness/options.hpp"

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

// The processes of --busy: they compute beside each measurement, one to each core in turn, as
// another user's job would, and sleep while P is measured and between measurements.
class Busy {
 public:
  // `count` may be 0. They end with this object, and with this process.
  Busy(harness::Channel& channel, const harness::Cores& cores, std::uint32_t count);
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy();

 private:
  std::vector<pid_t> children_;
};

// The participants of a session: Heddle and the limit always, and the peers whose programs were
// built.

struct Participants {
  std::vector<Program> programs;
  // a line for each peer that cannot take part: why, and what to install
  std::vector<std::string> missing;
};

// `repeat`: repeats per figure in one turn.
Participants participants(const harness::BenchOptions& options, std::uint32_t repeat);

}  // namespace heddle::bench::driver
