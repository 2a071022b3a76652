#include "base/topology.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

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
                                                    1,
                                                    static_cast<unsigned>(std::max<std::size_t>(cores.size(), 1))};
  }
}

// The caches of one level, kind and size in one row.
std::vector<Cache> in_rows(const Caches& caches) {
  std::vector<Cache> rows;
  for (const Caches::value_type& entry : caches) {
    const Cache& cache = entry.second;
    const auto same = [&cache](const Cache& row) {
      return row.level == cache.level && row.kind == cache.kind && row.bytes == cache.bytes;
    };
    const auto row = std::find_if(rows.begin(), rows.end(), same);
    if (row == rows.end()) {
      rows.push_back(cache);
    } else {
      ++row->count;
    }
  }
  return rows;
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
  topology.caches = in_rows(caches);

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

#if !HEDDLE_HAS_HWLOC  // else they are in topology_hwloc.cpp
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
#endif

}  // namespace heddle::base
