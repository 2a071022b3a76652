// The name of a descriptor, by which another process of the same machine opens the same file.
//
// Rank 0 passes the descriptors of cards on by its local socket, so they reach the ranks of rank
// 0's machine only. Ranks of another machine open each other's through /proc/PID/fd, which the
// kernel allows to processes of one user that may look at each other (no ptrace is needed). A
// process that has died has no /proc entry; its number may be another process's, so the file is
// compared.
#pragma once

#include <cstdint>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "bootstrap/local/frame.hpp"

namespace heddle::bootstrap::hosted {

struct DescriptorName {
  std::int32_t process = 0;
  std::int32_t number = -1;  // -1: there is none
  std::uint64_t device = 0;
  std::uint64_t file = 0;
};
static_assert(sizeof(DescriptorName) == 24 && sizeof(DescriptorName) <= local::kMaxCardTail);

// A name for a descriptor of this process; -1 has one, too. SYSTEM: the descriptor is not open.
base::Result<DescriptorName> name_descriptor(int fd);
// A new descriptor for the same file. PEER_FAILED: the process is gone. SYSTEM: the kernel does not
// allow it. NO_MEMORY: too many are open.
base::Result<base::Fd> open_descriptor(const DescriptorName& name, std::uint32_t rank);

}  // namespace heddle::bootstrap::hosted
