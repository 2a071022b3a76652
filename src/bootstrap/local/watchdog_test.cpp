// The watchdog over a real broker, against ranks that the test plays over real sockets. Time is
// what the test says it is: it starts at the real time, which answers are stamped with, and only
// the test moves it on.
#include "bootstrap/local/watchdog.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/clock.hpp"
#include "base/random.hpp"

namespace heddle::bootstrap::local::watchdog_test {
namespace {

using Bytes = std::vector<std::byte>;
using Lines = Watchdog::Lines;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kMillisecond = 1'000'000;

std::uint64_t real_now() {
  return base::SystemClock().now_ns();
}

tap::Snapshot polling(std::vector<tap::Awaited> under_way) {
  tap::Snapshot snapshot;
  snapshot.workers.push_back({0, true, false, 0, std::move(under_way), {}});
  return snapshot;
}

tap::Snapshot waiting_for(std::uint32_t rank) {
  tap::Snapshot snapshot = polling({});
  snapshot.waits.push_back({"MPI_Recv", "tag 7 from rank " + std::to_string(rank), 100 * kSecond, 1, 0, {}, {}});
  snapshot.waits.back().things.push_back({tap::Cause::receive, rank, tap::kNobody, 0, "receive", "tag 7"});
  snapshot.lines.push_back("thread 1 waits in MPI_Recv");
  return snapshot;
}

// A rank. It answers requests as its members say.
class Member {
 public:
  Member(Broker& broker, std::uint32_t rank, std::uint32_t size)
      : broker_(broker), rank_(rank), reader_(Direction::to_rank, size) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    broker.attach(rank, ProcessFd(base::Fd(ends[0])));
    socket_.reset(ends[1]);
    snapshot = tap::encode(polling({}));
  }

  void send(Header header, const Bytes& payload = {}) {
    ASSERT_EQ(send_frame(socket_.get(), header, payload), HEDDLE_DONE);
    broker_.serve(rank_);
  }
  void join(std::int32_t pid) { send({FrameType::hello}, encode(Hello{.pid = pid})); }
  void die() {
    socket_.reset();
    broker_.ended(rank_);
  }
  // Reads what the broker has sent, and answers it. False: there was nothing.
  bool serve() {
    broker_.serve(rank_);
    if (!socket_.valid() || reader_.fill(socket_.get(), MSG_DONTWAIT) != Reader::Fill::data) return false;
    Frame frame;
    while (reader_.next(&frame) == HEDDLE_DONE) {
      if (frame.header.type == FrameType::welcome) watch_seconds = decode_welcome(frame.payload)->watch_seconds;
      answer(frame.header);
    }
    return true;
  }

  tap::Pulse pulse;
  Bytes snapshot;
  Bytes odd_pulse;  // sent instead of the pulse, if it is not empty
  bool tells_pulse = true;
  bool tells_snapshot = true;
  bool polls = false;  // calls the library between all pulses
  int pulses = 0;      // asked for so far
  int snapshots = 0;
  std::uint64_t watch_seconds = 0;  // as it was welcomed

 private:
  void answer(const Header& question) {
    if (question.type == FrameType::ask_pulse) {
      ++pulses;
      if (polls) ++pulse.calls;
      if (!tells_pulse) return;
      send({FrameType::pulse, 0, 0, question.value}, odd_pulse.empty() ? encode(pulse) : odd_pulse);
    } else if (question.type == FrameType::ask_snapshot) {
      ++snapshots;
      if (tells_snapshot) send({FrameType::snapshot, 0, 0, question.value}, snapshot);
    }
  }

