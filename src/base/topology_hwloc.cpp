// read_topology() by hwloc; topology_plain.cpp is in its place where the build goes without.
#include <hwloc.h>

#include <algorithm>
#include <memory>

#include "base/topology.hpp"

namespace heddle::base {
namespace {

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Handle = std::unique_ptr<hwloc_topology, Destroy>;

unsigned count_of(hwloc_topology_t topology, hwloc_obj_type_t type) {
  const int count = hwloc_get_nbobjs_by_type(topology, type);
  return count > 0 ? static_cast<unsigned>(count) : 0;
}

void read_caches(hwloc_topology_t topology, std::vector<Cache>* caches) {
  for (int depth = 0; depth < hwloc_topology_get_depth(topology); ++depth) {
    for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_depth(topology, depth, object)) != nullptr &&
                                       hwloc_obj_type_is_cache(object->type);) {
      const auto& attributes = object->attr->cache;
      const char kind = attributes.type == HWLOC_OBJ_CACHE_DATA      ? 'd'
                        : attributes.type == HWLOC_OBJ_CACHE_UNIFIED ? 'u'
                                                                     : 'i';
      const auto same = [&](const Cache& cache) {
        return cache.level == attributes.depth && cache.kind == kind && cache.bytes == attributes.size;
      };
      auto it = std::find_if(caches->begin(), caches->end(), same);
      if (it == caches->end()) {
        const int shared = hwloc_get_nbobjs_inside_cpuset_by_type(topology, object->cpuset, HWLOC_OBJ_CORE);
        caches->push_back({attributes.depth, kind, attributes.size, attributes.linesize, 0,
                           static_cast<unsigned>(std::max(shared, 1))});
        it = caches->end() - 1;
      }
      ++it->count;
    }
  }
}

std::vector<int> usable_threads(hwloc_const_cpuset_t cpus, const std::vector<int>& allowed) {
  std::vector<int> threads;
  for (int cpu = hwloc_bitmap_first(cpus); cpu >= 0; cpu = hwloc_bitmap_next(cpus, cpu)) {
    if (std::binary_search(allowed.begin(), allowed.end(), cpu)) threads.push_back(cpu);
  }
  return threads;
}

}  // namespace

Result<Topology> read_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return fail_errno(HEDDLE_ERR_SYSTEM, "hwloc cannot be initialised");
  const Handle handle(raw);
  if (hwloc_topology_set_icache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE) != 0 || hwloc_topology_load(raw) != 0) {
    return fail_errno(HEDDLE_ERR_SYSTEM, "hwloc cannot read this machine's topology");
  }
  const auto allowed = allowed_processors();
  if (!allowed) return allowed.status();
  Topology topology;
  topology.source = "hwloc";
  topology.packages = count_of(raw, HWLOC_OBJ_PACKAGE);
  topology.numa_nodes = count_of(raw, HWLOC_OBJ_NUMANODE);
  for (const char* key : {"CPUModel", "CPUVendor"}) {
    const hwloc_obj_t package = hwloc_get_obj_by_type(raw, HWLOC_OBJ_PACKAGE, 0);
    const char* model = package != nullptr ? hwloc_obj_get_info_by_name(package, key) : nullptr;
    if (model != nullptr && topology.processor.empty()) topology.processor = model;
  }
  read_caches(raw, &topology.caches);
  // Machines that do not tell their cores still tell their hardware threads.
  const hwloc_obj_type_t unit = count_of(raw, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  for (unsigned i = 0; i < count_of(raw, unit); ++i) {
    std::vector<int> threads = usable_threads(hwloc_get_obj_by_type(raw, unit, i)->cpuset, *allowed);
    if (!threads.empty()) topology.cores.push_back(std::move(threads));
  }
  if (topology.cores.empty()) return fail(HEDDLE_ERR_SYSTEM, "hwloc finds no core on which this process may run");
  return topology;
}

}  // namespace heddle::base
