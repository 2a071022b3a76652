// The hardware of this machine, as far as this process may use it.
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
  unsigned count = 0;      // number of such caches
  unsigned shared_by = 0;  // number of cores that share one
};

struct Topology {
  const char* source = "";  // where the data comes from: hwloc or Linux
  std::string remark;       // why hwloc was not used; empty: it was
  std::string processor;    // model; empty where the system does not name it
  unsigned packages = 0;
  unsigned numa_nodes = 0;
  std::vector<Cache> caches;  // from the largest level down
  std::vector<std::vector<int>>
      cores;  // of each core the hardware threads that this process may run on, by system number

  [[nodiscard]] unsigned hardware_threads() const;
};

// Reads the machine's topology now (takes milliseconds). Cores on which this process may not run
// are left out. Uses hwloc, which is opened at run time; where hwloc is missing, or Heddle was
// built without its header, uses what Linux says and sets a remark.
Result<Topology> read_topology();

// Reads the topology of the processors among `allowed` with the hwloc library that `file` names.
// CONFIG: the library cannot be opened, is not hwloc 2, or Heddle was built without its header.
Result<Topology> read_hwloc_topology(const char* file, const std::vector<int>& allowed);

// Reads what the kernel says about the processors among `allowed` in the files below `system`
// (/sys/devices/system on a real machine). Facts that the kernel does not state are left out, not
// guessed: the list of caches may be empty, and the processor has no name. Two exceptions: a
// hardware thread that does not say to which core it belongs counts as a core; a machine that does
// not name its packages or NUMA nodes counts as one of each. `system` may be any folder, so that
// tests can describe other machines.
Result<Topology> read_linux_topology(const std::string& system, const std::vector<int>& allowed);

// The processors that this thread may run on, by system number.
Result<std::vector<int>> allowed_processors();

}  // namespace heddle::base