  Broker& broker_;
  std::uint32_t rank_;
  Reader reader_;
  base::Fd socket_;
};

// A job of three, watched.
class Watched {
 public:
  static constexpr std::uint32_t kSize = 3;
  explicit Watched(std::uint64_t still_seconds, const char* word = "rank")
      : dog(broker, kSize, {still_seconds, word}, [this](const Lines& lines) { reports.push_back(lines); }) {
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      members.push_back(std::make_unique<Member>(broker, rank, kSize));
    }
  }
  Watched& join() {
    for (std::uint32_t rank = 0; rank < kSize; ++rank) rank_at(rank).join(static_cast<std::int32_t>(100 + rank));
    return *this;
  }
  Member& rank_at(std::uint32_t rank) { return *members[rank]; }
  // Makes the rank wait for for_rank, for 5 s so far.
  void wait_in(std::uint32_t rank, std::uint32_t for_rank) {
    rank_at(rank).pulse.waiting_ns = 5 * kSecond;
    rank_at(rank).snapshot = tap::encode(waiting_for(for_rank));
    rank_at(rank).send({FrameType::waiting});
  }
  void serve() {
    for (auto& member : members) {
      while (member->serve()) {
      }
    }
  }
  // Before and after the ranks are heard, as the launcher's loop does.
  void tick(std::uint64_t time) {
    now = std::max(time, real_now());
    dog.tick(now);
    serve();
    now = std::max(now, real_now());
    dog.tick(now);
    serve();
  }
  // Lets time pass: ticks whenever the watchdog is due.
  void pass(std::uint64_t ns) {
    const std::uint64_t end = now + ns;
    for (int ticks = 0; dog.due_ns() != 0 && dog.due_ns() <= end; ++ticks) {
      ASSERT_LT(ticks, 100'000) << "it is due for ever";
      tick(std::max(now, dog.due_ns()));
    }
    now = end;
  }
  // All that was told so far, the newest report last.
  [[nodiscard]] std::string told() const {
    std::string text;
    for (const Lines& lines : reports) {
      for (const std::string& line : lines) text += line + '\n';
    }
    return text;
  }
  [[nodiscard]] bool has(const std::string& words) const { return told().find(words) != std::string::npos; }

  std::vector<Lines> reports;
  Broker broker{kSize, JobSecret{7}};
  Watchdog dog;
  std::vector<std::unique_ptr<Member>> members;
  std::uint64_t now = real_now();
};

TEST(Watchdog, WantsNoTimeBeforeSomebodyJoins) {
  Watched job(4);
  EXPECT_EQ(job.dog.due_ns(), 0U);
  job.join();
  EXPECT_NE(job.dog.due_ns(), 0U);
  job.pass(kSecond);
  for (const auto& member : job.members) EXPECT_GE(member->pulses, 1);
}

TEST(Watchdog, TellsRanksThatTheyAreWatched) {
  Watched job(37);
  job.join().serve();
  EXPECT_EQ(job.rank_at(0).watch_seconds, 37U);
}

TEST(Watchdog, SaysWhoIsToBlameOnceNothingMovesAndSomebodyWaits) {
  Watched job(4);
  job.join();
  job.wait_in(0, 1);
  job.pass(3900 * kMillisecond);
  EXPECT_TRUE(job.reports.empty()) << job.told();
  job.pass(1500 * kMillisecond);  // it looks once a second
  ASSERT_EQ(job.reports.size(), 1U);
  EXPECT_TRUE(job.reports[0][0].starts_with("nothing has moved for 4 s: rank ")) << job.told();
  EXPECT_TRUE(job.reports[0][1].starts_with("  to blame: rank")) << job.told();
  EXPECT_TRUE(job.has("\n  rank 0 (pid 100):\n    thread 1 waits in MPI_Recv\n")) << job.told();
  EXPECT_TRUE(job.has("\n  rank 1 (pid 101): no thread waits in the library\n")) << job.told();
}

// A rank that meets the others by way of the launcher does not know who is missing.
TEST(Watchdog, SaysWhoIsMissingInAnExchange) {
  Watched job(4);
  job.join();
  for (const std::uint32_t rank : {0U, 1U}) {
    job.rank_at(rank).send({FrameType::exchange});
    job.rank_at(rank).pulse.waiting_ns = 5 * kSecond;
    tap::Snapshot snapshot = polling({});
    snapshot.waits.push_back({"heddle_context_barrier",
                              std::string(tap::kNotAllArrived),
                              100 * kSecond,
                              1,
                              0,
                              {},
                              tap::Step{0, 1, Watched::kSize, "all ranks", "barrier"}});
    snapshot.lines.push_back("thread 1 waits: " + std::string(tap::kNotAllArrived));
    snapshot.lines.push_back(std::string(tap::kNotAllArrived) + ": missing is rank 9");
    job.rank_at(rank).snapshot = tap::encode(snapshot);
    job.rank_at(rank).send({FrameType::waiting});
  }
  job.pass(6 * kSecond);
  ASSERT_FALSE(job.reports.empty());
  for (const char* pid : {"100", "101"}) {
    EXPECT_TRUE(job.has("\n  rank " + std::string(pid[2] == '0' ? "0" : "1") + " (pid " + pid +
                        "):\n    thread 1 waits: not all ranks have arrived: missing is rank 2\n    not all ranks have "
                        "arrived: missing is rank 9\n"))
        << job.told();
  }
}

TEST(Watchdog, SaysItAgainAfterTwiceTheTime) {
  Watched job(4);
  job.join();
  job.wait_in(0, 1);
  const std::array<std::size_t, 5> expected = {1, 2, 2, 3, 3};  // at 6, 10, 14, 18 and 30 seconds
  const std::array<std::uint64_t, 5> seconds = {6, 4, 4, 4, 12};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    job.pass(seconds[i] * kSecond);
    EXPECT_EQ(job.reports.size(), expected[i]) << "after part " << i << '\n' << job.told();
  }
}

