#include "base/threads.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace heddle::base::quiet_thread_test {
namespace {

TEST(QuietThread, TakesNoSignalThatIsSent) {
  sigset_t blocked;
  start_quiet_thread([&] { pthread_sigmask(SIG_SETMASK, nullptr, &blocked); }).join();
  for (const int sent : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD, SIGPIPE, SIGPROF})
    EXPECT_EQ(sigismember(&blocked, sent), 1) << sent;
}

TEST(QuietThread, LeavesTheStarterItsMask) {
  sigset_t before;
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  start_quiet_thread([] {}).join();
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int one = 1; one < NSIG; ++one) EXPECT_EQ(sigismember(&before, one), sigismember(&after, one)) << one;
}

// If the signal is blocked in the thread that causes it, the kernel ends the process, whatever
// handler there is.
TEST(QuietThread, ACrashReachesTheHandlerOfTheApplication) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        signal(SIGSEGV, [](int) { _exit(42); });
        start_quiet_thread([] { raise(SIGSEGV); }).join();
        _exit(1);
      },
      testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace heddle::base::quiet_thread_test
