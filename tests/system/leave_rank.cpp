// A rank for launchers_test.cpp: all leave, and rank 1 is stopped between the meeting and its word
// that it leaves, by the end of a receive that nobody has sent for. Rank 0 prints "rank 0 has left
// after NS" and wakes it.
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "rank_support.hpp"

namespace heddle::tests {
namespace {

constexpr std::uint32_t kStopped = 1;
constexpr int kDeadlineMs = 80'000;

// Whatever rank 0 does, a process that is stopped must not stay behind.
void end_at_deadline() {
  const pid_t rank = ::getpid();
  if (::fork() != 0) return;
  // else the launcher waits for what this process may print
  for (const int fd : {0, 1, 2}) ::close(fd);
  pollfd end{static_cast<int>(::syscall(SYS_pidfd_open, rank, 0)), POLLIN, 0};
  if (end.fd >= 0 && ::poll(&end, 1, kDeadlineMs) == 0) ::kill(rank, SIGKILL);
  ::_exit(0);
}

void stop(void*, heddle_status status) {
  expect(status, HEDDLE_ERR_CANCELLED, "the receive");
  ::raise(SIGSTOP);
}

int run() {
  heddle_context context{};
  heddle_worker worker{};
  done(heddle_context_join(nullptr, &context), "join");
  done(heddle_worker_open(context, nullptr, &worker), "open");
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  done(heddle_context_rank(context, &rank), "rank");
  done(heddle_context_size(context, &size), "size");
  const pid_t own = ::getpid();
  std::vector<pid_t> processes(size);
  done(heddle_context_exchange(context, &own, sizeof own, processes.data()), "exchange");
  const heddle_wanted never{{HEDDLE_ANY, HEDDLE_ANY}, 7, UINT64_MAX};
  heddle_completion stops{};
  stops.fn = stop;
  heddle_receive receive;
  if (rank == kStopped) {
    end_at_deadline();
    expect(heddle_try_recv(worker, &never, nullptr, 0, &receive, &stops), HEDDLE_POSTED, "receive");
  }
  const std::int64_t begun = now_ns();
  done(heddle_context_leave(context), "leave");
  if (rank != 0) return 0;
  say("rank 0 has left after", now_ns() - begun);
  ::kill(processes[kStopped], SIGCONT);
  return 0;
}

}  // namespace
}  // namespace heddle::tests

int main(int, char**) {
  return heddle::tests::run();
}