TEST(Watchdog, SaysNothingWhileRanksComeAndGo) {
  Watched job(4);
  job.join();
  job.wait_in(0, 1);
  for (int i = 0; i < 6; ++i) {
    job.pass(3 * kSecond);
    for (std::uint32_t rank = 0; rank < Watched::kSize; ++rank) job.rank_at(rank).send({FrameType::exchange});
  }
  EXPECT_TRUE(job.reports.empty()) << job.told();
  job.pass(7 * kSecond);
  EXPECT_EQ(job.reports.size(), 1U) << "nobody comes any more";
}

// Answers bear the real time, so the two moments are really apart here, by a little.
TEST(Watchdog, CountsFromWhenTheNumbersHaveChangedLast) {
  for (const bool moves : {false, true}) {
    Watched job(100);
    job.join();
    job.wait_in(0, 1);
    job.pass(0);
    const std::uint64_t before = real_now();
    while (real_now() < before + 10 * kMillisecond) {
    }
    if (moves) ++job.rank_at(2).pulse.moves;
    const std::uint64_t end = before + 100 * kSecond + 5 * kMillisecond;
    job.pass(end - job.now - 1500 * kMillisecond);
    job.tick(end);  // a little late, so that it looks just then
    EXPECT_EQ(job.reports.size(), moves ? 0U : 1U) << job.told();
  }
}

TEST(Watchdog, SaysNothingWhileNobodyWaits) {
  Watched job(2);
  job.join().pass(60 * kSecond);
  EXPECT_TRUE(job.reports.empty()) << "all compute:\n" << job.told();
  for (const auto& member : job.members) EXPECT_EQ(member->snapshots, 0);
}

TEST(Watchdog, AsksRarelyWhileNobodyWaits) {
  Watched job(600);
  job.join().pass(kSecond);
  const int before = job.rank_at(0).pulses;
  job.pass(60 * kSecond);
  EXPECT_LE(job.rank_at(0).pulses - before, 5);
  job.wait_in(0, 1);
  job.pass(60 * kSecond);
  EXPECT_GE(job.rank_at(0).pulses - before, 60);
}

TEST(Watchdog, ARankThatPollsInVainIsToldOfIfItHasSomethingUnderWay) {
  for (const bool under_way : {false, true}) {
    Watched job(4);
    job.join();
    for (std::uint32_t rank = 0; rank < Watched::kSize; ++rank) job.rank_at(rank).polls = true;
    if (under_way) {
      job.rank_at(2).snapshot = tap::encode(polling({{tap::Cause::answer, 1, 0, 8, "get", ""}}));
    }
    job.pass(7 * kSecond);
    EXPECT_EQ(job.reports.size(), under_way ? 1U : 0U) << job.told();
    EXPECT_GE(job.rank_at(0).snapshots, 1) << "it has to be seen what they have under way";
    EXPECT_LE(job.rank_at(0).snapshots, 2) << "that is not seen again and again";
  }
}

