// read_topology() for a build without hwloc's header.
#include "base/topology.hpp"

namespace heddle::base {

Result<Topology> read_hwloc_topology(const char*, const std::vector<int>&) {
  return fail(HEDDLE_ERR_CONFIG, "this Heddle was built without hwloc; Debian: libhwloc-dev");
}

Result<Topology> read_topology() {
  const auto allowed = allowed_processors();
  if (!allowed) return allowed.status();
  auto topology = read_linux_topology("/sys/devices/system", *allowed);
  if (topology) topology->remark = "this Heddle was built without hwloc; Debian: libhwloc-dev";
  return topology;
}

}  // namespace heddle::base
