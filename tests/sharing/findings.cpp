#include "sharing/findings.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "base/cache_line.hpp"

namespace heddle::sharing {
namespace {

std::string output_of(const std::string& command) {
  std::string text;
  if (FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r"); pipe != nullptr) {
    std::array<char, 4096> line{};
    while (std::fgets(line.data(), line.size(), pipe) != nullptr) text += line.data();
    pclose(pipe);
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// "function at file:line", and the functions that inlined it. Each place is looked up once.
std::string source_of(const void* place) {
  static std::map<const void*, std::string> known;
  if (const auto found = known.find(place); found != known.end()) return found->second;
  Dl_info info{};
  std::string out = "?";
  if (dladdr(place, &info) != 0) {
    std::ostringstream command;  // the call is before the place
    command << "addr2line -Cfipe '" << info.dli_fname << "' 0x" << std::hex
            << reinterpret_cast<std::uintptr_t>(place) - reinterpret_cast<std::uintptr_t>(info.dli_fbase) - 1;
    out = output_of(command.str());
    if (out.empty()) out = info.dli_fname;
  }
  return known[place] = out;
}

// The variables of a program or library in this line, also those that only it knows.
std::string variables_in(std::uintptr_t address, const Dl_info& info) {
  const std::uintptr_t begin = address - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  std::istringstream symbols(output_of("nm -nCS '" + std::string(info.dli_fname) + "'"));
  std::string out;
  for (std::string text; std::getline(symbols, text);) {
    unsigned long at = 0;
    unsigned long bytes = 0;
    char kind = 0;
    int name_at = 0;
    if (std::sscanf(text.c_str(), "%lx %lx %c %n", &at, &bytes, &kind, &name_at) < 3) continue;
    if (at >= begin + base::kCacheLine || at + bytes <= begin) continue;
    out += (out.empty() ? "" : ", ") + text.substr(static_cast<std::size_t>(name_at));
  }
  return out.empty() ? info.dli_fname : out;
}

// A segment may be mapped twice, by its owner and by a peer: one line has two addresses then.
class Mappings {
 public:
  Mappings() {
    std::ifstream file("/proc/self/maps");
    for (std::string text; std::getline(file, text);) {
      Mapping one;
      unsigned long long inode = 0;
      char access[8] = "";
      char device[32] = "";
      int name_at = 0;
      if (std::sscanf(text.c_str(), "%lx-%lx %7s %lx %31s %llu %n", &one.begin, &one.end, access, &one.offset, device,
                      &inode, &name_at) < 6) {
        continue;
      }
      one.shared = access[3] == 's';
      one.file = std::string(device) + " " + std::to_string(inode);
      one.name = text.substr(std::min<std::size_t>(static_cast<std::size_t>(name_at), text.size()));
      all_.push_back(one);
    }
  }
  // The same for all addresses of one line.
  [[nodiscard]] std::pair<std::string, std::uintptr_t> line_of(std::uintptr_t address) const {
    const Mapping* mapping = find(address);
    if (mapping == nullptr || !mapping->shared) return {"", address};
    return {mapping->file, address - mapping->begin + mapping->offset};
  }
  [[nodiscard]] std::string words(std::uintptr_t address) const {
    std::ostringstream out;
    const Mapping* mapping = find(address);
    Dl_info info{};
    const bool is_static = dladdr(reinterpret_cast<const void*>(address), &info) != 0;
    if (mapping == nullptr) {
      out << "gone memory";
    } else if (is_static) {
      out << variables_in(address, info);
    } else {
      out << (mapping->name.empty() ? "memory" : mapping->name);
    }
    out << " at 0x" << std::hex << address;
    return out.str();
  }

 private:
  struct Mapping {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::uintptr_t offset = 0;
    bool shared = false;
    std::string file;
    std::string name;
  };
  [[nodiscard]] const Mapping* find(std::uintptr_t address) const {
    const auto found = std::find_if(
        all_.begin(), all_.end(), [address](const Mapping& one) { return one.begin <= address && address < one.end; });
    return found == all_.end() ? nullptr : &*found;
  }
  std::vector<Mapping> all_;
};

struct Writes {
  std::uintptr_t address = 0;
  double count = 0;
  std::set<std::uint32_t> lanes;
  std::map<std::uint32_t, std::set<std::uint32_t>> lanes_of_phase;
  std::set<const void*> places;
};

}  // namespace

std::vector<Finding> shared_lines(const std::vector<Part>& parts, std::uint32_t phases, double operations,
                                  const std::string& others) {
  const Mappings mappings;
  std::map<std::pair<std::string, std::uintptr_t>, Writes> lines;
  for (const Part& part : parts) {
    for (const Line& line : *part.record) {
      if (line.number == 0) continue;
      const std::uintptr_t address = line.number * base::kCacheLine;
      Writes& one = lines[mappings.line_of(address)];
      one.address = address;
      one.count += line.writes;
      one.lanes.insert(part.lane);
      one.lanes_of_phase[part.phase].insert(part.lane);
      for (const void* place : line.places) {
        if (place != nullptr) one.places.insert(place);
      }
    }
  }
  std::vector<Finding> out;
  for (const auto& [key, one] : lines) {
    if (one.lanes_of_phase.size() < phases) continue;
    if (std::any_of(one.lanes_of_phase.begin(), one.lanes_of_phase.end(),
                    [](const auto& phase) { return phase.second.size() < 2; })) {
      continue;
    }
    Finding finding{mappings.words(one.address), {one.lanes.begin(), one.lanes.end()}, one.count / operations, {}};
    bool counts = false;
    for (const void* place : one.places) {
      finding.places.push_back(source_of(place));
      counts = counts || others.empty() || finding.places.back().find(others) == std::string::npos;
    }
    if (counts) out.push_back(std::move(finding));
  }
  std::sort(out.begin(), out.end(), [](const Finding& a, const Finding& b) { return a.writes > b.writes; });
  return out;
}

std::string describe(const std::vector<Finding>& findings) {
  constexpr std::size_t kMost = 12;
  std::ostringstream out;
  out << findings.size() << " cache lines are written by several threads:\n";
  for (std::size_t i = 0; i < std::min(findings.size(), kMost); ++i) {
    const Finding& one = findings[i];
    out << "  " << one.where << ": " << one.lanes.size() << " lanes, " << one.writes << " writes per operation\n";
    for (const std::string& place : one.places) out << "    " << place << "\n";
  }
  if (findings.size() > kMost) out << "  and more\n";
  return out.str();
}

}  // namespace heddle::sharing
