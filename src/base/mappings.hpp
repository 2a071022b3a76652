// The mappings of this process, as /proc/self/maps lists them. Slow: some microseconds for each
// mapping of the process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::base {

struct MappedRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  int protection = 0;   // PROT_…
  bool shared = false;  // MAP_SHARED
  std::uint64_t offset = 0;
  // of the file; 0: there is none
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;  // of the file, or such as [stack]; may be empty
};

// All of them, by address. Empty: they cannot be read, or not whole. Throws std::bad_alloc.
std::vector<MappedRange> read_mappings();
// By a descriptor of /proc/self/maps that is open already. One thread at a time.
std::vector<MappedRange> read_mappings(int maps);

}  // namespace heddle::base
