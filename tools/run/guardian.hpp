// A process that survives the launcher and kills the ranks if the launcher is killed.
//
// The launcher holds the write end of a pipe, and so does each child until its exec. Each child
// announces its process group there before it runs anything. The launcher announces processes that
// have joined from elsewhere. When the launcher ends, however it ends, the pipe closes. The
// guardian then kills every announced group, and also the group's first process, which may have
// moved to another group. A pidfd makes sure that no other process is killed. (PR_SET_PDEATHSIG
// ends the ranks too, unless they have cleared it; the guardian kills the rest.)
#pragma once

#include <sys/types.h>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace heddle::tools::run {

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

}  // namespace heddle::tools::run
