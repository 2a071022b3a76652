#include "base/topology.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

namespace heddle::base::topology_test {
namespace {

namespace fs = std::filesystem;

// A folder with the files that a kernel would show below /sys/devices/system.
class Machine {
 public:
  Machine() {
    std::string name = (fs::temp_directory_path() / "heddle_topology_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    root_ = name;
  }
  ~Machine() { fs::remove_all(root_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void file(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  void processor(int cpu, const std::string& siblings, int package) const {
    const std::string topology = "cpu/cpu" + std::to_string(cpu) + "/topology/";
    file(topology + "core_cpus_list", siblings);
    file(topology + "physical_package_id", std::to_string(package));
  }
  void cache(int cpu, int index, int level, const std::string& type, const std::string& size,
             const std::string& sharers) const {
    const std::string cache = "cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index) + "/";
    file(cache + "level", std::to_string(level));
    file(cache + "type", type);
    file(cache + "size", size);
    file(cache + "coherency_line_size", "256");
    file(cache + "shared_cpu_list", sharers);
  }
  [[nodiscard]] std::string root() const { return root_.string(); }

 private:
  fs::path root_;
};

std::vector<int> up_to(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::vector<std::vector<int>> sorted_cores(const Topology& topology) {
  auto cores = topology.cores;
  for (auto& core : cores) std::sort(core.begin(), core.end());
  std::sort(cores.begin(), cores.end());
  return cores;
}

std::vector<int> threads_of(const Topology& topology) {
  std::vector<int> threads;
  for (const auto& core : topology.cores) threads.insert(threads.end(), core.begin(), core.end());
  std::sort(threads.begin(), threads.end());
  return threads;
}

TEST(Topology, ThisMachine) {
  const auto allowed = allowed_processors();
  ASSERT_TRUE(allowed.ok());
  const auto topology = read_topology();
  ASSERT_TRUE(topology.ok()) << last_message();
  EXPECT_GE(topology->packages, 1U);
  EXPECT_GE(topology->numa_nodes, 1U);
  EXPECT_EQ(threads_of(*topology), *allowed);
  EXPECT_EQ(topology->hardware_threads(), allowed->size());
}

// In a build with hwloc: both readers describe the same machine alike.
TEST(Topology, LinuxSaysWhatHwlocSays) {
  const auto allowed = allowed_processors();
  ASSERT_TRUE(allowed.ok());
  if (!fs::exists("/sys/devices/system/cpu/cpu" + std::to_string(allowed->front()) + "/topology")) {
    GTEST_SKIP() << "skipped: this kernel does not show its cores, so that hwloc asks the processor";
  }
  const auto by_default = read_topology();
  const auto by_linux = read_linux_topology("/sys/devices/system", *allowed);
  ASSERT_TRUE(by_default.ok() && by_linux.ok()) << last_message();
  EXPECT_EQ(sorted_cores(*by_default), sorted_cores(*by_linux));
}

// hwloc is opened at run time: without it the topology is still read, and the remark says why.
TEST(Topology, WithoutTheLibraryItIsSaidWhy) {
  const auto allowed = allowed_processors();
  ASSERT_TRUE(allowed.ok());
  for (const char* file : {"libhwloc.so.none", "/dev/null", "libc.so.6"}) {
    EXPECT_EQ(read_hwloc_topology(file, *allowed).status(), HEDDLE_ERR_CONFIG) << file;
    EXPECT_TRUE(std::string(last_message()).find(file) != std::string::npos ||
                std::string(last_message()).find("built without hwloc") != std::string::npos)
        << last_message();
  }
  const auto topology = read_topology();
  ASSERT_TRUE(topology.ok()) << last_message();
  EXPECT_EQ(std::string(topology->source) == "hwloc", topology->remark.empty()) << topology->remark;
}

// Two of the four core groups of an A64FX, as its kernel shows them.
TEST(Topology, CoreGroups) {
  const Machine machine;
  machine.file("cpu/online", "0-23");
  machine.file("node/online", "0-1");
  for (int cpu = 0; cpu < 24; ++cpu) {
    machine.processor(cpu, std::to_string(cpu), 0);
    machine.cache(cpu, 0, 1, "Data", "64K", std::to_string(cpu));
    machine.cache(cpu, 1, 1, "Instruction", "64K", std::to_string(cpu));
    machine.cache(cpu, 2, 2, "Unified", "8192K", cpu < 12 ? "0-11" : "12-23");
  }
  const auto topology = read_linux_topology(machine.root(), up_to(24));
  ASSERT_TRUE(topology.ok()) << last_message();
  EXPECT_EQ(topology->cores.size(), 24U);
  EXPECT_EQ(topology->packages, 1U);
  EXPECT_EQ(topology->numa_nodes, 2U);
  ASSERT_EQ(topology->caches.size(), 2U) << "instruction caches are left out, as with hwloc";
  EXPECT_EQ(topology->caches[0].level, 2U);
  EXPECT_EQ(topology->caches[0].kind, 'u');
  EXPECT_EQ(topology->caches[0].bytes, 8U << 20);
  EXPECT_EQ(topology->caches[0].line_bytes, 256U);
  EXPECT_EQ(topology->caches[0].count, 2U);
  EXPECT_EQ(topology->caches[0].shared_by, 12U);
  EXPECT_EQ(topology->caches[1].kind, 'd');
  EXPECT_EQ(topology->caches[1].count, 24U);
  EXPECT_EQ(topology->caches[1].shared_by, 1U);
}

// The hardware threads of a core have numbers far apart, the packages' cores follow one another,
// and only some processors are allowed.
TEST(Topology, HardwareThreadsAndMasks) {
  const Machine machine;
  machine.file("cpu/online", "0-7");
  for (int cpu = 0; cpu < 8; ++cpu) {
    const int first = cpu % 4;
    machine.processor(cpu, std::to_string(first) + "," + std::to_string(first + 4), first / 2);
    machine.cache(cpu, 0, 3, "Unified", "2M", first < 2 ? "0-1,4-5" : "2-3,6-7");
  }
  const auto whole = read_linux_topology(machine.root(), up_to(8));
  ASSERT_TRUE(whole.ok()) << last_message();
  EXPECT_EQ(sorted_cores(*whole), (std::vector<std::vector<int>>{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(whole->packages, 2U);
  EXPECT_EQ(whole->numa_nodes, 1U) << "a kernel without NUMA shows none, and the machine is one";
  ASSERT_EQ(whole->caches.size(), 1U);
  EXPECT_EQ(whole->caches[0].shared_by, 2U) << "cores, not hardware threads";

  const auto part = read_linux_topology(machine.root(), {1, 4, 6});
  ASSERT_TRUE(part.ok()) << last_message();
  EXPECT_EQ(sorted_cores(*part), (std::vector<std::vector<int>>{{1}, {4}, {6}}));
  EXPECT_EQ(part->hardware_threads(), 3U);
}

TEST(Topology, OldKernelsNameTheSiblingsOtherwise) {
  const Machine machine;
  machine.file("cpu/online", "0-1");
  for (const char* cpu : {"0", "1"}) {
    machine.file("cpu/cpu" + std::string(cpu) + "/topology/thread_siblings_list", "0-1");
  }
  const auto topology = read_linux_topology(machine.root(), up_to(2));
  ASSERT_TRUE(topology.ok()) << last_message();
  EXPECT_EQ(sorted_cores(*topology), (std::vector<std::vector<int>>{{0, 1}}));
}

TEST(Topology, KernelThatTellsNothing) {
  const Machine machine;
  const auto topology = read_linux_topology(machine.root(), {0, 2});
  ASSERT_TRUE(topology.ok()) << last_message();
  EXPECT_EQ(sorted_cores(*topology), (std::vector<std::vector<int>>{{0}, {2}}));
  EXPECT_TRUE(topology->caches.empty());
  EXPECT_EQ(topology->packages, 1U);
  EXPECT_TRUE(topology->processor.empty());
}

TEST(Topology, NonsenseIsNotBelieved) {
  for (const char* list : {"3-1", "0-4294967295", "0-99999999", "0-", "-1", "a", "0,,1", "1 2", ","}) {
    const Machine machine;
    machine.file("cpu/online", list);
    machine.processor(0, list, 0);
    machine.cache(0, 0, 1, "Data", "muchK", list);
    const auto topology = read_linux_topology(machine.root(), {0});
    ASSERT_TRUE(topology.ok()) << list;
    EXPECT_EQ(sorted_cores(*topology), (std::vector<std::vector<int>>{{0}})) << list;
    ASSERT_EQ(topology->caches.size(), 1U) << list;
    EXPECT_EQ(topology->caches[0].bytes, 0U) << list;
    EXPECT_EQ(topology->caches[0].shared_by, 1U) << list;
  }
}

TEST(Topology, NoProcessorIsLeft) {
  const Machine machine;
  machine.file("cpu/online", "0-3");
  EXPECT_EQ(read_linux_topology(machine.root(), {7}).status(), HEDDLE_ERR_SYSTEM);
  EXPECT_NE(std::string(last_message()).find("on which this process may run"), std::string::npos);
}

}  // namespace
}  // namespace heddle::base::topology_test