TEST(Watchdog, TimeInWhichTheLauncherWasStoppedDoesNotCount) {
  Watched job(4);
  job.join();
  job.wait_in(0, 1);
  job.pass(3 * kSecond);
  job.tick(job.now + 100 * kSecond);
  job.pass(3 * kSecond);
  EXPECT_TRUE(job.reports.empty()) << job.told();
  job.pass(3 * kSecond);
  EXPECT_EQ(job.reports.size(), 1U);
}

TEST(Watchdog, BytesThatAreNoSnapshotAreNoAnswer) {
  Watched job(4);
  job.join();
  job.wait_in(0, 1);
  job.rank_at(1).snapshot = Bytes(200, std::byte{0xEE});
  job.rank_at(2).odd_pulse = Bytes(5, std::byte{1});
  job.pass(5500 * kMillisecond);
  EXPECT_EQ(job.rank_at(1).snapshots, 1);
  EXPECT_TRUE(job.reports.empty()) << "it has a moment to answer";
  job.pass(2 * kSecond);
  ASSERT_EQ(job.reports.size(), 1U);
  EXPECT_TRUE(job.has("  rank 1 (pid 101) does not answer\n")) << job.told();
  EXPECT_EQ(job.broker.membership(1), Membership::joined);
}

TEST(Watchdog, WhoDoesNotAnswerIsNotWaitedFor) {
  Watched job(4, "PE");
  job.join();
  job.wait_in(0, 1);
  job.rank_at(1).tells_pulse = job.rank_at(1).tells_snapshot = false;
  job.pass(7 * kSecond);
  ASSERT_EQ(job.reports.size(), 1U);
  EXPECT_TRUE(job.has("  to blame: PE 1\n")) << job.told();
  EXPECT_TRUE(job.has("  PE 1 (pid 101) does not answer\n")) << job.told();
}

TEST(Watchdog, AStoppedProcessIsNamed) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  Watched job(4);
  job.rank_at(0).join(100);
  job.rank_at(1).join(child);
  job.rank_at(2).join(102);
  job.rank_at(1).tells_pulse = job.rank_at(1).tells_snapshot = false;
  job.wait_in(0, 1);
  job.pass(7 * kSecond);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_EQ(job.reports.size(), 1U);
  EXPECT_TRUE(job.has("  to blame: rank 1\n")) << job.told();
  EXPECT_TRUE(job.has("  rank 1 (pid " + std::to_string(child) + ") is stopped\n")) << job.told();
}

TEST(Watchdog, TellsWhatIsTheCaseAlsoWhenNothingHangs) {
  Watched job(60);
  job.join().pass(3 * kSecond);
  std::vector<Lines> first;
  std::vector<Lines> second;
  job.dog.inquire([&](const Lines& lines) { first.push_back(lines); }, job.now);
  job.pass(kSecond);
  // Something has moved since, and one more asks: both get the answer of one round.
  for (std::uint32_t rank = 0; rank < Watched::kSize; ++rank) job.rank_at(rank).send({FrameType::exchange});
  job.dog.inquire([&](const Lines& lines) { second.push_back(lines); }, job.now);
  job.pass(2 * kSecond);
  ASSERT_EQ(first.size(), 1U);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(first, second);
  EXPECT_EQ(job.rank_at(0).snapshots, 1);
  EXPECT_TRUE(first[0][0].starts_with("the job moves: ")) << first[0][0];
  EXPECT_EQ(first[0][1], "  to blame: nobody can be named");
  EXPECT_TRUE(job.reports.empty()) << "only who has asked is told";
}

TEST(Watchdog, WhoAsksAgainGetsANewAnswer) {
  Watched job(60);
  job.join();
  job.wait_in(0, 1);
  job.pass(5 * kSecond);
  int told = 0;
  const auto tell = [&](const Lines&) { ++told; };
  for (int i = 1; i <= 3; ++i) {
    job.dog.inquire(tell, job.now);
    job.pass(2 * kSecond);
    EXPECT_EQ(told, i);
    EXPECT_EQ(job.rank_at(0).snapshots, i);
  }
  // A callback that asks again gets an answer, too.
  job.dog.inquire([&](const Lines&) { job.dog.inquire(tell, job.now); }, job.now);
  job.pass(5 * kSecond);
  EXPECT_EQ(told, 4);
}

