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
  std::string processor;  // model; empty where the system does not tell
  unsigned packages = 0;
  unsigned numa_nodes = 0;
  std::vector<Cache> caches;  // from the largest level down
  std::vector<std::vector<int>>
      cores;  // of each core the hardware threads that this process may run on, by system number

  [[nodiscard]] unsigned hardware_threads() const;
};

// Looks at the machine now (takes milliseconds). Cores on which this process may not run are left out.
Result<Topology> read_topology();

}  // namespace heddle::base
