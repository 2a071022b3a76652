// read_topology() with hwloc, which is opened at run time; not part of a build without hwloc's
// header.
//
// Only types, constants and the functions' signatures of the header are used: its inline functions
// would link the library.
#include <dlfcn.h>
#include <hwloc.h>

#include <algorithm>
#include <memory>

#include "base/topology.hpp"

namespace heddle::base {
namespace {

constexpr const char* kHwlocFile = "libhwloc.so.15";  // of hwloc 2
constexpr unsigned kHwlocMajor = HWLOC_API_VERSION >> 16;

struct Library {
  decltype(&::hwloc_get_api_version) get_api_version = nullptr;
  decltype(&::hwloc_topology_init) init = nullptr;
  decltype(&::hwloc_topology_destroy) destroy = nullptr;
  decltype(&::hwloc_topology_load) load = nullptr;
  decltype(&::hwloc_topology_set_icache_types_filter) set_icache_types_filter = nullptr;
  decltype(&::hwloc_topology_get_depth) get_depth = nullptr;
  decltype(&::hwloc_get_type_depth) get_type_depth = nullptr;
  decltype(&::hwloc_get_nbobjs_by_depth) count_at = nullptr;
  decltype(&::hwloc_get_obj_by_depth) object_at = nullptr;
  decltype(&::hwloc_bitmap_next) bitmap_next = nullptr;
  decltype(&::hwloc_bitmap_isincluded) bitmap_isincluded = nullptr;
};

template <class Function>
bool find(void* handle, const char* name, Function* function) {
  void* symbol = ::dlsym(handle, name);
  *function = reinterpret_cast<Function>(symbol);
  return symbol != nullptr;
}

bool find_all(void* handle, Library* library) {
  return find(handle, "hwloc_get_api_version", &library->get_api_version) &&
         find(handle, "hwloc_topology_init", &library->init) &&
         find(handle, "hwloc_topology_destroy", &library->destroy) &&
         find(handle, "hwloc_topology_load", &library->load) &&
         find(handle, "hwloc_topology_set_icache_types_filter", &library->set_icache_types_filter) &&
         find(handle, "hwloc_topology_get_depth", &library->get_depth) &&
         find(handle, "hwloc_get_type_depth", &library->get_type_depth) &&
         find(handle, "hwloc_get_nbobjs_by_depth", &library->count_at) &&
         find(handle, "hwloc_get_obj_by_depth", &library->object_at) &&
         find(handle, "hwloc_bitmap_next", &library->bitmap_next) &&
         find(handle, "hwloc_bitmap_isincluded", &library->bitmap_isincluded);
}

// The library stays loaded until the process ends. CONFIG: the message says why it cannot be used.
Result<Library> open_library(const char* file) {
  void* handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    return fail(HEDDLE_ERR_CONFIG, "%s cannot be loaded: %s; Debian: libhwloc15", file, ::dlerror());
  }
  Library library;
  if (!find_all(handle, &library)) return fail(HEDDLE_ERR_CONFIG, "%s is not a whole hwloc 2", file);
  const unsigned version = library.get_api_version();
  if (version >> 16 != kHwlocMajor) {
    return fail(HEDDLE_ERR_CONFIG, "%s is of hwloc %u, and this Heddle was built for hwloc %u", file, version >> 16,
                kHwlocMajor);
  }
  return library;
}

// One topology, loaded.
class Reader {
 public:
  explicit Reader(const Library& library) : call_(library) {}
  ~Reader() {
    if (raw_ != nullptr) call_.destroy(raw_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  Status load() {
    if (call_.init(&raw_) != 0) {
      raw_ = nullptr;
      return fail_errno(HEDDLE_ERR_SYSTEM, "hwloc cannot be initialised");
    }
    if (call_.set_icache_types_filter(raw_, HWLOC_TYPE_FILTER_KEEP_NONE) != 0 || call_.load(raw_) != 0) {
      return fail_errno(HEDDLE_ERR_SYSTEM, "hwloc cannot read this machine's topology");
    }
    return HEDDLE_DONE;
  }

  [[nodiscard]] unsigned count_of(hwloc_obj_type_t type) const {
    const int depth = call_.get_type_depth(raw_, type);
    return depth == HWLOC_TYPE_DEPTH_UNKNOWN || depth == HWLOC_TYPE_DEPTH_MULTIPLE ? 0 : call_.count_at(raw_, depth);
  }
  [[nodiscard]] hwloc_obj_t object(hwloc_obj_type_t type, unsigned index) const {
    return index < count_of(type) ? call_.object_at(raw_, call_.get_type_depth(raw_, type), index) : nullptr;
  }
  [[nodiscard]] std::string processor() const {
    const hwloc_obj_t package = object(HWLOC_OBJ_PACKAGE, 0);
    for (const std::string_view key : {"CPUModel", "CPUVendor"}) {
      for (unsigned i = 0; package != nullptr && i < package->infos_count; ++i) {
        if (key == package->infos[i].name) return package->infos[i].value;
      }
    }
    return "";
  }
  [[nodiscard]] std::vector<Cache> caches() const {
    std::vector<Cache> rows;
    for (int depth = 0; depth < call_.get_depth(raw_); ++depth) {
      for (unsigned i = 0; i < call_.count_at(raw_, depth); ++i) add_cache(call_.object_at(raw_, depth, i), &rows);
    }
    return rows;
  }
  [[nodiscard]] std::vector<int> usable_threads(hwloc_const_cpuset_t cpus, const std::vector<int>& allowed) const {
    std::vector<int> threads;
    for (int cpu = call_.bitmap_next(cpus, -1); cpu >= 0; cpu = call_.bitmap_next(cpus, cpu)) {
      if (std::binary_search(allowed.begin(), allowed.end(), cpu)) threads.push_back(cpu);
    }
    return threads;
  }

 private:
  [[nodiscard]] unsigned cores_inside(hwloc_const_cpuset_t cpus) const {
    unsigned inside = 0;
    for (unsigned i = 0; i < count_of(HWLOC_OBJ_CORE); ++i) {
      if (call_.bitmap_isincluded(object(HWLOC_OBJ_CORE, i)->cpuset, cpus) != 0) ++inside;
    }
    return inside;
  }
  void add_cache(hwloc_obj_t object, std::vector<Cache>* rows) const {
    if (object->type < HWLOC_OBJ_L1CACHE || object->type > HWLOC_OBJ_L3ICACHE) return;
    const auto& attributes = object->attr->cache;
    const char kind = attributes.type == HWLOC_OBJ_CACHE_DATA      ? 'd'
                      : attributes.type == HWLOC_OBJ_CACHE_UNIFIED ? 'u'
                                                                   : 'i';
    const auto same = [&](const Cache& row) {
      return row.level == attributes.depth && row.kind == kind && row.bytes == attributes.size;
    };
    auto row = std::find_if(rows->begin(), rows->end(), same);
    if (row == rows->end()) {
      rows->push_back({attributes.depth, kind, attributes.size, attributes.linesize, 0,
                       std::max(cores_inside(object->cpuset), 1U)});
      row = rows->end() - 1;
    }
    ++row->count;
  }

  const Library& call_;
  hwloc_topology_t raw_ = nullptr;
};

}  // namespace

Result<Topology> read_hwloc_topology(const char* file, const std::vector<int>& allowed) {
  const auto library = open_library(file);
  if (!library) return library.status();
  Reader reader(*library);
  if (const Status status = reader.load(); status != HEDDLE_DONE) return status;
  Topology topology;
  topology.source = "hwloc";
  topology.packages = reader.count_of(HWLOC_OBJ_PACKAGE);
  topology.numa_nodes = reader.count_of(HWLOC_OBJ_NUMANODE);
  topology.processor = reader.processor();
  topology.caches = reader.caches();
  // Machines that do not describe their cores still describe their hardware threads.
  const hwloc_obj_type_t unit = reader.count_of(HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  for (unsigned i = 0; i < reader.count_of(unit); ++i) {
    std::vector<int> threads = reader.usable_threads(reader.object(unit, i)->cpuset, allowed);
    if (!threads.empty()) topology.cores.push_back(std::move(threads));
  }
  if (topology.cores.empty()) return fail(HEDDLE_ERR_SYSTEM, "hwloc finds no core on which this process may run");
  return topology;
}

Result<Topology> read_topology() {
  const auto allowed = allowed_processors();
  if (!allowed) return allowed.status();
  auto topology = read_hwloc_topology(kHwlocFile, *allowed);
  if (topology) return topology;
  std::string reason = last_message();
  topology = read_linux_topology("/sys/devices/system", *allowed);
  if (topology) topology->remark = std::move(reason);
  return topology;
}

}  // namespace heddle::base
