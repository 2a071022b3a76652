// Jobs that hang under `heddle run`, and jobs that do not: the launcher's own report, and that of
// `heddle hang`.
#include <ostream>

#include "launched.hpp"

namespace heddle::tests::hang_test {
namespace {

constexpr std::size_t kRanks = 3;

// One of hang_program.cpp's cases, with its errors among its output.
class Job {
 public:
  explicit Job(const char* name, const char* seconds = "1", const char* limit = "80")
      : launched_(words(name, seconds, limit)) {}
  ~Job() {
    if (launched_.pid() == 0) return;
    launched_.signal(SIGTERM);
    static_cast<void>(launched_.wait());
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] const std::string& out() const { return launched_.out(); }
  [[nodiscard]] bool has(const std::string& text) const { return out().find(text) != std::string::npos; }
  [[nodiscard]] pid_t pid() const { return launched_.pid(); }
  // Reads until the text is there.
  bool await(const std::string& text) {
    while (!has(text)) {
      const auto lines = static_cast<std::size_t>(std::count(out().begin(), out().end(), '\n'));
      if (!launched_.await_lines(lines + 1)) return false;
    }
    return true;
  }
  // All ranks are about to do what the case says.
  bool await_begin() {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      if (!await("rank " + std::to_string(rank) + " pid ")) return false;
    }
    return true;
  }
  [[nodiscard]] pid_t pid_of(std::size_t rank) const {
    return static_cast<pid_t>(launched_.numbers("rank " + std::to_string(rank) + " pid").at(0));
  }
  int wait() { return launched_.wait(); }

 private:
  static std::vector<std::string> words(const char* name, const char* seconds, const char* limit) {
    return {"/bin/sh",
            "-c",
            R"(exec "$0" "$@" 2>&1)",
            HEDDLE_TOOL,
            "run",
            "-n",
            std::to_string(kRanks),
            "--grace",
            "0",
            "--timeout",
            limit,
            "--env",
            std::string("HEDDLE_HANG_SECONDS=") + seconds,
            "--env",
            "HEDDLE_TRANSPORT=shm",
            HEDDLE_HANG_PROGRAM,
            name};
  }

