#include "driver/busy.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "harness/computation.hpp"

namespace heddle::bench::driver {

Busy::Busy(harness::Channel& channel, const harness::Cores& cores, std::uint32_t count) {
  const pid_t parent = getpid();
  for (std::uint32_t i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child < 0) {
      std::perror("heddle bench: --busy: fork");
      return;
    }
    if (child > 0) {
      children_.push_back(child);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    // As processes of two ranks: cores 0, 1, 0, 1, …, or as many as there are.
    cores.pin_sharing(i % 2, i / 2);
    harness::Computation computation;
    channel.compute_when_told([&] { computation.run(20'000); });
  }
}

Busy::~Busy() {
  for (const pid_t child : children_) {
    kill(child, SIGKILL);
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

}  // namespace heddle::bench::driver
