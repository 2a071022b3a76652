#include "harness/cores.hpp"

#include <sched.h>

#include <cstdlib>

#include "base/topology.hpp"

namespace heddle::bench::harness {

Cores Cores::allowed() {
  Cores cores;
  const auto processors = base::allowed_processors();
  if (!processors.ok()) return cores;
  const auto topology = base::read_linux_topology("/sys/devices/system", *processors);
  if (!topology.ok()) return cores;
  for (const bool first : {true, false}) {
    for (const std::vector<int>& threads : topology->cores) {
      cores.cpus_.insert(cores.cpus_.end(), first ? threads.begin() : threads.begin() + 1,
                         first ? threads.begin() + 1 : threads.end());
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
  sched_setaffinity(0, sizeof set, &set);  // if rejected, the scheduler's choice stands
}

}  // namespace heddle::bench::harness
