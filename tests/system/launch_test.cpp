// The real launcher with real processes: their start, environment, joining and output.
// launch_ends_test.cpp tests the ends of jobs.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/test_support.hpp"
#include "bootstrap/local/channel.hpp"
#include "launch_support.hpp"

namespace heddle::tests::launch_test {
namespace {

// ---- the ordinary -------------------------------------------------------------------------------

TEST(launch, ranks_find_each_other) {
  Launched job(words({"-n", "4"}, {kRank, "all-together"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
}

TEST(launch, sixty_four_processes) {
  Launched job(words({"-n", "64"}, {kRank, "all-together"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST(launch, a_job_of_one_needs_no_launcher) {
  Launched alone({kRank, "all-together"});
  EXPECT_EQ(alone.wait(), 0) << alone.err();
}

TEST(launch, any_program_is_started_and_gets_its_variables) {
  Launched job(shell({"-n", "3", "-t", "5", "--env", "WEFT=a=b", "--env", "EMPTY=", "--tag"},
                     "echo \"$HEDDLE_LOCAL_RANK/$HEDDLE_LOCAL_SIZE $HEDDLE_THREADS $WEFT ${EMPTY-unset}\""));
  EXPECT_EQ(job.wait(), 0) << job.err();
  const auto lines = lines_of(job.out());
  EXPECT_EQ(lines.size(), 3U);
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_EQ(lines.count(std::string("[") + rank + "] " + rank + "/3 5 a=b "), 1U) << job.out();
  }
}

TEST(launch, tagged_lines_are_whole_and_keep_their_stream) {
  const std::string script =
      "for i in 1 2 3 4 5 6 7 8 9 10; do printf out; printf ' %s-%s\\n' $HEDDLE_LOCAL_RANK $i; done; echo no >&2; "
      "printf unfinished";
  Launched job(shell({"-n", "4", "--tag"}, script));
  EXPECT_EQ(job.wait(), 0) << job.err();
  const auto lines = lines_of(job.out());
  EXPECT_EQ(lines.size(), 4U * 11);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string tag = "[" + std::to_string(rank) + "] ";
    for (int i = 1; i <= 10; ++i) {
      EXPECT_EQ(lines.count(tag + "out " + std::to_string(rank) + "-" + std::to_string(i)), 1U);
    }
    EXPECT_EQ(lines.count(tag + "unfinished"), 1U);
    EXPECT_EQ(lines_of(job.err()).count(tag + "no"), 1U) << job.err();
  }
}

TEST(launch, the_first_rank_reads_the_input_and_the_others_nothing) {
  Launched job(shell({"-n", "3", "--tag"}, "echo \"<$(cat)>\""), "shuttle");
  EXPECT_EQ(job.wait(), 0) << job.err();
  const auto lines = lines_of(job.out());
  EXPECT_EQ(lines.count("[0] <shuttle>"), 1U) << job.out();
  EXPECT_EQ(lines.count("[1] <>"), 1U) << job.out();
  EXPECT_EQ(lines.count("[2] <>"), 1U) << job.out();
}

TEST(launch, bound_ranks_get_cores_and_hear_when_there_are_too_few) {
  Launched job(shell({"-n", "600", "-t", "2", "--bind", "core"}, "exit 0"));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_TRUE(has(job.err(), "fewer cores than 600 processes x 2 threads"));
  Launched one(shell({"--bind", "core"}, "grep Cpus_allowed_list /proc/self/status"));
  EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(one.err(), "");
}

TEST(launch, affinity_that_is_forbidden_is_not_blamed_on_the_program) {
  Launched job({kRank, "without-call", std::to_string(SYS_sched_setaffinity), kHeddle, "run", "-n", "2", "--bind",
                "core", "/bin/true"});
  const int code = job.wait();
  if (code == 97) GTEST_SKIP() << job.err();
  EXPECT_EQ(code, 125) << job.err();
  EXPECT_TRUE(has(job.err(), "heddle run: --bind core: rank "));
  EXPECT_TRUE(has(job.err(), "cannot be bound to its cores (sched_setaffinity): Operation not permitted"));
  EXPECT_FALSE(has(job.err(), "/bin/true"));
}

// Ranks that the kernel does not let copy from each other say so before a program is slow for it.
TEST(launch, copies_that_are_forbidden_are_told_by_info) {
  const std::vector<std::string> info = {kHeddle, "run", "-n", "2", kHeddle, "info", "--job"};
  for (const long number : {SYS_process_vm_readv, SYS_process_vm_writev}) {
    std::vector<std::string> all = {kRank, "without-call", std::to_string(number)};
    all.insert(all.end(), info.begin(), info.end());
    Launched job(all);
    const int code = job.wait();
    if (code == 97) GTEST_SKIP() << job.err();
    EXPECT_EQ(code, 0) << job.err();
    EXPECT_TRUE(has(job.out(), "process_vm_writev): not from rank 0-1: process_vm_"));
    EXPECT_TRUE(has(job.out(), ": Operation not permitted ("));
    EXPECT_TRUE(has(job.out(), "copied twice"));
  }
}

// The launcher requires only the resources that this job uses.
TEST(launch, few_descriptors_are_enough_for_few_ranks) {
  for (const char* tag : {"", "--tag "}) {
    Launched job(
        {"/bin/sh", "-c", std::string("ulimit -n 64; exec ") + kHeddle + " run -n 4 " + tag + kRank + " all-together"});
    EXPECT_EQ(job.wait(), 0) << job.err();
  }
  Launched none({"/bin/sh", "-c", std::string("ulimit -n 20; exec ") + kHeddle + " run -n 4 /bin/true"});
  EXPECT_EQ(none.wait(), 125);
  EXPECT_TRUE(has(none.err(), "descriptors in the launcher, 20 are allowed; raise the hard limit (ulimit -Hn)"));
}

TEST(launch, first_contact_returns_at_once_to_any_number_of_threads) {
  Launched job(words({"-n", "4"}, {kRank, "first-contact"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST(launch, ranks_may_open_a_descriptor_for_each_peer) {
  const auto with_limit = [](const std::string& limit) {
    return std::vector<std::string>{
        "/bin/sh", "-c", "ulimit " + limit + " && exec " + kHeddle + " run -n 60 sh -c 'echo limit $(ulimit -n)'"};
  };
  const std::vector<std::pair<std::string, long long>> cases = {
      {"-S -n 300", 360}, {"-S -n 100", 316}, {"-S -n 316", 316}, {"-n 500", 500}};
  for (const auto& [limit, expected] : cases) {
    Launched job(with_limit(limit));
    EXPECT_EQ(job.wait(), 0) << job.err();
    EXPECT_EQ(job.numbers("limit"), std::vector<long long>(60, expected)) << limit;
  }
}

TEST(launch, a_rank_without_descriptors_loses_the_cards_and_nothing_else) {
  Launched job(words({"-n", "3"}, {kRank, "few-descriptors"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST(launch, the_board_of_the_node_outlives_who_wrote_there) {
  Launched job(words({"-n", "3", "--exit-code", "survivors"}, {kRank, "one-dies-on-the-board"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(count(job.err(), "was killed by signal 9"), 1U) << job.err();
}

TEST(launch, the_board_leaves_nothing_behind) {
  for (const char* ranks : {"1", "2"}) {
    Launched job(words({"-n", ranks}, {kRank, "board-ends"}));
    EXPECT_EQ(job.wait(), 0) << job.err();
  }
}

TEST(launch, a_job_whose_launcher_can_make_no_board_has_none) {
  Launched job({kRank, "without-call", std::to_string(SYS_memfd_create), kHeddle, "run", "-n", "2", kRank, "no-board"});
  const int code = job.wait();
  if (code == 97) GTEST_SKIP() << job.err();
  EXPECT_EQ(code, 0) << job.err();
}

TEST(launch, nothing_of_the_launcher_is_left_open_in_a_rank) {
  const std::string script = "echo fds $(ls /proc/self/fd | wc -l)";
  Launched plain({"/bin/sh", "-c", script});
  ASSERT_EQ(plain.wait(), 0);
  ASSERT_EQ(plain.numbers("fds").size(), 1U);
  Launched job(shell({"-n", "3", "--tag"}, script));
  EXPECT_EQ(job.wait(), 0) << job.err();
  ASSERT_EQ(job.numbers("fds").size(), 3U);
  for (const long long fds : job.numbers("fds")) EXPECT_EQ(fds, plain.numbers("fds")[0] + 1) << "one more: the socket";
}

// ---- output that nobody reads -------------------------------------------------------------------

TEST(launch, a_time_limit_holds_although_nobody_reads_the_output) {
  Launched job(shell({"-n", "2", "--tag", "--timeout", "2"}, "yes"));
  EXPECT_TRUE(ended(open_pidfd(job.pid()), 15'000)) << "the launcher waits for its reader";
  EXPECT_EQ(job.wait(), 124);
  EXPECT_TRUE(has(job.err(), "are lost: nobody has read it for 2 s"));
}

TEST(launch, a_signal_ends_the_job_although_nobody_reads_the_output) {
  Launched job(shell({"-n", "2", "--tag"}, "yes"));
  ASSERT_TRUE(job.await_lines(2));  // output flows, and the launcher's signals are set up
  job.signal(SIGTERM);
  EXPECT_TRUE(ended(open_pidfd(job.pid()), 15'000)) << "the launcher waits for its reader";
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
}

TEST(launch, a_job_that_has_ended_waits_for_the_reader_of_its_output) {
  Launched job(shell({"--tag"}, "head -c 400000 /dev/zero | tr '\\0' x"));
  EXPECT_FALSE(ended(open_pidfd(job.pid()), 3'000));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(count(job.out(), "x"), 400'000U);
  EXPECT_EQ(job.err(), "");
}

TEST(launch, output_that_is_lost_at_the_end_is_a_failure) {
  for (const bool by_signal : {true, false}) {
    const std::vector<std::string> options =
        by_signal ? std::vector<std::string>{"--tag"} : std::vector<std::string>{"--tag", "--timeout", "3"};
    Launched job(shell(options, "echo begun; head -c 400000 /dev/zero | tr '\\0' x"));
    ASSERT_TRUE(job.await_lines(1));
    EXPECT_TRUE(test::within_time([&] { return children_of(job.pid()).empty(); })) << "all its processes have ended";
    if (by_signal) {
      EXPECT_FALSE(ended(open_pidfd(job.pid()), 400)) << "it does not wait for its reader";
      job.signal(SIGTERM);
    }
    EXPECT_TRUE(ended(open_pidfd(job.pid()), 15'000)) << "the launcher waits for its reader";
    EXPECT_EQ(job.wait(), by_signal ? 125 : 124);
    EXPECT_TRUE(has(job.err(), "are lost: nobody has read it for 2 s"));
  }
}

// A closed stream is one that takes and gives nothing. Neither the launcher's descriptors nor the
// library's get its number.
TEST(launch, closed_streams_are_no_descriptors_of_ours) {
  for (const char* closed : {">&-", "2>&-", "<&-", "<&- >&- 2>&-"}) {
    for (const char* tag : {"", " --tag"}) {
      const std::string run = std::string(kHeddle) + " run -n 2" + tag + " ";
      Launched job({"/bin/sh", "-c", "exec " + run + kRank + " streams " + closed});
      EXPECT_EQ(job.wait(), 0) << closed << tag << ": " << job.err();
      Launched rank({"/bin/sh", "-c", "exec " + run + "/bin/sh -c 'exec " + kRank + " streams " + closed + "'"});
      EXPECT_EQ(rank.wait(), 0) << closed << tag << ": " << rank.err();
    }
  }
}

// The ranks are not ended for it.
TEST(launch, output_that_cannot_be_written_is_a_failure) {
  const std::string script = "i=0; while [ $i -lt 2000 ]; do echo $i || exit 9; i=$((i + 1)); done";
  Launched job(
      {"/bin/sh", "-c", std::string("exec ") + kHeddle + " run -n 2 --tag /bin/sh -c '" + script + "' >/dev/full"});
  EXPECT_EQ(job.wait(), 125) << job.err();
  EXPECT_EQ(count(job.err(), "heddle run:"), 1U) << job.err();
  EXPECT_TRUE(has(job.err(), "cannot write the ranks' output: No space left on device"));
  Launched failed(
      {"/bin/sh", "-c", std::string("exec ") + kHeddle + " run --tag /bin/sh -c 'echo one; exit 3' >/dev/full"});
  EXPECT_EQ(failed.wait(), 3) << failed.err();
}

// ---- joining ------------------------------------------------------------------------------------

TEST(launch, a_process_joins_once_and_its_children_not_at_all) {
  Launched job(words({"-n", "2"}, {kRank, "misuse"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(count(job.out(), "second: this process has joined the launcher's job before"), 2U) << job.out();
  EXPECT_EQ(count(job.err(), "was it started by a rank instead of the launcher?"), 2U) << job.err();
}

TEST(launch, a_second_process_with_the_same_connection_is_refused_and_the_first_goes_on) {
  Launched job(words({"-n", "2"}, {kRank, "sibling"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(count(job.out(), "refused: process "), 2U) << job.out();
  EXPECT_TRUE(has(job.out(), " has joined the launcher's job with the same HEDDLE_LOCAL_FD; a rank is one process"));
  EXPECT_EQ(job.err(), "");
}

class Variables {
 public:
  Variables(const char* fd, const char* rank, const char* size) {
    set("HEDDLE_LOCAL_FD", fd);
    set("HEDDLE_LOCAL_RANK", rank);
    set("HEDDLE_LOCAL_SIZE", size);
  }
  ~Variables() {
    for (const char* name : {"HEDDLE_LOCAL_FD", "HEDDLE_LOCAL_RANK", "HEDDLE_LOCAL_SIZE"}) ::unsetenv(name);
  }

 private:
  static void set(const char* name, const char* value) {
    if (value != nullptr) ::setenv(name, value, 1);
  }
};

TEST(launch, half_an_environment_and_nonsense_are_told) {
  struct Case {
    const char* fd;
    const char* rank;
    const char* size;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"5", "0", nullptr, "HEDDLE_LOCAL_SIZE is not set although others of the launcher's variables are"},
      {nullptr, "0", "2", "HEDDLE_LOCAL_FD is not set"},
      {"x", "0", "2", "HEDDLE_LOCAL_FD=\"x\" is not a whole number"},
      {"5", "0", "2000", "HEDDLE_LOCAL_SIZE=\"2000\" is not a whole number from 0 to 1024"},
      {"5", "2", "2", "HEDDLE_LOCAL_RANK=2 and HEDDLE_LOCAL_SIZE=2 do not go together"},
      {"2", "0", "2", "HEDDLE_LOCAL_FD=2 is not the launcher's socket"},
      {"999999", "0", "2", "HEDDLE_LOCAL_FD=999999 is not open in this process"},
  };
  for (const Case& one : cases) {
    const Variables variables(one.fd, one.rank, one.size);
    Launched rank({kRank, "join"});
    EXPECT_EQ(rank.wait(), 99);
    EXPECT_TRUE(has(rank.err(), one.message));
  }
}

// A launcher simulated by the test, for cases that a real one does not have.
class FalseLauncher {
 public:
  FalseLauncher() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    mine_.reset(ends[0]);
    theirs_.reset(ends[1]);
    const Variables variables(std::to_string(ends[1]).c_str(), "0", "1");
    rank_ = std::make_unique<Launched>(std::vector<std::string>{kRank, "stay"}, "", ends[1]);
    theirs_.reset();
  }
  Launched& rank() { return *rank_; }
  void welcome(bootstrap::local::Welcome welcome) {
    welcome.size = 1;
    ASSERT_EQ(send({bootstrap::local::FrameType::welcome}, bootstrap::local::encode(welcome)), HEDDLE_DONE);
  }
  base::Status send(bootstrap::local::Header header, const std::vector<std::byte>& payload) {
    return bootstrap::local::send_frame(mine_.get(), header, payload);
  }
  void go() { mine_.reset(); }

 private:
  base::Fd mine_;
  base::Fd theirs_;
  std::unique_ptr<Launched> rank_;
};

void expect_refused(std::uint32_t version) {
  FalseLauncher launcher;
  bootstrap::local::Welcome other;
  other.version = version;
  launcher.welcome(other);
  EXPECT_EQ(launcher.rank().wait(), 99);
  EXPECT_TRUE(
      has(launcher.rank().err(), "the launcher speaks version " + std::to_string(version) + " of the launch protocol"));
  EXPECT_TRUE(has(launcher.rank().err(), "this process version " + std::to_string(bootstrap::local::kProtocolVersion)));
}

TEST(launch, a_launcher_of_another_version_is_refused_by_name) {
  expect_refused(bootstrap::local::kProtocolVersion + 4);
  expect_refused(bootstrap::local::kProtocolVersion - 1);
}

TEST(launch, a_rank_does_not_outlive_its_launcher) {
  FalseLauncher launcher;
  launcher.welcome({});
  ASSERT_TRUE(launcher.rank().await_lines(2)) << launcher.rank().err();
  const auto pids = launcher.rank().numbers("pid");
  launcher.go();
  const base::Fd rank = open_pidfd(launcher.rank().pid());
  EXPECT_TRUE(ended(rank, 10'000));
  // Its child has no launcher to end it here.
  for (const long long pid : pids) {
    if (pid != launcher.rank().pid()) ::kill(static_cast<pid_t>(pid), SIGKILL);
  }
  EXPECT_EQ(launcher.rank().wait(), 1);
  EXPECT_EQ(launcher.rank().err(), "heddle[0] error: the launcher has gone; this process ends\n");
}

}  // namespace
}  // namespace heddle::tests::launch_test
