// What this machine is made of, as far as this process may use it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace heddle::base {

struct Cache {
  unsigned level = 0;
  char kind = 'u';  // u: unified, d: data, i: instructions
  std::uint64_t bytes = 0;
  unsigned line_bytes = 0;
  unsigned count = 0;      // of this size
  unsigned shared_by = 0;  // cores that share one
};

struct Topology {
  const char* source = "";  // who told: hwloc or Linux
  std::string remark;       // why it was not hwloc; empty: it was
  std::string processor;    // model; empty where the system does not tell
  unsigned packages = 0;
  unsigned numa_nodes = 0;
  std::vector<Cache> caches;  // from the largest level down
  std::vector<std::vector<int>>
      cores;  // of each core the hardware threads that this process may run on, by system number

  [[nodiscard]] unsigned hardware_threads() const;
};

// Looks at the machine now (takes milliseconds). Cores on which this process may not run are left
// out. By hwloc, which is opened at run time; where it is missing, or Heddle was built without its
// header, as Linux tells, with a remark.
Result<Topology> read_topology();

// By the hwloc library that `file` names, about the processors among `allowed`. CONFIG: it cannot
// be opened, is not hwloc 2, or Heddle was built without its header.
Result<Topology> read_hwloc_topology(const char* file, const std::vector<int>& allowed);

// What the kernel tells in the files below `system` (it has them in /sys/devices/system) about the
// processors among `allowed`. What it does not tell is left out rather than guessed: without caches
// there are none, and the processor has no name; only a hardware thread that does not say to which
// core it belongs counts as a core, a machine that does not name its packages or NUMA nodes as one.
// `system` may be any folder, so that other machines can be tried.
Result<Topology> read_linux_topology(const std::string& system, const std::vector<int>& allowed);

// The processors that this thread may run on, by system number.
Result<std::vector<int>> allowed_processors();

}  // namespace heddle::base
