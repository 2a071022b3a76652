// HEDDLE_HANG_SECONDS: the report of a call that waits too long, word for word.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <regex>
#include <string>

#include "api/test_collective.hpp"
#include "api/test_job.hpp"

namespace heddle::test::hang_report_test {
namespace {

// Standard error while it lives, read as it is written.
class Errors {
 public:
  Errors() {
    EXPECT_EQ(::pipe2(pipe_.data(), O_CLOEXEC), 0);
    before_ = ::dup(2);
    ::dup2(pipe_[1], 2);
  }
  ~Errors() {
    ::dup2(before_, 2);
    for (const int fd : {pipe_[0], pipe_[1], before_}) ::close(fd);
  }
  Errors(const Errors&) = delete;
  Errors& operator=(const Errors&) = delete;

  // Until `count` lines are there. Numbers of polls become N.
  std::string lines(std::size_t count) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (static_cast<std::size_t>(std::count(text_.begin(), text_.end(), '\n')) < count &&
           std::chrono::steady_clock::now() < end) {
      pollfd readable{pipe_[0], POLLIN, 0};
      if (::poll(&readable, 1, 100) != 1) continue;
      std::array<char, 4096> bytes;
      const ssize_t got = ::read(pipe_[0], bytes.data(), bytes.size());
      if (got > 0) text_.append(bytes.data(), static_cast<std::size_t>(got));
    }
    std::size_t at = 0;
    for (std::size_t i = 0; i < count && at != std::string::npos; ++i) at = text_.find('\n', at) + 1;
    return std::regex_replace(text_.substr(0, at), std::regex("polled [0-9]+ times"), "polled N times");
  }

 private:
  std::array<int, 2> pipe_{};
  int before_ = -1;
  std::string text_;
};

// Rank 0 waits in a thread of its own; rank 1 does nothing until the test lets it.
class HangReport : public testing::Test {
 protected:
  ~HangReport() override {
    worker_ = {};
    std::thread other([this] { peer_context_ = {}; });
    context_ = {};
    other.join();
  }
  void open(heddle_sharing sharing) { worker_ = context_.open_worker(sharing); }
  // The first `count` lines that rank 0 writes during call(), which ends when rank 1 makes progress
  // and `release` has run.
  template <class Call, class Release>
  std::string report(std::size_t count, Call&& call, Release&& release) {
    std::string told;
    std::atomic<bool> ended{false};
    Errors errors;
    std::thread waiter([&] {
      call();
      ended.store(true);
    });
    told = errors.lines(count);
    release();
    while (!ended.load()) turn(peer_);
    waiter.join();
    return told;
  }
  // The number of messages with tag 1 that rank 0 may send while rank 1 only keeps them.
  std::size_t send_until_refused(const std::vector<std::byte>& data) {
    std::size_t sent = 0;
    for (int refused = 0; refused < 1000;) {
      const Status status = worker_.try_send({1, 0}, 1, data);
      EXPECT_GE(status, 0) << heddle_last_error();
      refused = status == HEDDLE_AGAIN ? refused + 1 : 0;
      sent += status == HEDDLE_AGAIN ? 0 : 1;
      static_cast<void>(peer_.progress());
    }
    return sent;
  }
  template <class Call>
  std::string report(std::size_t count, Call&& call) {
    return report(count, call, [] {});
  }

