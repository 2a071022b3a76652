// Tests what a forked child finds in place of the descriptors that belong to its parent alone.
#include "bootstrap/process_fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

namespace heddle::bootstrap::process_fd_test {
namespace {

// True if `check` returns 0 in a forked child.
testing::AssertionResult in_child(auto&& check) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(check());
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return testing::AssertionFailure() << "no child";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the child ended with " << status;
}

// True: the descriptor reaches no other end; data that is sent is lost, with an error.
bool leads_nowhere(int fd) {
  char byte = 0;
  return ::fcntl(fd, F_GETFD) == FD_CLOEXEC && ::send(fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == -1 &&
         ::recv(fd, &byte, 1, MSG_DONTWAIT) <= 0 && errno != EAGAIN;
}

bool works(const ProcessFd& from, const ProcessFd& to) {
  char byte = 'x';
  char got = 0;
  return ::send(from.get(), &byte, 1, MSG_NOSIGNAL) == 1 && ::recv(to.get(), &got, 1, 0) == 1 && got == byte;
}

TEST(process_fd, a_child_has_the_numbers_but_not_the_connections) {
  auto ends = ProcessFd::make_pair();
  ASSERT_TRUE(ends[0].valid() && ends[1].valid());
  EXPECT_TRUE(in_child([&] {
    if (!leads_nowhere(ends[0].get()) || !leads_nowhere(ends[1].get())) return 1;
    // Its own children have nothing left to replace, and its objects close only their own numbers.
    if (!in_child([&] { return leads_nowhere(ends[0].get()) ? 0 : 1; })) return 2;
    const int number = ends[0].get();
    ends[0].reset();
    return ::fcntl(number, F_GETFD) == -1 ? 0 : 3;
  }));
  EXPECT_TRUE(works(ends[0], ends[1]));
}

TEST(process_fd, a_child_ends_no_connection_and_keeps_none) {
  auto ends = ProcessFd::make_pair();
  std::array<int, 2> until{};
  ASSERT_EQ(::pipe(until.data()), 0);
  const pid_t child = ::fork();
  char none = 0;
  if (child == 0) {
    ::close(until[1]);
    ::_exit(::read(until[0], &none, 1) == 0 ? 0 : 1);
  }
  EXPECT_TRUE(works(ends[1], ends[0]));
  ends[1].reset();
  pollfd ended{ends[0].get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 60'000), 1) << "the child, which lives, keeps the connection";
  EXPECT_EQ(::recv(ends[0].get(), &none, 1, MSG_DONTWAIT), 0);
  ::close(until[1]);
  ::waitpid(child, nullptr, 0);
  ::close(until[0]);
}

TEST(process_fd, moved_and_closed_ones_leave_nothing_behind) {
  auto ends = ProcessFd::make_pair();
  ProcessFd moved = std::move(ends[0]);
  EXPECT_FALSE(ends[0].valid());
  ends[1] = std::move(moved);  // closes what was there
  const int number = ends[1].get();
  EXPECT_TRUE(in_child([&] { return leads_nowhere(number) ? 0 : 1; }));
  ends[1].reset();
  const base::Fd file(::memfd_create("file", MFD_CLOEXEC));
  const base::Fd same(::dup3(file.get(), number, O_CLOEXEC));
  EXPECT_TRUE(in_child([&] { return ::write(number, "x", 1) == 1 ? 0 : 1; })) << "the number is another file's by now";
}

// A program that closes all descriptors, and opens files of its own.
TEST(process_fd, a_number_that_was_closed_behind_our_back_is_left_alone) {
  auto ends = ProcessFd::make_pair();
  const base::Fd file(::memfd_create("file", MFD_CLOEXEC));
  ASSERT_EQ(::dup3(file.get(), ends[0].get(), O_CLOEXEC), ends[0].get());
  EXPECT_TRUE(in_child([&] { return ::write(ends[0].get(), "x", 1) == 1 ? 0 : 1; }));
}

TEST(process_fd, a_child_that_may_open_nothing_keeps_nothing_either) {
  auto ends = ProcessFd::make_pair();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const base::Fd next(::fcntl(0, F_DUPFD_CLOEXEC, 0));
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next.get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_TRUE(in_child([&] {
    if (!leads_nowhere(ends[0].get())) return 1;
    return leads_nowhere(ends[1].get()) ? 0 : 2;
  }));
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

// Children that are forked while another thread opens and closes find a whole list and a free lock.
TEST(process_fd, forks_beside_a_thread_that_opens_and_closes) {
  std::atomic<bool> enough{false};
  std::thread other([&] {
    while (!enough.load()) {
      auto ends = ProcessFd::make_pair();
      EXPECT_TRUE(works(ends[0], ends[1]));
    }
  });
  auto kept = ProcessFd::make_pair();
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(in_child([&] {
      if (!leads_nowhere(kept[0].get())) return 1;
      kept[0].reset();  // takes the lock
      return ProcessFd::make_pair()[0].valid() ? 0 : 2;
    }));
  }
  enough.store(true);
  other.join();
  EXPECT_TRUE(works(kept[0], kept[1]));
}

}  // namespace
}  // namespace heddle::bootstrap::process_fd_test