  Launched launched_;
};

struct Told {
  int code;
  std::string out;
  std::string err;
};

Told hang(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {HEDDLE_TOOL, "hang"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  Launched tool(words);
  const int code = tool.wait();
  return {code, tool.out(), tool.err()};
}

struct Fault {
  const char* name;
  const char* to_blame;
  std::vector<const char*> words;  // of the first line
};
[[maybe_unused]] std::ostream& operator<<(std::ostream& out, const Fault& fault) {
  return out << fault.name;
}

class Hangs : public testing::TestWithParam<Fault> {};

TEST_P(Hangs, AreExplained) {
  const Fault& fault = GetParam();
  Job job(fault.name);
  ASSERT_TRUE(job.await("heddle run:   to blame: ")) << job.out();
  ASSERT_TRUE(job.await("heddle run:   rank 2 (pid ")) << job.out();
  const std::size_t begin = job.out().find("heddle run: nothing has moved for ");
  ASSERT_NE(begin, std::string::npos) << job.out();
  const std::string sentence = job.out().substr(begin, job.out().find('\n', begin) - begin);
  for (const char* word : fault.words) EXPECT_NE(sentence.find(word), std::string::npos) << word << '\n' << job.out();
  EXPECT_TRUE(job.has("\nheddle run:   to blame: " + std::string(fault.to_blame) + '\n')) << job.out();
}

INSTANTIATE_TEST_SUITE_P(
    each, Hangs,
    testing::Values(Fault{"tag", "ranks 0, 1", {"rank 1 ", "heddle_recv_wait", "tag 7", "rank 0", "sent tag 8"}},
                    Fault{"compute", "rank 1", {"rank 1 has not called the library for ", "barrier"}},
                    Fault{"stop", "rank 1", {"rank 1 (pid ", ") is stopped", "barrier"}},
                    Fault{"loop", "ranks 1, 2", {"rank 1 ", "my_wait", "colour red", "rank 2"}},
                    Fault{"unopened",
                          "ranks 0, 1",
                          {"rank 0 has sent 2 messages to worker 3 of rank 1, which rank 1 has not opened",
                           "rank 1 waits in heddle_recv_wait", "tag 7"}}),
    [](const testing::TestParamInfo<Fault>& one) { return std::string(one.param.name); });

class GoesWell : public testing::TestWithParam<const char*> {};

TEST_P(GoesWell, AndThereIsNoReport) {
  Job job(GetParam());
  EXPECT_EQ(job.wait(), 0) << job.out();
  EXPECT_FALSE(job.has("heddle run:")) << job.out();
  EXPECT_TRUE(job.has("left 2\n")) << job.out();
}

INSTANTIATE_TEST_SUITE_P(each, GoesWell, testing::Values("barriers", "team", "puts"),
                         [](const testing::TestParamInfo<const char*>& one) { return std::string(one.param); });

TEST(HangReport, OfAJobThatGoesOnAgainThereIsOneAndItEndsWell) {
  Job job("late");
  EXPECT_EQ(job.wait(), 0) << job.out();
  EXPECT_TRUE(job.has("heddle run:   to blame: rank 1\n")) << job.out();
  EXPECT_TRUE(job.has("left 1\n")) << job.out();
}

TEST(HangReport, ThereIsNoneIfItIsSwitchedOff) {
  Job job("late", "0");
  EXPECT_EQ(job.wait(), 0) << job.out();
  EXPECT_FALSE(job.has("heddle run:")) << job.out();
  EXPECT_TRUE(job.has("left 1\n")) << job.out();
}

TEST(HangReport, ComesBeforeATimeLimitEndsTheJob) {
  Job job("compute", "60", "8");  // join included, on a busy machine
  EXPECT_EQ(job.wait(), 124) << job.out();
  const std::size_t over = job.out().find("heddle run: the time limit of 8 s is over; ending 3 processes\n");
  ASSERT_NE(over, std::string::npos) << job.out();
  EXPECT_NE(job.out().find("heddle run:   to blame: rank 1\n", over), std::string::npos) << job.out();
}

TEST(HangReport, DoesNotComeAtATimeLimitIfItIsSwitchedOff) {
  Job job("compute", "0", "2");
  EXPECT_EQ(job.wait(), 124) << job.out();
  EXPECT_TRUE(job.has("heddle run: the time limit of 2 s is over; ending 3 processes\n")) << job.out();
  EXPECT_FALSE(job.has("to blame")) << job.out();
}

class HangAnswers : public testing::TestWithParam<const char*> {};

TEST_P(HangAnswers, ComeWhileTheJobRuns) {
  Job job("compute", GetParam());
  ASSERT_TRUE(job.await_begin()) << job.out();
  // At first they only begin to wait.
  const auto knows = [&] { return hang({std::to_string(job.pid())}).out.find("rank 1\n") != std::string::npos; };
  for (int asked = 0; asked < 20 && !knows(); ++asked) {
  }
  for (const pid_t pid : {job.pid(), job.pid_of(0), job.pid_of(1)}) {
    const Told told = hang({std::to_string(pid)});
    EXPECT_EQ(told.code, 0) << told.err;
    EXPECT_TRUE(told.err.empty()) << told.err;
    EXPECT_NE(told.out.find("\n  to blame: rank 1\n"), std::string::npos) << told.out;
    const std::string waits = "\n  rank 0 (pid " + std::to_string(job.pid_of(0)) + "):\n";
    EXPECT_NE(told.out.find(waits), std::string::npos) << told.out;
  }
  EXPECT_FALSE(job.has("heddle run:")) << "only who has asked is told: " << job.out();
}

INSTANTIATE_TEST_SUITE_P(each, HangAnswers, testing::Values("0", "60"),
                         [](const testing::TestParamInfo<const char*>& one) {
                           return std::string("seconds_") + one.param;
                         });

TEST(HangCommand, IsAnsweredByAJobThatDoesNotHang) {
  Job job("team", "60");
  ASSERT_TRUE(job.await_begin()) << job.out();
  const Told told = hang({std::to_string(job.pid())});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_NE(told.out.find("\n  to blame: "), std::string::npos) << told.out;
  EXPECT_EQ(job.wait(), 0) << job.out();
  EXPECT_FALSE(job.has("heddle run:")) << job.out();
}

// Other jobs may run on this machine, too: then the command asks which one.
TEST(HangCommand, WithoutAProcessAsksTheOnlyJob) {
  Job job("compute", "60");
  ASSERT_TRUE(job.await_begin()) << job.out();
  const Told told = hang({});
  if (told.code == 0) {
    EXPECT_NE(told.out.find("\n  to blame: rank 1\n"), std::string::npos) << told.out;
  } else {
    EXPECT_EQ(told.code, 2);
    EXPECT_NE(told.err.find("several jobs run; name one of these:\n  "), std::string::npos) << told.err;
    EXPECT_NE(told.err.find("\n  " + std::to_string(job.pid()) + "  "), std::string::npos) << told.err;
  }
}

TEST(HangCommand, TellsSeveralJobsByTheirPrograms) {
  Job first("compute", "60");
  Job second("team", "60");
  ASSERT_TRUE(first.await_begin() && second.await_begin()) << first.out() << second.out();
  const Told told = hang({});
  EXPECT_EQ(told.code, 2);
  const std::string line = "\n  " + std::to_string(first.pid()) + "  ";
  const std::size_t begin = told.err.find(line);
  ASSERT_NE(begin, std::string::npos) << told.err;
  const std::string said = told.err.substr(begin + 1, told.err.find('\n', begin + 1) - begin - 1);
  EXPECT_TRUE(said.ends_with(", 3 ranks")) << said;
}

// Nobody is known to wait: those that did are stopped.
TEST(HangCommand, NamesAStoppedRankThatNobodyWaitsFor) {
  Job job("compute", "60");
  ASSERT_TRUE(job.await_begin()) << job.out();
  for (const std::size_t rank : {0U, 2U}) ::kill(job.pid_of(rank), SIGSTOP);
  const Told told = hang({std::to_string(job.pid())});
  for (const std::size_t rank : {0U, 2U}) ::kill(job.pid_of(rank), SIGCONT);
  EXPECT_EQ(told.code, 0) << told.err;
  const std::string first = told.out.substr(0, told.out.find('\n'));
  EXPECT_NE(first.find("ranks 0 and 2 are stopped; rank 1 "), std::string::npos) << told.out;
  EXPECT_NE(told.out.find("\n  to blame: ranks 0, 2\n"), std::string::npos) << told.out;
}

TEST(HangCommand, AStoppedLauncherDoesNotAnswer) {
  Job job("compute", "60");
  ASSERT_TRUE(job.await_begin()) << job.out();
  ::kill(job.pid(), SIGSTOP);
  const Told told = hang({std::to_string(job.pid())});
  ::kill(job.pid(), SIGCONT);
  EXPECT_EQ(told.code, 1);
  EXPECT_NE(told.err.find("does not answer (is it stopped?)"), std::string::npos) << told.err;
}

TEST(HangCommand, WhereThereIsNoJobItSaysSo) {
  const std::string here = std::to_string(::getpid());
  const Told told = hang({here});
  EXPECT_EQ(told.code, 1);
  EXPECT_TRUE(told.out.empty()) << told.out;
  EXPECT_TRUE(told.err == "heddle hang: no job of this user runs on this machine\n" ||
              told.err == "heddle hang: process " + here + " belongs to no job of this user\n")
      << told.err;
}

TEST(HangCommand, RefusesWrongArguments) {
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"x"}, {"0"}, {"-5"}, {"12x"}, {""}, {"99999999999999"}, {"1", "2"}, {"--all"}}) {
    const Told told = hang(wrong);
    EXPECT_EQ(told.code, 2) << wrong[0];
    EXPECT_TRUE(told.err.starts_with("heddle hang: ")) << told.err;
    EXPECT_TRUE(told.out.empty()) << told.out;
  }
  const Told help = hang({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("usage: heddle hang [PID]"), std::string::npos) << help.out;
}

}  // namespace
}  // namespace heddle::tests::hang_test
