// The process that outlives a killed launcher just long enough to end the ranks.
//
// The launcher holds the write end of a pipe, and so does each child until its exec; each child
// announces its process group there before it runs anything. When the launcher ends in whatever
// way, the pipe closes, and the guardian kills every announced group, and its first process
// wherever that has gone (a rank may change its group), held by a pidfd so that no other process
// can be meant. The launcher announces processes that have joined from elsewhere. (PR_SET_PDEATHSIG
// ends the ranks themselves as well, unless they have cleared it; the guardian gets the rest.)
#pragma once

#include <sys/types.h>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace heddle::tools::run {

class Guardian {
 public:
  // Before any other descriptor or child that it need not know.
  static base::Result<Guardian> start();

  Guardian(Guardian&& other) noexcept : pipe_(std::move(other.pipe_)), pid_(std::exchange(other.pid_, 0)) {}
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  // Dismisses it: nothing is killed any more.
  ~Guardian();

  // In the child, which is the leader of its group: async-signal-safe. False: the guardian is gone.
  [[nodiscard]] bool announce(pid_t group) const;
  // A process alone, without its group.
  [[nodiscard]] bool announce_process(pid_t process) const { return announce(-process); }

 private:
  Guardian(base::Fd pipe, pid_t pid) : pipe_(std::move(pipe)), pid_(pid) {}
  base::Fd pipe_;
  pid_t pid_ = 0;
};

}  // namespace heddle::tools::run