  const Variables variables_{
      {{"HEDDLE_HANG_SECONDS", "1"}, {"HEDDLE_AM_USER_BYTES", "4K"}, {"HEDDLE_PROGRESS", "none"}}};
  Job job_{2, "loopback-messages"};
  Context context_ = job_.join(0);
  Context peer_context_ = job_.join(1);
  Worker worker_;
  Worker peer_ = peer_context_.open_worker(HEDDLE_SHARING_EXCLUSIVE);
  Region region_ = peer_context_.alloc(4096);
  RemoteRegion remote_ = context_.unpack(region_.pack());
  std::array<std::byte, 64> memory_{};
  std::uint64_t word_ = 0;
};

TEST_F(HangReport, TellsEachOperationAndItsStage) {
  open(HEDDLE_SHARING_EXCLUSIVE);
  std::vector<std::byte> large(1 << 20);
  ASSERT_EQ(worker_.try_get(memory_, remote_.at(0)), HEDDLE_POSTED);
  ASSERT_EQ(worker_.try_put(bytes_of(word_), remote_.at(8)), HEDDLE_POSTED);
  ASSERT_EQ(worker_.try_fetch_add(remote_.at(16), 1, &word_), HEDDLE_POSTED);
  ASSERT_EQ(worker_.try_am({1, 0}, {1, 0, nullptr, large.data(), large.size()}), HEDDLE_POSTED);
  EXPECT_EQ(
      report(6, [&] { EXPECT_EQ(worker_.quiet(), HEDDLE_DONE); }),
      "heddle[0] heddle_quiet has waited 1 s on worker 0 (exclusive: this thread advances it)\n"
      "heddle[0]   worker 0: polled N times; 4 operations are under way\n"
      "heddle[0]   get of 64 bytes from rank 1: posted; waits for the answer of rank 1, where a thread must make "
      "progress on worker 0\n"
      "heddle[0]   put of 8 bytes to rank 1: posted; waits for the answer of rank 1, where a thread must make progress "
      "on worker 0\n"
      "heddle[0]   atomic of 8 bytes on rank 1: posted; waits for the answer of rank 1, where a thread must make "
      "progress on worker 0\n"
      "heddle[0]   message of 1048576 bytes to rank 1: partly posted; waits for the answer of rank 1, where a thread "
      "must make progress on worker 0\n");
}

TEST_F(HangReport, TellsTheFirstSixteenAgainEachPeriod) {
  open(HEDDLE_SHARING_OFFLOAD);
  std::array<std::uint64_t, 20> results{};
  for (std::uint64_t& result : results)
    ASSERT_GE(worker_.fetch_atomic(HEDDLE_ADD64, remote_.at(0), {1, 0, &result}), 0);
  const std::string told = report(38, [&] { EXPECT_EQ(worker_.flush(1), HEDDLE_DONE); });
  std::string expected;
  for (const char* seconds : {"1", "2"}) {
    expected += std::string("heddle[0] heddle_flush has waited ") + seconds +
                " s on worker 0 (offload: its executor advances it, and this thread): the operations to rank 1\n"
                "heddle[0]   worker 0: polled N times; 20 operations are under way\n";
    for (int i = 0; i < 16; ++i) {
      expected +=
          "heddle[0]   atomic of 8 bytes on rank 1: posted; waits for the answer of rank 1, where a thread must make "
          "progress "
          "on worker 0\n";
    }
    expected += "heddle[0]   and 4 more\n";
  }
  EXPECT_EQ(told, expected);
}

TEST_F(HangReport, TellsWhatAWaitAwaits) {
  open(HEDDLE_SHARING_SHARED);
  const Counter counter = context_.counter();
  const heddle_completion completion = counter.completion();
  ASSERT_EQ(worker_.try_fetch_add(remote_.at(0), 1, &word_, &completion), HEDDLE_POSTED);
  EXPECT_EQ(report(3, [&] { EXPECT_EQ(worker_.wait(counter, 1), HEDDLE_DONE); }),
            "heddle[0] heddle_counter_wait has waited 1 s on worker 0 (shared: this thread advances it, or who is "
            "inside): the "
            "counter is 0, awaited 1\n"
            "heddle[0]   worker 0: polled N times; 1 operation is under way\n"
            "heddle[0]   atomic of 8 bytes on rank 1: posted; waits for the answer of rank 1, where a thread must make "
            "progress "
            "on worker 0\n");
}

TEST_F(HangReport, TellsTheReceivesThatWait) {
  open(HEDDLE_SHARING_EXCLUSIVE);
  std::array<heddle_receive, 2> receives{};
  std::uint64_t room = 0;
  ASSERT_EQ(worker_.try_recv({{1, 0}, 0x17, UINT64_MAX}, writable_bytes_of(room), &receives[0]), HEDDLE_POSTED);
  ASSERT_EQ(worker_.try_recv({{HEDDLE_ANY, HEDDLE_ANY}, 0x20, 0xF0}, {}, &receives[1]), HEDDLE_POSTED);
  const std::uint64_t word = 5;
  const std::string told = report(
      4, [&] { EXPECT_EQ(worker_.wait(receives[0]), HEDDLE_DONE); },
      [&] { ASSERT_GE(peer_.send({0, 0}, 0x17, bytes_of(word)), 0); });
  EXPECT_NE(told.find("  worker 0: polled N times; 0 operations are under way\n"), std::string::npos) << told;
  EXPECT_NE(told.find("  receive of tag 23 from worker 0 of rank 1, 8 bytes: posted; nothing that fits has come\n"),
            std::string::npos)
      << told;
  EXPECT_NE(
      told.find(
          "  receive of tag 0x20 under the mask 0xf0 from anybody, 0 bytes: posted; nothing that fits has come\n"),
      std::string::npos)
      << told;
  EXPECT_EQ(worker_.try_cancel(&receives[1]), HEDDLE_DONE);  // before its memory goes
}

TEST_F(HangReport, TellsWhoIsMissingInABarrier) {
  open(HEDDLE_SHARING_DELEGATE);
  std::thread other;
  EXPECT_EQ(report(
                2, [&] { context_.barrier(worker_); }, [&] { other = std::thread([&] { peer_context_.barrier(); }); }),
            "heddle[0] heddle_context_barrier has waited 1 s on worker 0 (delegate: this thread advances it, or who is "
            "inside): "
            "not all ranks have arrived: missing is rank 1\n"
            "heddle[0]   worker 0: polled N times; 0 operations are under way\n");
  other.join();
}

TEST_F(HangReport, TellsThatTheTargetRunsNoTasks) {
  open(HEDDLE_SHARING_EXCLUSIVE);
  const heddle_am_message message{HEDDLE_AM_USER, 0, nullptr, nullptr, 0};
  for (int i = 0; i < 9; ++i) ASSERT_GE(worker_.am({1, 0}, message), 0);
  std::atomic<bool> sent{false};
  const std::string told = report(
      1,
      [&] {
        EXPECT_GE(worker_.am({1, 0}, message), 0);
        sent.store(true);
      },
      [&] {
        while (!sent.load()) ASSERT_GE(peer_.run_tasks(), 0);
      });
  EXPECT_EQ(told,
            "heddle[0] heddle_am has waited 1 s on worker 0 (exclusive: this thread advances it): the USER message to "
            "worker 0 "
            "of rank 1 is not accepted; 4032 bytes to it are not known as handled yet: a thread there must call "
            "heddle_run_tasks\n");
}

TEST_F(HangReport, TellsOfMessagesThatHadNoHandler) {
  open(HEDDLE_SHARING_EXCLUSIVE);
  ASSERT_GE(peer_.am({0, 0}, {9, 0, nullptr, nullptr, 0}), 0);
  const std::string told = report(
      4, [&] { EXPECT_EQ(worker_.wait(word_, HEDDLE_EQ, 1), HEDDLE_DONE); }, [&] { std::atomic_ref(word_).store(1); });
  EXPECT_NE(told.find("heddle_signal_wait has waited 1 s"), std::string::npos) << told;
  EXPECT_NE(told.find("worker 0: active messages were dropped, since no handler was registered for their number, 9"),
            std::string::npos)
      << told;
}

TEST_F(HangReport, TellsThatTheTargetReceivesNothing) {
  open(HEDDLE_SHARING_EXCLUSIVE);
  const std::vector<std::byte> data(1000);
  const std::size_t kept = send_until_refused(data);
  const std::string told = report(
      1, [&] { EXPECT_GE(worker_.send({1, 0}, 1, data), 0); },
      [&] {
        std::vector<std::byte> room(data.size());
        for (std::size_t i = 0; i < kept; ++i) {
          heddle_receive receive{};
          ASSERT_GE(peer_.recv({{0, 0}, 1, UINT64_MAX}, room, &receive), 0);
          ASSERT_EQ(peer_.wait(receive), HEDDLE_DONE);
        }
      });
  EXPECT_EQ(
      told,
      "heddle[0] heddle_send has waited 1 s on worker 0 (exclusive: this thread advances it): the message of 1000 "
      "bytes to worker 0 of rank 1 is not accepted; " +
          std::to_string(kept * 1216) +
          " of HEDDLE_TAG_CREDIT_BYTES=4194304 (long ones: twice that) are used by messages that are not received "
          "there: "
          "post receives there, and make progress on that worker\n");
}

TEST_F(HangReport, TellsThatLongMessagesAreNotReceived) {
  open(HEDDLE_SHARING_EXCLUSIVE);
  const std::vector<std::byte> data(100'000);
  const std::size_t offered = send_until_refused(data);
  EXPECT_EQ(offered, 768U) << "three quarters of 1024";
  const std::string told = report(
      1,
      [&] {
        EXPECT_GE(worker_.send({1, 0}, 1, data), 0);
        EXPECT_EQ(worker_.quiet(), HEDDLE_DONE);
      },
      [&] {
        std::vector<std::byte> room(data.size());
        for (std::size_t i = 0; i <= offered; ++i) {
          heddle_receive receive{};
          ASSERT_GE(peer_.recv({{0, 0}, 1, UINT64_MAX}, room, &receive), 0);
          ASSERT_EQ(peer_.wait(receive), HEDDLE_DONE);
        }
      });
  EXPECT_EQ(told,
            "heddle[0] heddle_send has waited 1 s on worker 0 (exclusive: this thread advances it): the message of "
            "100000 bytes to worker 0 of rank 1 is not accepted; 768 long ones are under way, as many as "
            "HEDDLE_WORKER_OPERATIONS allows: post their receives, and make progress on both sides\n");
}

// A handler that waits in its own code delays its worker, and no other one.
TEST_F(HangReport, TellsThatAnotherThreadDoesNotLeaveTheWorker) {
  open(HEDDLE_SHARING_SHARED);
  struct Stuck {
    std::atomic<bool> in{false};
    std::atomic<bool> out{false};
  } stuck;
  context_.register_am(
      1,
      [](const heddle_am_arrival*, void* arg) {
        auto& self = *static_cast<Stuck*>(arg);
        self.in.store(true);
        while (!self.out.load()) std::this_thread::yield();
      },
      &stuck);
  ASSERT_GE(peer_.am({0, 0}, {1, 0, nullptr, nullptr, 0}), 0);
  std::thread handler([&] {
    while (!stuck.in.load()) turn(worker_);
  });
  while (!stuck.in.load()) std::this_thread::yield();
  EXPECT_EQ(worker_.progress(), 0) << "skipped, not waited for";
  EXPECT_EQ(
      report(
          2, [&] { EXPECT_GE(worker_.am({1, 0}, {1, 0, nullptr, nullptr, 0}), 0); }, [&] { stuck.out.store(true); }),
      "heddle[0] heddle_am has waited 1 s on worker 0 (shared: this thread advances it, or who is inside): the message "
      "to worker 0 of rank 1 is not accepted; a thread there must make progress on that worker\n"
      "heddle[0]   worker 0: another thread is inside and does not leave: it is in a handler, a callback or a call of "
      "heddle_run_on_engine that waits, or it was stopped\n");
  handler.join();
}

TEST(HangReportOff, NothingIsToldUnlessItIsAskedFor) {
  const Job job(1, "loopback");
  const Context context = job.join(0);
  Worker worker = context.open_worker();
  testing::internal::CaptureStderr();
  EXPECT_EQ(worker.wait(context.counter(), 1, 1'200'000'000), HEDDLE_ERR_TIMEOUT);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Two of three members are in a barrier.
TEST(HangReportOfCollectives, NamesTheMemberThatHasNotCome) {
  const Variables variables{{{"HEDDLE_HANG_SECONDS", "1"}, {"HEDDLE_PROGRESS", "none"}}};
  Errors errors;
  std::string told;
  // Each of them has heard of the other, and waits for who has told nobody.
  const char* zero = "barrier of 0 bytes on a team of 3, rank 0 there: it waits for member 1\n";
  const char* two = "barrier of 0 bytes on a team of 3, rank 2 there: it waits for member 1\n";
  const auto has = [&](const char* words) { return told.find(words) != std::string::npos; };
  run_members(3, "shm", [&](const Member& member) {
    // from here on the operation is ready, and is run alone
    must(member.world.barrier(), "the first barrier");
    // One of them may come late too, and the other be told several times before.
    if (member.rank() == 1) {
      for (std::size_t lines = 2; lines < 60 && !(has(zero) && has(two)); ++lines) told = errors.lines(lines);
    }
    must(member.world.barrier(), "the barrier that member 1 comes late to");
  });
  EXPECT_TRUE(has(zero)) << told;
  EXPECT_TRUE(has(two)) << told;
}

}  // namespace
}  // namespace heddle::test::hang_report_test
