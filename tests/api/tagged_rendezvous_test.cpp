// Long tagged messages for receives that were posted before: the division of the copy, and the
// outcome when one side cancels, closes or fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <vector>

#include "api/test_rendezvous.hpp"
#include "base/random.hpp"
#include "base/test_support.hpp"
#include "base/wait.hpp"

namespace heddle::test::tagged_rendezvous_test {
namespace {

TEST(Rendezvous, TheSenderCopiesWhileTheReceiverComputes) {
  Pair pair;
  pair.get_acquainted();
  for (const std::size_t bytes : {40'000UL, 1'000'000UL}) {
    const std::vector<std::byte> data = pattern(bytes, 3);
    Receipt receipt(bytes + 8);
    Outcome sent;
    const std::uint64_t before = pair.taken();
    pair.post(receipt, 5);
    pair.send(data, 5, &sent);
    EXPECT_EQ(pair.taken(), before + 1);
    ASSERT_TRUE(pair.until({kSender}, [&] { return sent.times == 1; })) << "it waits for the receiver";
    EXPECT_EQ(sent.status, HEDDLE_DONE);
    EXPECT_EQ(receipt.outcome.times, 0);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), receipt.data.begin()));
    ASSERT_TRUE(pair.until({kReceiver}, [&] { return receipt.outcome.times == 1; }));
    EXPECT_EQ(receipt.outcome.status, HEDDLE_DONE);
    EXPECT_EQ(receipt.receive.bytes, bytes);
    EXPECT_EQ(receipt.receive.tag, 5U);
    EXPECT_EQ(receipt.receive.source.rank, kSender);
  }
}

// The note that names the taken receive finds no room for as long as the data takes; the receiver
// must still get it afterwards.
TEST(Rendezvous, AReceiverIsToldThoughItsRingWasFullTillTheDataWasThere) {
  Pair pair;
  pair.get_acquainted();
  std::uint64_t arrived = 0;
  const auto count = [](const heddle_am_arrival*, void* counted) { ++*static_cast<std::uint64_t*>(counted); };
  ASSERT_EQ(heddle_am_register(pair.contexts[kReceiver].handle(), 3, count, &arrived), HEDDLE_DONE);
  const std::vector<std::byte> data = pattern(1'000'000, 6);
  Receipt receipt(data.size());
  Outcome sent;
  pair.post(receipt, 5);
  pair.progress(kSender);
  heddle_am_message small{};
  small.handler = 3;
  std::uint64_t posted = 0;
  Status status = HEDDLE_DONE;
  while (status == HEDDLE_DONE) {
    status = heddle_try_am(pair.sender().handle(), {kReceiver, 0}, &small, nullptr);
    if (status == HEDDLE_DONE) ++posted;
  }
  ASSERT_EQ(status, HEDDLE_AGAIN);
  const std::uint64_t before = pair.taken();
  pair.send(data, 5, &sent);
  ASSERT_EQ(pair.taken(), before + 1);
  ASSERT_TRUE(pair.until({kSender}, [&] { return receipt.data == data; })) << "the sender does not copy alone";
  for (int i = 0; i < 100; ++i) pair.progress(kSender);
  EXPECT_EQ(sent.times, 0) << "it has ended, and nobody tells the receiver";
  ASSERT_TRUE(pair.until({kSender, kReceiver}, [&] { return sent.times == 1 && receipt.outcome.times == 1; }));
  EXPECT_EQ(sent.status, HEDDLE_DONE);
  EXPECT_EQ(receipt.outcome.status, HEDDLE_DONE);
  EXPECT_EQ(arrived, posted);
}

