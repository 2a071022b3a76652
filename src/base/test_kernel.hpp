// For tests: kernel features that some kernels lack. A test that needs one says "skipped: …" where
// it is missing.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

namespace heddle::test {

inline constexpr const char* kNoKernelCopy =
    "skipped: process_vm_readv is not to be had here (an emulator, a filter of calls)";

// Whether processes may copy from each other's memory. A process that may not copy from its own
// memory may not copy from another's either.
inline bool kernel_copies() {
  char from = 1;
  char to = 0;
  const iovec here{&to, 1};
  const iovec there{&from, 1};
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == 1 && to == 1;
}

}  // namespace heddle::test
