#include "harness/cores.hpp"

#include <sched.h>

#include <cstdlib>
#include <fstream>

namespace heddle::bench::harness {

namespace {

// True if no processor with a smaller number is a hardware thread of the same core.
bool first_of_core(int cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
  int first = cpu;
  file >> first;
  return first == cpu;
}

}  // namespace

Cores Cores::allowed() {
  Cores cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (const bool first : {true, false}) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set) && first_of_core(cpu) == first) cores.cpus_.push_back(cpu);
    }
  }
  return cores;
}

Cores Cores::parse(const std::string& text) {
  Cores cores;
  const char* at = text.c_str();
  while (*at != '\0') {
    char* end = nullptr;
    const long cpu = std::strtol(at, &end, 10);
    if (end == at || cpu < 0 || cpu >= CPU_SETSIZE) return Cores{};
    cores.cpus_.push_back(static_cast<int>(cpu));
    if (*end != '\0' && (*end != ',' || end[1] == '\0')) return Cores{};
    at = *end == ',' ? end + 1 : end;
  }
  return cores;
}

std::string Cores::text() const {
  std::string out;
  for (const int cpu : cpus_) out += (out.empty() ? "" : ",") + std::to_string(cpu);
  return out;
}

void Cores::pin_sharing(std::uint32_t rank, std::uint32_t thread) const {
  pin(rank + 2 * std::size_t{thread});
}

void Cores::pin_alone(std::uint32_t rank, std::uint32_t thread) const {
  pin(std::size_t{rank} + thread);
}

void Cores::unpin() const {
  if (cpus_.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus_) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

void Cores::pin(std::size_t index) const {
  if (cpus_.empty()) return;
  std::size_t pick = index % cpus_.size();
  // Two processes with several threads each on an odd number of cores: rank r stays on the cores of
  // its parity.
  if (index >= cpus_.size() && cpus_.size() > 1 && pick % 2 != index % 2) pick = (pick + 1) % cpus_.size();
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpus_[pick], &set);
  sched_setaffinity(0, sizeof set, &set);  // if refused, the scheduler's choice stands
}

}  // namespace heddle::bench::harness