// A short message whose sender waits for the receive goes the same way, also without data.
TEST(Rendezvous, AMatchedMessageOfAnyLengthTakesTheReceive) {
  Pair pair;
  pair.get_acquainted();
  for (const std::size_t bytes : {0UL, 1UL, 100UL, 5'000UL}) {
    const std::vector<std::byte> data = pattern(bytes, 3);
    Receipt first(100'000);
    Receipt second(100'000);
    Outcome sent;
    heddle_completion completion = sent.completion();
    completion.when = HEDDLE_WHEN_MATCHED;
    const std::uint64_t before = pair.taken();
    pair.post(first, 5);
    pair.post(second, 5);
    ASSERT_EQ(pair.sender().try_send({kReceiver, 0}, 5, data, &completion), HEDDLE_POSTED);
    EXPECT_EQ(pair.taken(), before + 1);
    ASSERT_TRUE(pair.until({kSender}, [&] { return sent.times == 1; })) << "it waits for the receiver";
    EXPECT_EQ(sent.status, HEDDLE_DONE);
    ASSERT_TRUE(pair.until({kReceiver}, [&] { return first.outcome.times == 1; }));
    EXPECT_EQ(first.outcome.status, HEDDLE_DONE);
    EXPECT_EQ(first.receive.bytes, bytes);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), first.data.begin()));
    EXPECT_EQ(second.outcome.times, 0);
    sent = {};
    ASSERT_EQ(pair.sender().try_send({kReceiver, 0}, 5, data, &completion), HEDDLE_POSTED);
    ASSERT_TRUE(pair.until({kSender, kReceiver}, [&] { return sent.times == 1 && second.outcome.times == 1; }));
    EXPECT_EQ(second.receive.bytes, bytes);
  }
}

TEST(Rendezvous, TheReceiverCopiesWhileTheSenderComputes) {
  Pair pair;
  pair.get_acquainted();
  const std::vector<std::byte> data = pattern(1'000'000, 4);
  Receipt receipt(data.size());
  Outcome sent;
  const std::uint64_t before = pair.taken();
  pair.post(receipt, 5);
  pair.send(data, 5, &sent);
  EXPECT_EQ(pair.taken(), before + 1);
  ASSERT_TRUE(pair.until({kReceiver}, [&] { return receipt.outcome.times == 1; })) << "it waits for the sender";
  EXPECT_EQ(receipt.outcome.status, HEDDLE_DONE);
  EXPECT_EQ(receipt.data, data);
  EXPECT_EQ(sent.times, 0);
  ASSERT_TRUE(pair.until({kSender}, [&] { return sent.times == 1; }));
  EXPECT_EQ(sent.status, HEDDLE_DONE);
}

// However the turns fall, each part is copied once, and both hear of the end.
TEST(Rendezvous, BothMayCopy) {
  Pair pair;
  pair.get_acquainted();
  const std::vector<std::byte> data = pattern(3'000'001, 5);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    base::Random random(seed);
    Receipt receipt(data.size() - seed % 2);
    Outcome sent;
    pair.post(receipt, 5);
    pair.send(data, 5, &sent);
    ASSERT_TRUE(within_time([&] { return receipt.outcome.times == 1 && sent.times == 1; },
                            [&] { pair.progress(static_cast<std::uint32_t>(random.below(2))); }));
    EXPECT_EQ(receipt.outcome.status, seed % 2 == 0 ? HEDDLE_DONE : HEDDLE_ERR_TRUNCATED);
    EXPECT_EQ(sent.status, HEDDLE_DONE);
    EXPECT_TRUE(std::equal(receipt.data.begin(), receipt.data.end(), data.begin()));
    EXPECT_EQ(receipt.receive.bytes, data.size());
  }
}

