#include "base/mappings.hpp"

#include <sys/mman.h>
#include <sys/sysmacros.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>

namespace heddle::base {

std::vector<MappedRange> read_mappings() {
  std::vector<MappedRange> all;
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    char access[5] = {};
    MappedRange range;
    unsigned major_number = 0;
    unsigned minor_number = 0;
    std::uint64_t inode = 0;
    int name_at = 0;
    const int fields = std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &begin,
                                   &end, access, &range.offset, &major_number, &minor_number, &inode, &name_at);
    if (fields != 7) continue;
    range.begin = begin;
    range.end = end;
    range.protection =
        (access[0] == 'r' ? PROT_READ : 0) | (access[1] == 'w' ? PROT_WRITE : 0) | (access[2] == 'x' ? PROT_EXEC : 0);
    range.shared = access[3] == 's';
    range.device = makedev(major_number, minor_number);
    range.inode = inode;
    range.name = line.substr(static_cast<std::size_t>(name_at));
    all.push_back(std::move(range));
  }
  return all;
}

}  // namespace heddle::base
