// How jobs of the real launcher end: by failures, limits and signals. Checks its reports, the ranks
// that learn of it, and that nothing stays behind.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/test_support.hpp"
#include "launch_support.hpp"

namespace heddle::tests::launch_ends_test {
namespace {

// ---- failures -----------------------------------------------------------------------------------

TEST(launch, the_exit_code_is_that_of_the_first_that_failed) {
  Launched job(shell({"-n", "3"}, "[ $HEDDLE_LOCAL_RANK != 1 ] || { echo pid $$; exit 3; }"));
  EXPECT_EQ(job.wait(), 3);
  ASSERT_EQ(job.numbers("pid").size(), 1U);
  EXPECT_EQ(job.err(), "heddle run: rank 1 (pid " + std::to_string(job.numbers("pid")[0]) + ") exited with code 3\n");
}

TEST(launch, a_signal_is_named) {
  Launched job(shell({"-n", "2"}, "[ $HEDDLE_LOCAL_RANK != 0 ] || kill -KILL $$"));
  EXPECT_EQ(job.wait(), 137);
  EXPECT_TRUE(has(job.err(), ") was killed by signal 9 (Killed)\n"));
}

// On an emulated machine a rank that breaks a rule aborts, and the others exit because of it. All
// ends are seen at one look: the launcher is stopped meanwhile.
TEST(launch, of_an_emulated_machine_the_one_that_aborted_is_named) {
  const std::string go = testing::TempDir() + "heddle_go_" + std::to_string(::getpid());
  Launched job(shell({"-n", "3", "--utofu", "3"}, "echo ready; while [ ! -e " + go +
                                                      " ]; do sleep 0.01; done; [ $UTOFU_EMU_RANK != 1 ] || "
                                                      "kill -ABRT $$; exit 1"));
  ASSERT_TRUE(job.await_lines(3));
  job.signal(SIGSTOP);
  std::ofstream(go).put('1');
  const auto ended = [&] {
    std::size_t zombies = 0;
    for (const pid_t child : children_of(job.pid())) {
      std::string line;
      std::getline(std::ifstream("/proc/" + std::to_string(child) + "/stat"), line);
      if (line.find(") Z ") != std::string::npos) ++zombies;
    }
    return zombies == 3;
  };
  EXPECT_TRUE(test::within_time(ended));
  job.signal(SIGCONT);
  EXPECT_EQ(job.wait(), 134);
  EXPECT_TRUE(has(job.err(), "rank 1 (pid "));
  EXPECT_TRUE(has(job.err(), ") was killed by signal 6 (Aborted"));
  ::unlink(go.c_str());
}

bool told_within_a_second(const Launched& job) {
  const long long dies = job.numbers("dies").at(0);
  return std::ranges::all_of(job.numbers("told"), [dies](long long told) { return told - dies < 1'000'000'000; });
}

// On a machine that others load, in one job of five.
TEST(launch, the_others_hear_of_a_death_within_a_second) {
  bool soon = false;
  for (int attempt = 0; attempt < 5 && !soon; ++attempt) {
    Launched job(words({"-n", "4"}, {kRank, "one-dies"}));
    EXPECT_EQ(job.wait(), 137) << job.err();
    EXPECT_EQ(count(job.err(), "heddle run:"), 1U) << job.err();
    EXPECT_TRUE(has(job.err(), "rank 1 (pid "));
    ASSERT_EQ(job.numbers("dies").size(), 1U);
    ASSERT_EQ(job.numbers("told").size(), 3U) << job.out();
    soon = told_within_a_second(job);
  }
  EXPECT_TRUE(soon);
}

TEST(launch, a_death_behind_a_shell_is_noticed_too) {
  bool soon = false;
  for (int attempt = 0; attempt < 5 && !soon; ++attempt) {
    Launched job(shell({"-n", "3"}, std::string(kRank) + " one-dies; :"));
    EXPECT_EQ(job.wait(), 1) << job.err();
    EXPECT_TRUE(has(job.err(), "ended without leaving the job"));
    ASSERT_EQ(job.numbers("dies").size(), 1U);
    ASSERT_EQ(job.numbers("told").size(), 2U) << job.out();
    soon = told_within_a_second(job);
  }
  EXPECT_TRUE(soon);
}

TEST(launch, going_without_leaving_is_a_failure) {
  Launched job(words({"-n", "3"}, {kRank, "one-goes-without-leaving"}));
  EXPECT_EQ(job.wait(), 1) << job.err();
  EXPECT_TRUE(has(job.err(), "exited without leaving the job\n"));
  EXPECT_EQ(count(job.err(), "wrong"), 0U) << job.err();
}

// Ranks 0 and 2 fail only because rank 1 has left, and end before it.
TEST(launch, who_left_first_is_named_although_others_end_first) {
  Launched job(words({"-n", "3", "--grace", "60"}, {kRank, "one-leaves-first", "3"}));
  EXPECT_EQ(job.wait(), 3) << job.err();
  EXPECT_TRUE(has(job.err(), "heddle run: rank 1 (pid "));
  EXPECT_TRUE(has(job.err(), ") exited with code 3\n"));
  EXPECT_EQ(count(job.err(), "heddle run:"), 1U) << job.err();
}
TEST(launch, who_left_first_and_ends_well_is_not_to_blame) {
  Launched job(words({"-n", "3", "--grace", "60"}, {kRank, "one-leaves-first", "0"}));
  EXPECT_EQ(job.wait(), 4) << job.err();
  EXPECT_TRUE(has(job.err(), ") exited with code 4\n"));
  EXPECT_FALSE(has(job.err(), "rank 1"));
}
// A rank that has left and runs on without end does not hide the failure.
TEST(launch, who_left_first_is_awaited_for_the_grace_only) {
  Launched job(words(
      {"-n", "3", "--grace", "0.2"},
      {"/bin/sh", "-c",
       std::string(kRank) + " one-leaves-first 0; code=$?; [ $HEDDLE_LOCAL_RANK = 1 ] && sleep 1000; exit $code"}));
  EXPECT_EQ(job.wait(), 4) << job.err();
  EXPECT_TRUE(has(job.err(), ") exited with code 4\n"));
}

TEST(launch, who_never_joins_is_not_waited_for) {
  Launched job(words({"-n", "3"}, {kRank, "one-never-joins"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST(launch, abort_ends_everybody_with_its_code_and_message) {
  Launched job(words({"-n", "4"}, {kRank, "one-aborts"}));
  EXPECT_EQ(job.wait(), 42);
  EXPECT_EQ(job.err(), "heddle run: rank 1 aborts the job with code 42: the warp is torn\n");
}

// The first failure decides. The same actions of the others are no deaths.
TEST(launch, all_may_abort_with_code_0_at_once) {
  for (int run = 0; run < 20; ++run) {
    Launched job(words({"-n", "32"}, {kRank, "all-end-all"}));
    ASSERT_EQ(job.wait(), 0) << job.err();
    ASSERT_EQ(job.err(), "");
  }
}

TEST(launch, abort_with_code_0_ends_everybody_without_a_word) {
  Launched job(words({"-n", "4"}, {kRank, "one-ends-all"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.err(), "");
}

TEST(launch, who_does_not_notice_a_failure_is_ended_after_the_grace) {
  Launched job(shell({"-n", "2", "--grace", "0.2"},
                     "[ $HEDDLE_LOCAL_RANK != 0 ] || exit 5; exec " + std::string(kRank) + " stubborn"));
  EXPECT_EQ(job.wait(), 5);
  EXPECT_TRUE(has(job.err(), "1 processes still run 0.2 s after the failure; ending them (--grace S|unlimited"));
}

// The others find out, and finish.
TEST(launch, deaths_do_not_count_where_survivors_decide) {
  Launched job(words({"-n", "4", "--exit-code", "survivors"}, {kRank, "one-dies"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(count(job.err(), "heddle run:"), 1U) << job.err();
  EXPECT_TRUE(has(job.err(), ") was killed by signal 9 (Killed)"));
  EXPECT_EQ(job.numbers("told").size(), 3U) << job.out();
  Launched gone(words({"-n", "3", "--exit-code", "survivors"}, {kRank, "one-goes-without-leaving"}));
  EXPECT_EQ(gone.wait(), 0) << gone.err();
  EXPECT_TRUE(has(gone.err(), "exited without leaving the job\n"));
}
TEST(launch, who_has_never_joined_is_no_survivor_of_those_that_have) {
  std::string folder = testing::TempDir() + "launch-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string gate = folder + "/gate";
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  Launched job(words({"-n", "2", "--exit-code", "survivors"}, {kRank, "one-never-joins-and-one-dies", gate}));
  EXPECT_EQ(job.wait(), 137) << job.err();
  EXPECT_TRUE(has(job.err(), "rank 1 (pid "));
  EXPECT_TRUE(has(job.err(), ") exited without joining the job that other ranks have joined"));
  ::unlink(gate.c_str());
  ::rmdir(folder.c_str());
}
TEST(launch, survivors_that_fail_decide_and_the_dead_if_there_are_none) {
  Launched failed(words({"-n", "3", "--grace", "60", "--exit-code", "survivors"}, {kRank, "one-leaves-first", "3"}));
  EXPECT_EQ(failed.wait(), 3) << failed.err();
  Launched dead(shell({"-n", "2", "--exit-code", "survivors"}, "kill -KILL $$"));
  EXPECT_EQ(dead.wait(), 137) << dead.err();
  EXPECT_EQ(count(dead.err(), ") was killed by signal 9 (Killed)"), 2U) << "each death is told: " << dead.err();
  Launched stopped(shell({"-n", "2", "--grace", "0", "--exit-code", "survivors"},
                         "[ $HEDDLE_LOCAL_RANK != 0 ] || kill -KILL $$; exec " + std::string(kRank) + " stubborn"));
  EXPECT_EQ(stopped.wait(), 137) << "who has been ended by the launcher has not ended well: " << stopped.err();
}
TEST(launch, without_a_limit_nobody_is_ended_after_a_failure) {
  Launched job(shell({"-n", "2", "--grace", "unlimited", "--timeout", "1"},
                     "[ $HEDDLE_LOCAL_RANK != 0 ] || exit 5; exec " + std::string(kRank) + " stubborn"));
  EXPECT_EQ(job.wait(), 124) << job.err();
  EXPECT_FALSE(has(job.err(), "after the failure"));
}

TEST(launch, a_time_limit_ends_the_job) {
  Launched job(words({"-n", "2", "--timeout", "0.3"}, {"/bin/sleep", "1000"}));
  EXPECT_EQ(job.wait(), 124);
  EXPECT_EQ(job.err(), "heddle run: the time limit of 0.3 s is over; ending 2 processes\n");
}

TEST(launch, what_cannot_be_started_is_told_as_a_shell_would) {
  Launched missing(words({"-n", "3"}, {"./no-such-program"}));
  EXPECT_EQ(missing.wait(), 127);
  EXPECT_EQ(missing.err(), "heddle run: cannot start ./no-such-program: No such file or directory\n");
  Launched forbidden(words({"-n", "3"}, {"/etc/passwd"}));
  EXPECT_EQ(forbidden.wait(), 126);
  EXPECT_EQ(forbidden.err(), "heddle run: cannot start /etc/passwd: Permission denied\n");
}

TEST(launch, words_that_make_no_sense_are_named) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"-n", "0", "true"}, "-n 0 is not a number of processes; 1 to 1024 are possible"},
      {{"-n", "100000", "true"}, "-n 100000 is not a number of processes; 1 to 1024 are possible"},
      {{"-n", "two", "true"}, "-n two is not a number of processes; 1 to 1024 are possible"},
      {{"-t", "0", "true"}, "-t 0 is not a number of threads per process; 1 to 4096 are possible"},
      {{"--env", "NAME", "true"}, "--env NAME is not of the form NAME=VALUE"},
      {{"--env", "=x", "true"}, "--env =x is not of the form NAME=VALUE"},
      {{"--bind", "socket", "true"}, "--bind socket is neither core nor none"},
      {{"--timeout", "0", "true"}, "--timeout 0 is not a time in seconds (more than 0)"},
      {{"--grace", "nan", "true"}, "--grace nan is not a time in seconds (0 or more), or unlimited"},
      {{"--exit-code", "0", "true"}, "--exit-code 0 is neither first nor survivors"},
      {{"--bogus", "true"}, "unknown option --bogus; `heddle run --help` lists the options"},
      {{"-n", "2"}, "no program given; usage: heddle run -n N ./program arguments"},
  };
  for (const auto& [given, message] : cases) {
    Launched job(words(given, {}));
    EXPECT_EQ(job.wait(), 2);
    EXPECT_EQ(job.err(), "heddle run: " + message + "\n");
  }
}

// ---- signals, orphans ---------------------------------------------------------------------------

TEST(launch, signals_are_forwarded) {
  Launched job(shell({"-n", "2"}, "trap 'exit 7' TERM; echo ready; while :; do sleep 0.02; done"));
  ASSERT_TRUE(job.await_lines(2));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 7) << job.err();
}

TEST(launch, a_second_interrupt_kills) {
  Launched job(words({"-n", "2"}, {kRank, "stubborn"}));
  ASSERT_TRUE(job.await_lines(2));
  job.signal(SIGINT);
  // The two must not become one: wait until the first has been taken.
  const std::string status = "/proc/" + std::to_string(job.pid()) + "/status";
  const auto pending = [&] {
    std::ifstream file(status);
    std::string text(std::istreambuf_iterator<char>(file), {});
    return text.find("ShdPnd:\t0000000000000000") == std::string::npos;
  };
  const std::uint64_t end = base::SystemClock().now_ns() + 20'000'000'000;
  while (pending()) ASSERT_LT(base::SystemClock().now_ns(), end);
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_EQ(job.err(),
            "heddle run: interrupted; waiting for 2 processes, Ctrl-C again kills\n"
            "heddle run: interrupted twice; killing the job\n");
}

TEST(launch, no_process_outlives_a_killed_launcher) {
  Launched job(words({"-n", "3"}, {kRank, "stay"}));
  ASSERT_TRUE(job.await_lines(6)) << job.err();
  std::vector<base::Fd> alive;
  const auto children = children_of(job.pid());
  EXPECT_EQ(children.size(), 4U) << "three ranks and the guardian";
  for (const pid_t pid : children) alive.push_back(open_pidfd(pid));
  for (const long long pid : job.numbers("pid")) alive.push_back(open_pidfd(static_cast<pid_t>(pid)));
  EXPECT_EQ(alive.size(), 10U);
  for (const base::Fd& pidfd : alive) {
    ASSERT_TRUE(pidfd.valid());
    ASSERT_FALSE(ended(pidfd, 0));
  }
  job.signal(SIGKILL);
  for (const base::Fd& pidfd : alive) EXPECT_TRUE(ended(pidfd, 10'000));
}

TEST(launch, a_terminal_going_away_does_not_end_the_guardian_before_the_ranks) {
  Launched job(words({"-n", "1"}, {kRank, "stay"}));
  ASSERT_TRUE(job.await_lines(2)) << job.err();
  pid_t guardian = 0;
  for (const pid_t pid : children_of(job.pid())) {
    if (pid != job.numbers("pid")[0] && pid != job.numbers("pid")[1]) guardian = pid;
  }
  ASSERT_GT(guardian, 1);
  const base::Fd pidfd = open_pidfd(guardian);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::kill(guardian, number);
  EXPECT_FALSE(ended(pidfd, 50));
  job.signal(SIGKILL);
  EXPECT_TRUE(ended(pidfd, 10'000));
}

// A file whose next open for execution waits until the lease is given back, or the kernel takes it
// (45 s).
class Leased {
 public:
  Leased() {
    ::signal(SIGIO, SIG_IGN);
    base::Fd writing(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755));
    EXPECT_EQ(::write(writing.get(), "#!/bin/true\n", 12), 12);
    writing.reset();
    file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    taken_ = ::fcntl(file_.get(), F_SETLEASE, F_WRLCK) == 0;
  }
  ~Leased() { ::unlink(path_.c_str()); }
  [[nodiscard]] bool taken() const { return taken_; }
  [[nodiscard]] bool somebody_waits() const { return ::fcntl(file_.get(), F_GETLEASE) != F_WRLCK; }
  void give_back() { file_.reset(); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = testing::TempDir() + "heddle-leased-" + std::to_string(::getpid());
  base::Fd file_;
  bool taken_ = false;
};

TEST(launch, an_interrupt_ends_a_job_whose_program_cannot_be_opened_yet) {
  for (const bool by_signal : {true, false}) {
    const Leased program;
    if (!program.taken()) GTEST_SKIP() << "the file system of " << program.path() << " has no leases";
    Launched job(words(by_signal ? std::vector<std::string>{"-n", "2"} : std::vector<std::string>{"--timeout", "2"},
                       {program.path()}));
    const base::Fd launcher = open_pidfd(job.pid());
    const std::uint64_t end = base::SystemClock().now_ns() + 20'000'000'000;
    while (!program.somebody_waits() && !ended(launcher, 0)) ASSERT_LT(base::SystemClock().now_ns(), end);
    if (by_signal) job.signal(SIGINT);
    EXPECT_TRUE(ended(open_pidfd(job.pid()), 15'000)) << "the launcher waits for the exec";
    EXPECT_EQ(job.wait(), by_signal ? 130 : 124) << job.err();
  }
}

long processor_ms(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(stat, line);
  std::istringstream after(line.substr(line.rfind(')') + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) after >> skipped;
  long user = 0;
  long system = 0;
  after >> user >> system;
  return (user + system) * 1000 / ::sysconf(_SC_CLK_TCK);
}

// A child that has not come to its exec has copies of the launcher's descriptors, also of those
// that belong to ranks that have ended meanwhile.
TEST(launch, ranks_end_while_another_has_not_come_to_its_exec) {
  Leased program;
  if (!program.taken()) GTEST_SKIP() << "the file system of " << program.path() << " has no leases";
  Launched job(words({"-n", "3", "--tag"}, {program.path()}));
  // the guardian, and the ranks in their order
  std::vector<pid_t> children;
  const std::uint64_t end = base::SystemClock().now_ns() + 20'000'000'000;
  while ((children = children_of(job.pid())).size() < 4) ASSERT_LT(base::SystemClock().now_ns(), end);
  std::sort(children.begin(), children.end());
  ::kill(children[3], SIGSTOP);
  program.give_back();
  EXPECT_TRUE(ended(open_pidfd(children[1]), 20'000));
  EXPECT_TRUE(ended(open_pidfd(children[2]), 20'000));
  ::usleep(50'000);
  const long before = processor_ms(job.pid());
  ::usleep(400'000);
  EXPECT_LT(processor_ms(job.pid()) - before, 100) << "it is told on and on of what it has closed";
  ::kill(children[3], SIGCONT);
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST(launch, a_rank_that_has_left_its_group_ends_with_the_job_all_the_same) {
  Launched limited(words({"-n", "2", "--timeout", "0.3"}, {kRank, "elsewhere"}));
  EXPECT_TRUE(ended(open_pidfd(limited.pid()), 15'000)) << "the launcher waits for a rank that it has not killed";
  EXPECT_EQ(limited.wait(), 124);
  Launched orphaned(words({"-n", "2"}, {kRank, "elsewhere"}));
  ASSERT_TRUE(orphaned.await_lines(2)) << orphaned.err();
  std::vector<base::Fd> ranks;
  for (const long long pid : orphaned.numbers("pid")) ranks.push_back(open_pidfd(static_cast<pid_t>(pid)));
  orphaned.signal(SIGKILL);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    EXPECT_TRUE(ended(ranks[i], 10'000));
    ::kill(static_cast<pid_t>(orphaned.numbers("pid")[i]), SIGKILL);  // if it has not
  }
}

TEST(launch, a_process_that_has_joined_from_another_session_ends_with_the_job) {
  for (const bool orphaned : {false, true}) {
    Launched job(words({"-n", "2", "--timeout", orphaned ? "60" : "6"}, {kRank, "other-session"}));
    ASSERT_TRUE(job.await_lines(2)) << job.err();
    std::vector<base::Fd> joined;
    for (const long long pid : job.numbers("pid")) joined.push_back(open_pidfd(static_cast<pid_t>(pid)));
    if (orphaned) job.signal(SIGKILL);
    for (std::size_t i = 0; i < joined.size(); ++i) {
      EXPECT_TRUE(ended(joined[i], 15'000));
      if (!ended(joined[i], 0)) ::kill(static_cast<pid_t>(job.numbers("pid")[i]), SIGKILL);
    }
    EXPECT_EQ(job.wait(), orphaned ? 1000 + SIGKILL : 124) << job.err();
  }
}

TEST(launch, what_a_rank_leaves_running_ends_with_the_job) {
  Launched job(shell({"-n", "2"}, "sleep 1000 & echo pid $!"));
  EXPECT_EQ(job.wait(), 0) << "its output would stay open if the sleeps lived on: " << job.err();
  for (const long long pid : job.numbers("pid")) {
    const base::Fd pidfd = open_pidfd(static_cast<pid_t>(pid));
    // Killed before the launcher ended; the kernel may still be taking it down.
    EXPECT_TRUE(!pidfd.valid() || ended(pidfd, 10'000));
  }
}

TEST(launch, a_program_that_comes_after_another_in_one_rank_is_told_why_it_cannot_join) {
  for (const char* first : {"join", "join-and-die"}) {
    Launched job(shell({"-n", "2", "--grace", "60"}, std::string(kRank) + " " + first + "; exec " + kRank + " join"));
    EXPECT_EQ(job.wait(), std::string_view(first) == "join" ? 99 : 1) << job.err();
    EXPECT_EQ(count(job.err(), "another process has joined the launcher's job with the same HEDDLE_LOCAL_FD before"),
              2U)
        << job.err();
    EXPECT_TRUE(has(job.err(), "do two programs run one after the other in a rank?"));
  }
}

}  // namespace
}  // namespace heddle::tests::launch_ends_test