TEST(Watchdog, WithoutATimeItReportsOnlyOnRequest) {
  Watched job(0);
  job.join();
  job.wait_in(0, 1);
  EXPECT_EQ(job.dog.due_ns(), 0U);
  job.pass(1000 * kSecond);
  EXPECT_TRUE(job.reports.empty());
  EXPECT_EQ(job.rank_at(0).pulses, 0);
  std::vector<Lines> told;
  job.dog.inquire([&](const Lines& lines) { told.push_back(lines); }, job.now);
  job.pass(5 * kSecond);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(told[0][1].starts_with("  to blame: rank")) << told[0][1];
  job.pass(1000 * kSecond);
  EXPECT_TRUE(job.reports.empty()) << job.told();
}

TEST(Watchdog, WhoHasLeftOrDiedIsNotWaitedFor) {
  Watched job(60);
  job.join().pass(3 * kSecond);
  for (std::uint32_t rank = 0; rank < Watched::kSize; ++rank) job.rank_at(rank).tells_snapshot = rank == 0;
  Lines told;
  job.dog.inquire([&](const Lines& lines) { told = lines; }, job.now);
  job.pass(1600 * kMillisecond);
  EXPECT_EQ(job.rank_at(2).snapshots, 1) << "they are being asked";
  EXPECT_TRUE(told.empty());
  job.rank_at(1).send({FrameType::leave});
  job.rank_at(2).die();
  job.tick(job.now);
  ASSERT_GE(told.size(), 4U) << "who is left has answered";
  EXPECT_NE(std::ranges::find(told, "  rank 1 (pid 101) has left the job"), told.end());
  EXPECT_NE(std::ranges::find(told, "  rank 2 (pid 102) has ended"), told.end());
}

TEST(Watchdog, WhoHasNotJoinedIsNamed) {
  Watched job(4);
  job.rank_at(0).join(100);
  job.rank_at(1).join(101);
  job.wait_in(0, 2);
  job.pass(7 * kSecond);
  ASSERT_EQ(job.reports.size(), 1U);
  EXPECT_TRUE(job.has("  to blame: rank 2\n")) << job.told();
  EXPECT_TRUE(job.has("  rank 2 has not joined the job\n")) << job.told();
}

TEST(Watchdog, ARankThatIsLongWindedIsCutShort) {
  Watched job(4);
  job.join();
  tap::Snapshot snapshot = waiting_for(1);
  for (int i = 0; i < 100; ++i) snapshot.lines.push_back("line\x1b[2J");
  job.wait_in(0, 1);
  job.rank_at(0).snapshot = tap::encode(snapshot);
  job.pass(7 * kSecond);
  ASSERT_EQ(job.reports.size(), 1U);
  EXPECT_TRUE(job.has("\n    and 61 more lines\n")) << job.told();
  EXPECT_FALSE(job.has("\x1b")) << "it goes to a terminal";
  EXPECT_LT(job.reports[0].size(), 60U);
}

// Answers that nobody asked for, in any order and of any bytes, harm nobody.
TEST(Watchdog, SurvivesRandomAnswers) {
  base::Random random(5);
  for (int round = 0; round < 300; ++round) {
    Watched job(2);
    job.join();
    for (int frames = 0; frames < 20; ++frames) {
      Bytes bytes = random.below(2) == 0 ? tap::encode(waiting_for(2)) : Bytes(random.below(60));
      if (!bytes.empty()) bytes[random.below(bytes.size())] = static_cast<std::byte>(random.below(256));
      const bool pulse = random.below(2) == 0;
      if (pulse) bytes.resize(random.below(2) == 0 ? sizeof(tap::Pulse) : random.below(sizeof(tap::Pulse)));
      const auto number = static_cast<std::int32_t>(random.below(5));
      job.rank_at(1).send({pulse ? FrameType::pulse : FrameType::snapshot, 0, 0, number}, bytes);
      if (random.below(3) == 0) job.rank_at(0).send({FrameType::waiting});
      job.pass(random.below(2000) * kMillisecond);
    }
    ASSERT_EQ(job.broker.membership(1), Membership::joined) << round;
  }
}

}  // namespace
}  // namespace heddle::bootstrap::local::watchdog_test
