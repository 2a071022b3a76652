// A worker that closes owes its peers the answers to what it has received.
#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "api/test_job.hpp"
#include "engine/handles.hpp"
#include "worker/worker.hpp"

namespace heddle::test::closing_test {
namespace {

constexpr std::size_t kLong = 1'000'000;  // by rendezvous everywhere: its end is an answer

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = {
      {"refusing", "fault+loopback", {{"HEDDLE_FAULT", "again=95"}}},
      {"refusing_messages", "fault+loopback-messages", {{"HEDDLE_FAULT", "again=95"}}},
      {"refusing_shm", "fault+shm", {{"HEDDLE_SHM_DIRECT", "0"}, {"HEDDLE_FAULT", "again=95"}}},
  };
  return all;
}

struct Outcome {
  std::atomic<int> times = 0;  // raised with release; partner: the test's acquire load
  Status status = HEDDLE_AGAIN;
  static void tell(void* arg, Status status) {
    auto* self = static_cast<Outcome*>(arg);
    self->status = status;
    ++self->times;
  }
  heddle_completion completion() { return {&tell, this, {}, HEDDLE_WHEN_REMOTE}; }
};

class Closing : public testing::TestWithParam<Setting> {
 protected:
  Variables variables_{GetParam().variables};
};

// A long message of a rank to itself that was never received: nobody can receive it any more, so
// leaving cancels it instead of waiting for ever.
TEST(Leaving, GivesUpWhatNobodyWillDo) {
  for (const char* transport : {"shm", "loopback-messages"}) {
    const Job job(1, transport);
    heddle_context context{};
    const heddle_context_options options{sizeof options, "inproc", transport, job.handle(), 0, nullptr};
    ASSERT_EQ(heddle_context_join(&options, &context), HEDDLE_DONE) << heddle_last_error();
    heddle_worker worker{};
    ASSERT_EQ(heddle_worker_open(context, nullptr, &worker), HEDDLE_DONE);
    const std::vector<char> data(kLong);
    Outcome outcome;
    const heddle_completion completion = outcome.completion();
    ASSERT_EQ(heddle_send(worker, {0, 0}, 1, data.data(), data.size(), &completion), HEDDLE_POSTED) << transport;
    EXPECT_EQ(heddle_context_leave(context), HEDDLE_DONE) << heddle_last_error();
    EXPECT_EQ(outcome.times, 1) << transport;
    EXPECT_EQ(outcome.status, HEDDLE_ERR_CANCELLED) << transport;
  }
}

// A thread that rests between polls does not need a thousand polls to find out.
TEST(Napping, NoticesThatAWorkerWasClosed) {
  for (const char* transport : {"shm", "loopback-messages"}) {
    const Variables variables{{{"HEDDLE_PROGRESS", "none"}}};
    const Job job(2, transport);
    Context mine = job.join(0);
    Context theirs = job.join(1);
    Worker sender = mine.open_worker();
    Worker receiver = theirs.open_worker();
    std::vector<std::byte> source(kLong);
    Outcome sent;
    const heddle_completion at_sender = sent.completion();
    ASSERT_TRUE(within_time([&] {
      turn(receiver);
      return sender.try_send({1, 0}, 1, source, &at_sender) == HEDDLE_POSTED;
    }));
    receiver = {};
    auto* inner = engine::find_handle<worker::Worker>(sender.handle().id);
    int rests = 0;
    for (; sent.times == 0 && rests < 1000; ++rests) {
      ASSERT_GE(sender.progress(), 0);
      static_cast<void>(inner->lie_down());
    }
    EXPECT_GE(rests, 60) << transport;  // two looks with polls between them
    EXPECT_LE(rests, 70) << transport;
    EXPECT_EQ(sent.status, HEDDLE_ERR_CANCELLED) << transport;
    sender = {};
    std::thread other([&theirs] { theirs = {}; });
    mine = {};
    other.join();
  }
}

// The receiver closes at the moment in which it has the message; the transport refuses most
// commands.
TEST_P(Closing, TellsTheSenderFirst) {
  const Job job(2, GetParam().transport);
  Context receiving = job.join(0);
  Context sending = job.join(1);
  Worker sender = sending.open_worker();
  std::vector<std::byte> source(kLong, std::byte{7});
  std::vector<std::byte> target(kLong);
  for (std::uint32_t round = 0; round < 20 && !HasFailure(); ++round) {
    Worker receiver = receiving.open_worker();
    Outcome sent;
    Outcome received;
    const heddle_completion at_sender = sent.completion();
    const heddle_completion at_receiver = received.completion();
    heddle_receive receive{};
    ASSERT_GE(receiver.try_recv({{HEDDLE_ANY, HEDDLE_ANY}, round, UINT64_MAX}, target, &receive, &at_receiver), 0);
    Status status = HEDDLE_AGAIN;
    EXPECT_TRUE(within_time([&] {
      if (status == HEDDLE_AGAIN) status = sender.try_send({0, round}, round, source, &at_sender);
      turn(sender);
      turn(receiver);
      return received.times == 1;
    }));
    receiver = {};
    EXPECT_TRUE(within_time([&] {
      turn(sender);
      return sent.times == 1;
    }));
    EXPECT_EQ(received.status, HEDDLE_DONE);
    EXPECT_EQ(sent.status, HEDDLE_DONE) << "round " << round;
  }
  sender = {};
  std::thread other([&sending] { sending = {}; });
  receiving = {};
  other.join();
}

struct Mode {
  const char* transport;
  const char* sharing;
};

std::string mode_name(const testing::TestParamInfo<Mode>& tested) {
  std::string name = std::string(tested.param.transport) + "_" + tested.param.sharing;
  std::ranges::replace_if(name, [](char c) { return c == '-' || c == '+'; }, '_');
  return name;
}

class Silent : public testing::TestWithParam<Mode> {};

// The peer lives, makes progress, and does not receive. Nothing of the message is lost: the peer
// receives it after all.
TEST_P(Silent, PeerLeavesTheWorkerOpen) {
  const Variables variables({{"HEDDLE_CLOSE_TIMEOUT", "30ms"}, {"HEDDLE_SHARING", GetParam().sharing}});
  const Job job(2, GetParam().transport);
  Context mine = job.join(0);
  Context theirs = job.join(1);
  Worker sender = mine.open_worker();
  Worker peer = theirs.open_worker();
  std::vector<std::byte> source(kLong, std::byte{7});
  std::vector<std::byte> target(kLong);
  Outcome sent;
  const heddle_completion at_sender = sent.completion();
  ASSERT_TRUE(within_time([&] {
    turn(peer);
    return sender.try_send({1, 0}, 1, source, &at_sender) == HEDDLE_POSTED;
  }));
  std::atomic<bool> closed = false;
  std::thread progress([&] {
    while (!closed.load(std::memory_order_acquire)) turn(peer);
  });
  testing::internal::CaptureStderr();
  EXPECT_EQ(heddle_worker_close(sender.handle()), HEDDLE_ERR_TIMEOUT);
  const std::string text = heddle_last_error();
  const std::string report = testing::internal::GetCapturedStderr();
  closed.store(true, std::memory_order_release);
  progress.join();
  EXPECT_NE(report.find("heddle_worker_close: " + text), std::string::npos) << report;
  EXPECT_NE(report.find("waits to be received by rank 1"), std::string::npos) << report;
  EXPECT_NE(text.find("worker 0 stays open: the number of its unfinished operations and queued commands, 1, has not "
                      "fallen for 0.03 s"),
            std::string::npos)
      << text;
  EXPECT_EQ(sent.times, 0);

  heddle_receive receive{};
  // an executor may be inside the peer's worker: only the completion tells the end
  Outcome received;
  const heddle_completion at_receiver = received.completion();
  // DONE: the kernel has copied it, since the sender does not poll; no completion follows.
  const Status begun = peer.try_recv({{0, 0}, 1, UINT64_MAX}, target, &receive, &at_receiver);
  EXPECT_TRUE(begun == HEDDLE_POSTED || begun == HEDDLE_DONE) << begun;
  EXPECT_TRUE(within_time([&] {
    turn(peer);
    turn(sender);
    return (begun == HEDDLE_DONE || received.times == 1) && sent.times == 1;
  }));
  EXPECT_EQ(receive.status, HEDDLE_DONE);
  EXPECT_EQ(sent.status, HEDDLE_DONE);
  EXPECT_EQ(target, source);
  EXPECT_EQ(heddle_worker_close(sender.release()), HEDDLE_DONE) << heddle_last_error();
  peer = {};
  std::thread other([&theirs] { theirs = {}; });
  mine = {};
  other.join();
}

INSTANTIATE_TEST_SUITE_P(Modes, Silent,
                         testing::Values(Mode{"shm", "exclusive"}, Mode{"shm", "shared"}, Mode{"shm", "offload"},
                                         Mode{"shm", "delegate"}, Mode{"loopback-messages", "exclusive"},
                                         Mode{"fault+loopback", "offload"}),
                         mode_name);

INSTANTIATE_TEST_SUITE_P(Settings, Closing, testing::ValuesIn(settings()), name_of);

}  // namespace
}  // namespace heddle::test::closing_test
