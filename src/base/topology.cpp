#include "base/topology.hpp"

#include <sched.h>

#if HEDDLE_HAS_HWLOC
#include <dlfcn.h>
#include <hwloc.h>
#endif

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace heddle::base {
namespace {

// The content of these files is not trusted: a processor number of this size or more makes a list
// invalid.
constexpr int kMostProcessors = 1 << 16;

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<unsigned> number(std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

unsigned number_in(const std::string& path) {
  const auto line = first_line(path);
  return line ? number(*line).value_or(0) : 0;
}

// "0-3,8,10-11", as the kernel writes sets of processors; ascending, as the kernel writes them.
// Empty: the text is no such list.
std::vector<int> parse_list(std::string_view text) {
  std::vector<int> numbers;
  while (!text.empty()) {
    const std::string_view range = text.substr(0, text.find(','));
    text.remove_prefix(std::min(range.size() + 1, text.size()));
    const std::size_t dash = range.find('-');
    const auto first = number(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number(range.substr(dash + 1));
    if (!first || !last || *first > *last || *last >= kMostProcessors) return {};
    for (unsigned i = *first; i <= *last; ++i) numbers.push_back(static_cast<int>(i));
  }
  return numbers;
}

std::vector<int> list_in(const std::string& path) {
  const auto line = first_line(path);
  return line ? parse_list(*line) : std::vector<int>{};
}

// "64K", "8192K", "32M".
std::uint64_t bytes_in(const std::string& path) {
  const auto line = first_line(path);
  if (!line || line->empty()) return 0;
  const char unit = line->back();
  const unsigned shift = unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
  const std::string_view digits(line->data(), line->size() - (shift != 0 ? 1 : 0));
  return std::uint64_t{number(digits).value_or(0)} << shift;
}

// The row of the caches of its level, kind and size; if there is none yet, it is added.
Cache& row_of(const Cache& cache, std::vector<Cache>* rows) {
  const auto same = [&](const Cache& row) {
    return row.level == cache.level && row.kind == cache.kind && row.bytes == cache.bytes;
  };
  const auto row = std::ranges::find_if(*rows, same);
  return row == rows->end() ? rows->emplace_back(cache) : *row;
}

// One cache of the machine: the files of every processor that shares it describe it.
using CacheName = std::tuple<unsigned, char, std::vector<int>>;  // level, kind, processors
using Caches = std::map<CacheName, Cache, std::greater<>>;       // from the largest level down

void read_caches(const std::string& processor, int self, const std::map<int, int>& core_of, Caches* caches) {
  for (int index = 0;; ++index) {
    const std::string cache = processor + "/cache/index" + std::to_string(index) + "/";
    const unsigned level = number_in(cache + "level");
    if (level == 0) return;
    const std::string type = first_line(cache + "type").value_or("Unified");
    if (type == "Instruction") continue;
    std::vector<int> sharers = list_in(cache + "shared_cpu_list");
    if (sharers.empty()) sharers.push_back(self);
    std::set<int> cores;
    for (const int sharer : sharers) {
      const auto core = core_of.find(sharer);
      if (core != core_of.end()) cores.insert(core->second);
    }
    const char kind = type == "Data" ? 'd' : 'u';
    (*caches)[{level, kind, std::move(sharers)}] = {level,
                                                    kind,
                                                    bytes_in(cache + "size"),
                                                    number_in(cache + "coherency_line_size"),
                                                    0,
                                                    static_cast<unsigned>(std::max<std::size_t>(cores.size(), 1))};
  }
}

}  // namespace

unsigned Topology::hardware_threads() const {
  std::size_t count = 0;
  for (const auto& core : cores) count += core.size();
  return static_cast<unsigned>(count);
}

Result<std::vector<int>> allowed_processors() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) {
    return fail_errno(HEDDLE_ERR_SYSTEM, "sched_getaffinity does not tell where this process may run");
  }
  std::vector<int> allowed;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) allowed.push_back(cpu);
  }
  return allowed;
}

Result<Topology> read_linux_topology(const std::string& system, const std::vector<int>& allowed) {
  Topology topology;
  topology.source = "Linux";
  std::vector<int> online = list_in(system + "/cpu/online");
  if (online.empty()) online = allowed;
  const auto folder = [&system](int cpu) { return system + "/cpu/cpu" + std::to_string(cpu); };

  std::map<int, int> core_of;  // processor to the first processor of its core
  std::set<std::string> packages;
  for (const int cpu : online) {
    std::vector<int> siblings = list_in(folder(cpu) + "/topology/core_cpus_list");
    // before Linux 5.3
    if (siblings.empty()) siblings = list_in(folder(cpu) + "/topology/thread_siblings_list");
    core_of[cpu] = std::find(siblings.begin(), siblings.end(), cpu) != siblings.end() ? siblings.front() : cpu;
    packages.insert(first_line(folder(cpu) + "/topology/physical_package_id").value_or(""));
  }
  topology.packages = static_cast<unsigned>(std::max<std::size_t>(packages.size(), 1));
  topology.numa_nodes = static_cast<unsigned>(std::max<std::size_t>(list_in(system + "/node/online").size(), 1));

  Caches caches;
  for (const int cpu : online) read_caches(folder(cpu), cpu, core_of, &caches);
  for (const auto& [name, cache] : caches) ++row_of(cache, &topology.caches).count;

  std::map<int, std::vector<int>> cores;
  for (const int cpu : allowed) {
    const auto core = core_of.find(cpu);
    if (core != core_of.end()) cores[core->second].push_back(cpu);
  }
  for (auto& [first, threads] : cores) topology.cores.push_back(std::move(threads));
  if (topology.cores.empty()) {
    return fail(HEDDLE_ERR_SYSTEM,
                "none of the processors that %s/cpu/online names is one on which this process may run", system.c_str());
  }
  return topology;
}

// ---- by hwloc -----------------------------------------------------------------------------------

// Only types, constants and the functions' signatures of hwloc's header are used: its inline
// functions would link the library, which is opened at run time.
#if HEDDLE_HAS_HWLOC

namespace {

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
    Cache& row = row_of({attributes.depth, kind, attributes.size, attributes.linesize, 0, 0}, rows);
    if (row.count++ == 0) row.shared_by = std::max(cores_inside(object->cpuset), 1U);
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

#else

Result<Topology> read_hwloc_topology(const char*, const std::vector<int>&) {
  return fail(HEDDLE_ERR_CONFIG, "this Heddle was built without hwloc; Debian: libhwloc-dev");
}

#endif

Result<Topology> read_topology() {
  constexpr const char* kHwlocFile = "libhwloc.so.15";  // of hwloc 2
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
