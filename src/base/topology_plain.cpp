// read_topology() of a build without hwloc.
#include "base/topology.hpp"

namespace heddle::base {

Result<Topology> read_topology() {
  const auto allowed = allowed_processors();
  if (!allowed) return allowed.status();
  return read_linux_topology("/sys/devices/system", *allowed);
}

}  // namespace heddle::base
