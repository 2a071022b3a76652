// Starting the processes of a job.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include <optional>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "tools/run/guardian.hpp"
#include "tools/run/options.hpp"

namespace heddle::tools::run {

// What all children have in common.
struct SpawnPlan {
  const Options* options = nullptr;
  const Guardian* guardian = nullptr;
  sigset_t signals{};  // the mask that children get: the launcher's own, from before it changed it
  rlimit files{};      // theirs, see rank_descriptors()
  int null = -1;       // /dev/null
  int utofu = -1;      // --utofu: the processes' world; -1: none
  int failures = -1;   // pipe: a child that could not become the program writes a SpawnFailure
};

struct SpawnFailure {
  std::uint32_t rank = 0;
  int error = 0;  // errno
};

struct Child {
  pid_t pid = 0;  // and process group
  base::Fd pidfd;
  base::Fd socket;  // the launcher's end
  base::Fd output;  // with --tag: read ends
  base::Fd error;
};

// pidfd_open(2), invalid where there is no such process. (The header of glibc 2.36 cannot be linked
// with from C++.)
base::Fd open_pidfd(pid_t pid);

// cpus: where it shall run.
base::Result<Child> spawn(const SpawnPlan& plan, std::uint32_t rank, const std::optional<cpu_set_t>& cpus);

// The cores of each rank: `threads` cores of its own, beginning again at the first when they are
// used up (*wrapped).
base::Result<std::vector<cpu_set_t>> place(std::uint32_t ranks, std::uint32_t threads, bool* wrapped);

// Makes sure that `count` descriptors can be open; *before: the limits as they were.
base::Status allow_descriptors(std::size_t count, rlimit* before);

// The limit of a rank: it meets each peer with a descriptor of its own. As given if that leaves it
// kUsualDescriptors, otherwise raised, as far as the hard limit goes; beyond, a rank is told
// NO_MEMORY for the peer that is one too many.
inline constexpr rlim_t kUsualDescriptors = 256;
rlimit rank_descriptors(const rlimit& given, std::uint32_t ranks);

// Sends a signal through a pidfd; false: the process has ended.
bool send_signal(const base::Fd& pidfd, int signal);

}  // namespace heddle::tools::run
