// For tests: kernel features that some kernels lack. A test that needs one says "skipped: …" where
// it is missing.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>

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

inline constexpr const char* kNoFilters = "skipped: no filters of system calls (seccomp) here";

// From now on this system call fails with `error` in the calling thread, and in threads that it
// starts. False: there are no such filters here.
inline bool forbid_call(std::uint32_t call, std::uint32_t error) {
  std::array<sock_filter, 4> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace heddle::test