TEST(Rendezvous, WithoutTheKernelsCopyTheReceiverFetches) {
  const Variables variables(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_SHM_CMA", "0"}});
  Pair pair;
  pair.get_acquainted();
  const std::vector<std::byte> data = pattern(500'000, 6);
  Receipt receipt(data.size());
  Outcome sent;
  pair.post(receipt, 5);
  pair.send(data, 5, &sent);
  for (int i = 0; i < 1000; ++i) pair.progress(kSender);
  EXPECT_EQ(sent.times, 0);
  ASSERT_TRUE(pair.until({0, 1}, [&] { return receipt.outcome.times == 1 && sent.times == 1; }));
  EXPECT_EQ(receipt.data, data);
}

TEST(Rendezvous, CanBeSwitchedOff) {
  const Variables variables(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_TAG_READY", "0"}});
  Pair pair;
  const std::vector<std::byte> data = pattern(500'000, 7);
  for (int i = 0; i < 4; ++i) {
    Receipt receipt(data.size());
    Outcome sent;
    pair.post(receipt, 5);
    pair.send(data, 5, &sent);
    ASSERT_TRUE(pair.until({0, 1}, [&] { return receipt.outcome.times == 1 && sent.times == 1; }));
    EXPECT_EQ(receipt.data, data);
  }
  EXPECT_EQ(pair.taken(), 0U);
}

TEST(Rendezvous, ACancelledReceiveIsNotWrittenToAndOneThatWasTakenIsNotCancelled) {
  Pair pair;
  pair.get_acquainted();
  const std::vector<std::byte> data = pattern(300'000, 8);
  for (const bool taken : {false, true}) {
    Receipt first(data.size());
    Receipt second(data.size());
    Outcome sent;
    pair.post(first, 5);
    pair.post(second, 5);
    if (taken) pair.send(data, 5, &sent);
    ASSERT_EQ(pair.receiver().try_cancel(&first.receive), HEDDLE_DONE);
    EXPECT_EQ(first.outcome.times, taken ? 0 : 1);
    if (!taken) {
      EXPECT_EQ(first.outcome.status, HEDDLE_ERR_CANCELLED);
      pair.send(data, 5, &sent);
    }
    Receipt& got = taken ? first : second;
    ASSERT_TRUE(pair.until({0, 1}, [&] { return got.outcome.times == 1 && sent.times == 1; }));
    EXPECT_EQ(got.outcome.status, HEDDLE_DONE);
    EXPECT_EQ(got.data, data);
    Receipt& other = taken ? second : first;
    EXPECT_EQ(other.data[0], std::byte{0xEE});
    EXPECT_EQ(other.outcome.times, taken ? 0 : 1);
    ASSERT_EQ(pair.receiver().try_cancel(&second.receive), HEDDLE_DONE);
    EXPECT_EQ(second.outcome.times, 1);
  }
}

TEST(Rendezvous, AReceiverThatClosesLeavesNothingToBeWritten) {
  // not taken; taken, and so many steps of the sender after its grace
  for (const int steps : {-1, 0, 1, 2}) {
    Pair pair;
    pair.get_acquainted();
    const std::vector<std::byte> data = pattern(300'000, 9);
    Receipt receipt(data.size());
    Outcome sent;
    pair.post(receipt, 5);
    if (steps >= 0) pair.send(data, 5, &sent);
    std::this_thread::sleep_for(std::chrono::microseconds(10));  // its grace, measured by the clock
    for (int i = 0; i < steps; ++i) pair.progress(kSender);
    pair.workers[kReceiver] = {};
    EXPECT_EQ(receipt.outcome.times, 1);
    EXPECT_EQ(receipt.outcome.status, HEDDLE_ERR_CANCELLED);
    receipt.data.assign(receipt.data.size(), std::byte{1});
    if (steps < 0) pair.send(data, 5, &sent);
    for (int i = 0; i < 100; ++i) pair.progress(kSender);
    if (steps >= 0) {
      EXPECT_EQ(sent.times, 1);
      EXPECT_EQ(sent.status, HEDDLE_ERR_CANCELLED);
    }
    EXPECT_EQ(receipt.data, std::vector<std::byte>(data.size(), std::byte{1}));
    ASSERT_TRUE(pair.until({kSender}, [&] { return sent.times == 1; }));
    EXPECT_EQ(sent.status, HEDDLE_ERR_CANCELLED);
  }
}

TEST(Rendezvous, AReceiveThatWasTakenEndsWhenItsSenderFails) {
  for (const int steps : {0, 1, 2, 1000}) {
    Pair pair;
    pair.get_acquainted();
    const std::vector<std::byte> data = pattern(300'000, 10);
    Receipt receipt(data.size());
    Receipt later(data.size());
    Outcome sent;
    pair.post(receipt, 5);
    pair.post(later, 6);
    pair.send(data, 5, &sent);
    std::this_thread::sleep_for(std::chrono::microseconds(10));
    for (int i = 0; i < steps; ++i) pair.progress(kSender);
    check(heddle_inproc_fail(pair.job.handle(), kSender));
    ASSERT_TRUE(pair.until({kReceiver}, [&] { return receipt.outcome.times == 1 && later.outcome.times == 1; }));
    EXPECT_EQ(later.outcome.status, HEDDLE_ERR_PEER_FAILED);
    EXPECT_EQ(receipt.outcome.status, steps == 1000 ? HEDDLE_DONE : HEDDLE_ERR_PEER_FAILED);
    if (steps == 1000) {
      EXPECT_EQ(receipt.data, data);
    }
    // so that the dead rank's worker waits for nobody
    check(heddle_inproc_fail(pair.job.handle(), kReceiver));
    pair.workers[kSender] = {};
    EXPECT_EQ(sent.times, 1);
  }
}

TEST(Rendezvous, ASendThatTookAReceiveEndsWhenItsReceiverFails) {
  for (const int steps : {0, 1, 2}) {
    Pair pair;
    pair.get_acquainted();
    const std::vector<std::byte> data = pattern(300'000, 11);
    Receipt receipt(data.size());
    Outcome sent;
    pair.post(receipt, 5);
    pair.send(data, 5, &sent);
    for (int i = 0; i < steps; ++i) pair.progress(kReceiver);
    check(heddle_inproc_fail(pair.job.handle(), kReceiver));
    ASSERT_TRUE(pair.until({kSender}, [&] { return sent.times == 1; }));
    EXPECT_TRUE(sent.status == HEDDLE_ERR_PEER_FAILED || sent.status == HEDDLE_DONE) << heddle_status_name(sent.status);
    check(heddle_inproc_fail(pair.job.handle(), kSender));
    pair.workers[kReceiver] = {};
  }
}

// Each rank in a thread of its own, so that both copy at once; with helpers, a third and a fourth.
// A part that both believed to have got would be missing from the data, or end the receive with an
// error.
void send_and_receive_at_once(const char* progress) {
  const auto messages = base::few_if_sanitized<std::uint64_t>(150, 400);
  const Variables variables(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_PROGRESS", progress}});
  const Job job(2, "shm");
  std::atomic<std::uint64_t> taken{0};
  std::atomic<std::uint64_t> posted{0};
  job.run([&](Context& context, Worker& worker) {
    base::Random random(context.rank() + 1);
    for (std::uint64_t i = 0; i < messages && !testing::Test::HasFailure(); ++i) {
      const std::vector<std::byte> data = pattern(20'000 + i % 7 * 33'000, i);
      const std::uint64_t delay = random.below(1000);  // so that each is first sometimes
      const auto ready = [&] {
        for (std::uint64_t spin = 0; spin < delay; ++spin) base::cpu_relax();
      };
      if (context.rank() == kSender) {
        Outcome sent;
        const heddle_completion completion = sent.completion();
        // Mostly the receive is posted first, so that some are taken; and mostly just before, so
        // that it is a race who copies.
        if (i % 4 != 0) {
          ASSERT_TRUE(within_time([&] { return posted.load(std::memory_order_acquire) > i; }, [&] { turn(worker); }));
        }
        ready();
        const Status status =
            heddle_send(worker.handle(), {kReceiver, 0}, i % 2, data.data(), data.size(), &completion);
        ASSERT_GE(status, 0) << heddle_last_error();
        if (status == HEDDLE_DONE) sent = {1, status};
        ready();
        ASSERT_TRUE(within_time([&] { return std::atomic_ref(sent.times).load(std::memory_order_acquire) == 1; },
                                [&] { turn(worker); }));
        ASSERT_EQ(sent.status, HEDDLE_DONE) << "message " << i;
        continue;
      }
      std::vector<std::byte> room(data.size());
      heddle_receive receive;
      ready();
      ASSERT_GE(worker.recv(wanted_of(i % 2), room, &receive), 0) << heddle_last_error();
      posted.store(i + 1, std::memory_order_release);
      ready();
      ASSERT_EQ(worker.wait(receive), HEDDLE_DONE) << "message " << i << ": " << heddle_last_error();
      ASSERT_EQ(room, data) << "message " << i;
    }
    if (context.rank() == kSender) taken = worker.stats().taken;
  });
  EXPECT_GT(taken.load(), 0U);
}

TEST(RendezvousStress, BothCopyAtOnce) {
  send_and_receive_at_once("none");
}

TEST(RendezvousStress, BothCopyAtOnceWithHelpers) {
  send_and_receive_at_once("adaptive");
}

// ---- operations ---------------------------------------------------------------------------------

// Two workers send to each other, and each needs operations to fetch the other's messages. Every
// third message is an active one: a message without room must get AGAIN, and not wait in the queue
// before the receives.
class RendezvousOperations : public testing::TestWithParam<Setting> {};

TEST_P(RendezvousOperations, AreNotAllTakenByLongSends) {
  constexpr std::size_t kMessages = 60;
  auto settings = GetParam().variables;
  settings.emplace_back("HEDDLE_WORKER_OPERATIONS", "16");
  const Variables variables(settings);
  Pair pair(GetParam().transport);
  const std::vector<std::byte> data = pattern(100'000, 12);
  const auto is_active = [](std::size_t i) { return i % 3 == 2; };
  struct Side {
    std::size_t begun = 0;
    std::atomic<std::size_t> handled{0};
    std::array<Outcome, kMessages> sent;
    std::deque<Receipt> receipts;
  };
  std::array<Side, 2> sides;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const auto count = [](const heddle_am_arrival*, void* side) { ++static_cast<Side*>(side)->handled; };
    ASSERT_EQ(heddle_am_register(pair.contexts[rank].handle(), 1, count, &sides.at(rank)), HEDDLE_DONE);
  }
  const auto send = [&](std::uint32_t rank) {  // as many as there is room for
    Side& side = sides.at(rank);
    for (; side.begun < kMessages; ++side.begun) {
      Outcome& outcome = side.sent.at(side.begun);
      const heddle_completion completion = outcome.completion();
      const heddle_am_message message{1, 0, nullptr, data.data(), data.size()};
      const Status status = is_active(side.begun)
                                ? pair.workers[rank].try_am({1 - rank, 0}, message, &completion)
                                : pair.workers[rank].try_send({1 - rank, 0}, side.begun, data, &completion);
      if (status == HEDDLE_AGAIN) return;
      ASSERT_GE(status, 0) << heddle_last_error();
      if (status == HEDDLE_DONE) outcome = {1, status};
    }
  };
  // Until tagged messages, which nobody receives yet, use all the room; the next message is an
  // active one, and has no room.
  ASSERT_TRUE(within_time([&] { return sides[0].begun >= 17 && sides[1].begun >= 17; },
                          [&] {
                            for (std::uint32_t rank = 0; rank < 2; ++rank) {
                              pair.progress(rank);
                              send(rank);
                            }
                          }));
  for (std::uint32_t rank = 0; rank < 2; ++rank) send(rank);
  for (const Side& side : sides) EXPECT_LT(side.begun, 20U);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    for (std::size_t i = 0; i < kMessages; ++i) {
      if (is_active(i)) continue;
      Receipt& receipt = sides.at(rank).receipts.emplace_back(data.size());
      const heddle_completion completion = receipt.outcome.completion();
      const heddle_wanted wanted{{1 - rank, 0}, i, UINT64_MAX};
      Status status = HEDDLE_AGAIN;
      ASSERT_TRUE(within_time(
          [&] { return status != HEDDLE_AGAIN; },
          [&] { status = pair.workers[rank].try_recv(wanted, receipt.data, &receipt.receive, &completion); }));
      ASSERT_GE(status, 0) << heddle_last_error();
      if (status == HEDDLE_DONE) receipt.outcome = {1, status};
    }
  }
  const auto times = [](Outcome& outcome) { return std::atomic_ref(outcome.times).load(std::memory_order_acquire); };
  const auto all = [&](Side& side) {
    return std::ranges::all_of(side.sent, [&](Outcome& outcome) { return times(outcome) == 1; }) &&
           std::ranges::all_of(side.receipts, [&](Receipt& receipt) { return times(receipt.outcome) == 1; });
  };
  ASSERT_TRUE(within_time([&] { return all(sides[0]) && all(sides[1]); },
                          [&] {
                            for (std::uint32_t rank = 0; rank < 2; ++rank) {
                              pair.progress(rank);
                              send(rank);
                            }
                          }))
      << "each waits for an operation of its own to fetch what the other has sent";
  for (Side& side : sides) {
    EXPECT_EQ(side.handled.load(), kMessages / 3);
    for (const Outcome& outcome : side.sent) EXPECT_EQ(outcome.status, HEDDLE_DONE);
    for (const Receipt& receipt : side.receipts) {
      EXPECT_EQ(receipt.outcome.status, HEDDLE_DONE);
      EXPECT_EQ(receipt.data, data);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Transports, RendezvousOperations,
    testing::Values(Setting{"shm", "shm", {}}, Setting{"shm_offered", "shm", {{"HEDDLE_TAG_READY", "0"}}},
                    Setting{"shm_bounce", "shm", {{"HEDDLE_SHM_CMA", "0"}, {"HEDDLE_SHM_BOUNCE_MIN_BYTES", "0"}}},
                    Setting{"loopback_messages", "loopback-messages", {}},
                    Setting{"offload", "shm", {{"HEDDLE_SHARING", "offload"}, {"HEDDLE_TAG_READY", "0"}}},
                    Setting{"delegate", "shm", {{"HEDDLE_SHARING", "delegate"}}}),
    name_of);

}  // namespace
}  // namespace heddle::test::tagged_rendezvous_test
