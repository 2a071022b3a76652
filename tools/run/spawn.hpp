// Processes of the launcher: the ranks, and the guardian that ends them.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <optional>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "tools/run/options.hpp"

namespace heddle::tools::run {

// A process that survives the launcher and kills the ranks if the launcher is killed.
//
// The launcher holds the write end of a pipe, and so does each child until its exec. Each child
// announces its process group there before it runs anything. The launcher announces processes that
// have joined from elsewhere. When the launcher ends, however it ends, the pipe closes. The
// guardian then kills every announced group, and also the group's first process, which may have
// moved to another group. A pidfd makes sure that no other process is killed. (PR_SET_PDEATHSIG
// ends the ranks too, unless they have cleared it; the guardian kills the rest.)
class Guardian {
 public:
  // To be called before other descriptors are opened and children started, since the
  // guardian need not know them.
  static base::Result<Guardian> start();

  Guardian(Guardian&& other) noexcept : pipe_(std::move(other.pipe_)), pid_(std::exchange(other.pid_, 0)) {}
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  // Dismisses the guardian: it kills nothing.
  ~Guardian();

  // Called in the child, which leads its group: async-signal-safe. False: the guardian has ended.
  [[nodiscard]] bool announce(pid_t group) const;
  // Announces one process without its group.
  [[nodiscard]] bool announce_process(pid_t process) const { return announce(-process); }

 private:
  Guardian(base::Fd pipe, pid_t pid) : pipe_(std::move(pipe)), pid_(pid) {}
  base::Fd pipe_;
  pid_t pid_ = 0;
};

// Starts the processes of a job.

// Common to all children.
struct SpawnPlan {
  const RunOptions* options = nullptr;
  const Guardian* guardian = nullptr;
  sigset_t signals{};  // the signal mask for children: the launcher's at its start
  rlimit files{};      // the limits for children, see rank_descriptors()
  int null = -1;       // /dev/null
  int utofu = -1;      // --utofu: descriptor of the emulated machine's memory; -1: none
  int failures = -1;   // pipe: a child that cannot exec the program writes a SpawnFailure
};

// The step that a child could not do before its exec.
enum class SpawnStep : std::uint32_t { redirect, inherit, bind, limit, start };
struct SpawnFailure {
  std::uint32_t rank = 0;
  SpawnStep step = SpawnStep::start;
  int error = 0;  // errno
};

struct Child {
  pid_t pid = 0;  // also the number of its process group
  base::Fd pidfd;
  base::Fd socket;  // the launcher's end
  base::Fd output;  // with --tag: read ends
  base::Fd error;
};

// pidfd_open(2); invalid if there is no such process. (C++ cannot link with the header of glibc
// 2.36.)
base::Fd open_pidfd(pid_t pid);

// cpus: the cores on which it runs.
base::Result<Child> spawn(const SpawnPlan& plan, std::uint32_t rank, const std::optional<cpu_set_t>& cpus);

// The cores of each rank: `threads` cores of its own. When all cores are used, starts again at the
// first (*wrapped).
base::Result<std::vector<cpu_set_t>> place(std::uint32_t ranks, std::uint32_t threads, bool* wrapped);

// Raises the soft limit so that `wanted` descriptors can be open, as far as the hard limit goes;
// *before: the previous limits. SYSTEM: not even `needed` can.
base::Status allow_descriptors(std::size_t wanted, std::size_t needed, rlimit* before);

// How many descriptors are open in this process.
std::size_t open_descriptors();

// The descriptor limit of a rank: it uses one descriptor for each peer. Unchanged if that leaves
// kUsualDescriptors, otherwise raised, at most to the hard limit; a rank that needs more gets
// NO_MEMORY for the first peer beyond the limit.
inline constexpr rlim_t kUsualDescriptors = 256;
rlimit rank_descriptors(const rlimit& given, std::uint32_t ranks);

// Sends a signal through a pidfd; false: the process has ended.
bool send_signal(const base::Fd& pidfd, int signal);

}  // namespace heddle::tools::run
