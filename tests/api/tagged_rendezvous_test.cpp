// Long tagged messages, which go in parts or are offered: who copies, and the outcome when one side
// cancels, closes or fails.
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

// Longer than what goes in parts without a receive.
constexpr std::size_t kOffered = 1'000'000;
// It goes in parts.
constexpr std::size_t kPiped = 300'000;

TEST(Rendezvous, APipedMessageNeedsNoReceiver) {
  Pair pair;
  const std::vector<std::byte> data = pattern(kPiped, 3);
  Outcome sent;
  pair.send(data, 5, &sent);
  ASSERT_TRUE(pair.until({kSender}, [&] { return sent.times == 1; })) << "it waits for the receiver";
  EXPECT_EQ(sent.status, HEDDLE_DONE);
  Receipt receipt(data.size() + 8);
  pair.post(receipt, 5);
  ASSERT_TRUE(pair.until({kReceiver}, [&] { return receipt.outcome.times == 1; }));
  EXPECT_EQ(receipt.outcome.status, HEDDLE_DONE);
  EXPECT_EQ(receipt.receive.bytes, data.size());
  EXPECT_EQ(receipt.receive.tag, 5U);
  EXPECT_EQ(receipt.receive.source.rank, kSender);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), receipt.data.begin()));
}

// The receive is posted when the first, some, or all parts are here.
TEST(Rendezvous, AReceiveMayComeBetweenTheParts) {
  for (const std::size_t room : {std::size_t{0}, std::size_t{1}, std::size_t{3000}, kPiped / 2, kPiped, kPiped + 1}) {
    for (int polls = 0; polls < 8; ++polls) {
      Pair pair;
      const std::vector<std::byte> data = pattern(kPiped, room);
      Outcome sent;
      Outcome sent_after;
      pair.send(data, 5, &sent);
      pair.send(pattern(16, 1), 6, &sent_after);
      for (int i = 0; i < polls; ++i) pair.progress(kReceiver);
      Receipt receipt(room);
      Receipt after(16);
      pair.post(receipt, {{HEDDLE_ANY, HEDDLE_ANY}, 0, 0});
      pair.post(after, {{HEDDLE_ANY, HEDDLE_ANY}, 0, 0});
      ASSERT_TRUE(pair.until({kReceiver, kSender}, [&] {
        return receipt.outcome.times == 1 && after.outcome.times == 1 && sent.times == 1;
      }));
      EXPECT_EQ(receipt.outcome.status, room < data.size() ? HEDDLE_ERR_TRUNCATED : HEDDLE_DONE);
      EXPECT_EQ(receipt.receive.tag, 5U) << "the later message was matched first";
      EXPECT_EQ(receipt.receive.bytes, data.size());
      EXPECT_TRUE(std::equal(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(std::min(room, data.size())),
                             receipt.data.begin()));
      EXPECT_EQ(after.receive.tag, 6U);
    }
  }
}

TEST(Rendezvous, AMessageThatIsNotWholeMayBeProbedAndClaimed) {
  Pair pair;
  const std::vector<std::byte> data = pattern(kPiped, 4);
  for (const bool dropped : {false, true}) {
    Outcome sent;
    pair.send(data, 5, &sent);
    heddle_receive claimed{};
    const heddle_wanted wanted = wanted_of(5);
    Status status = HEDDLE_AGAIN;
    ASSERT_TRUE(within_time([&] { return status != HEDDLE_AGAIN; },
                            [&] {
                              pair.progress(kReceiver);
                              status = heddle_try_claim(pair.receiver().handle(), &wanted, &claimed);
                            }));
    ASSERT_EQ(status, HEDDLE_DONE);
    EXPECT_EQ(claimed.bytes, data.size());
    if (dropped) {
      ASSERT_EQ(heddle_recv_claimed(pair.receiver().handle(), nullptr, 0, &claimed, nullptr), HEDDLE_DONE);
    } else {
      std::vector<std::byte> room(data.size());
      Outcome got;
      const heddle_completion completion = got.completion();
      status = heddle_recv_claimed(pair.receiver().handle(), room.data(), room.size(), &claimed, &completion);
      if (status == HEDDLE_DONE) got = {1, status};
      ASSERT_TRUE(pair.until({kSender, kReceiver}, [&] { return got.times == 1; }));
      EXPECT_EQ(got.status, HEDDLE_DONE);
      EXPECT_EQ(room, data);
    }
    ASSERT_TRUE(pair.until({kSender, kReceiver}, [&] { return sent.times == 1; }));
  }
  // The parts of the one that was dropped are dropped, too.
  Receipt receipt(data.size());
  Outcome sent;
  pair.post(receipt, 7);
  pair.send(data, 7, &sent);
  ASSERT_TRUE(pair.until({kSender, kReceiver}, [&] { return receipt.outcome.times == 1 && sent.times == 1; }));
  EXPECT_EQ(receipt.data, data);
}

// A message whose sender waits for the receive, of any length, also without data.
TEST(Rendezvous, AMatchedMessageEndsWithItsReceive) {
  Pair pair;
  for (const std::size_t bytes : {0UL, 1UL, 100UL, 5'000UL, 300'000UL}) {
    const std::vector<std::byte> data = pattern(bytes, 3);
    Receipt first(400'000);
    Receipt second(400'000);
    for (Receipt* receipt : {&first, &second}) {
      Outcome sent;
      heddle_completion completion = sent.completion();
      completion.when = HEDDLE_WHEN_MATCHED;
      ASSERT_EQ(pair.sender().try_send({kReceiver, 0}, 5, data, &completion), HEDDLE_POSTED);
      for (int i = 0; i < 10; ++i) {
        pair.progress(kSender);
        pair.progress(kReceiver);
      }
      EXPECT_EQ(sent.times, 0);
      pair.post(*receipt, 5);
      ASSERT_TRUE(pair.until({kSender, kReceiver}, [&] { return sent.times == 1 && receipt->outcome.times == 1; }));
      EXPECT_EQ(sent.status, HEDDLE_DONE);
      EXPECT_EQ(receipt->outcome.status, HEDDLE_DONE);
      EXPECT_EQ(receipt->receive.bytes, bytes);
      EXPECT_TRUE(std::equal(data.begin(), data.end(), receipt->data.begin()));
    }
  }
}

TEST(Rendezvous, TheReceiverCopiesWhileTheSenderComputes) {
  Pair pair;
  const std::vector<std::byte> data = pattern(kOffered, 4);
  Receipt receipt(data.size());
  Outcome sent;
  pair.post(receipt, 5);
  pair.send(data, 5, &sent);
  ASSERT_TRUE(pair.until({kReceiver}, [&] { return receipt.outcome.times == 1; })) << "it waits for the sender";
  EXPECT_EQ(receipt.outcome.status, HEDDLE_DONE);
  EXPECT_EQ(receipt.data, data);
  EXPECT_EQ(sent.times, 0);
  ASSERT_TRUE(pair.until({kSender}, [&] { return sent.times == 1; }));
  EXPECT_EQ(sent.status, HEDDLE_DONE);
}

// Both are here: the sender is asked, and sends the data.
TEST(Rendezvous, TheSenderSendsWhatItsReceiverAsksFor) {
  Pair pair;
  const std::vector<std::byte> data = pattern(kOffered, 4);
  const std::uint64_t before = pair.taken();
  Receipt receipt(data.size());
  Outcome sent;
  pair.post(receipt, 5);
  pair.send(data, 5, &sent);
  ASSERT_TRUE(pair.until({kReceiver, kSender}, [&] { return receipt.outcome.times == 1 && sent.times == 1; }));
  EXPECT_EQ(pair.taken(), before + 1);
  EXPECT_EQ(receipt.data, data);
}

// However the turns fall, each part is copied once, and both hear of the end.
TEST(Rendezvous, BothMayCopy) {
  Pair pair;
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

TEST(Rendezvous, WithoutTheKernelsCopyItTakesBoth) {
  const Variables variables(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_SHM_CMA", "0"}});
  Pair pair;
  const std::vector<std::byte> data = pattern(kOffered, 6);
  Receipt receipt(data.size());
  Outcome sent;
  pair.post(receipt, 5);
  pair.send(data, 5, &sent);
  for (const std::uint32_t rank : {kSender, kReceiver}) {
    for (int i = 0; i < 1000; ++i) pair.progress(rank);
    EXPECT_EQ(sent.times, 0);
    EXPECT_EQ(receipt.outcome.times, 0);
  }
  ASSERT_TRUE(pair.until({0, 1}, [&] { return receipt.outcome.times == 1 && sent.times == 1; }));
  EXPECT_EQ(receipt.data, data);
}

TEST(Rendezvous, ACancelledReceiveIsNotWrittenToAndOneThatHasItsMessageIsNotCancelled) {
  for (const std::size_t bytes : {kPiped, kOffered}) {
    for (const bool begun : {false, true}) {
      Pair pair;
      const std::vector<std::byte> data = pattern(bytes, 8);
      Receipt first(data.size());
      Receipt second(data.size());
      Outcome sent;
      pair.post(first, 5);
      pair.post(second, 5);
      if (begun) {
        pair.send(data, 5, &sent);
        // until it is matched
        ASSERT_TRUE(pair.until({kReceiver}, [&] { return first.receive.bytes == bytes; }));
      }
      ASSERT_EQ(pair.receiver().try_cancel(&first.receive), HEDDLE_DONE);
      if (!begun) {
        EXPECT_EQ(first.outcome.status, HEDDLE_ERR_CANCELLED);
        pair.send(data, 5, &sent);
      }
      Receipt& got = begun ? first : second;
      ASSERT_TRUE(pair.until({0, 1}, [&] { return got.outcome.times == 1 && sent.times == 1; }));
      EXPECT_EQ(got.outcome.status, HEDDLE_DONE);
      EXPECT_EQ(got.data, data);
      Receipt& other = begun ? second : first;
      EXPECT_EQ(other.data[0], std::byte{0xEE});
      EXPECT_EQ(other.outcome.times, begun ? 0 : 1);
      ASSERT_EQ(pair.receiver().try_cancel(&second.receive), HEDDLE_DONE);
      EXPECT_EQ(second.outcome.times, 1);
    }
  }
}

// Of a message that goes in parts only a few have left when one side closes or fails: the cells of
// a worker hold less than the message.
const std::vector<std::pair<const char*, const char*>> kLongParts = {{"HEDDLE_TAG_CREDIT_BYTES", "32M"},
                                                                     {"HEDDLE_TAG_EAGER_BYTES", "8M"}};
constexpr std::size_t kLongPiped = 6'000'000;

// Messages that leave without a poll between them: the later ones go whole or in longer parts.
TEST(Rendezvous, ABurstArrivesInItsOrder) {
  // the longest one fills the cells, so that the others come between its parts
  const std::vector<std::size_t> lengths = {16'385, 32'768, 32'760,  32'769, 65'536, 8'000,  32'768,
                                            33'000, 33'584, 200'000, 33'585, 32'761, 16'385, 3'500'000,
                                            32'768, 33'584, 20'000,  33'585, 8'000};
  const char* const rings[] = {"2K", "36K", "132K", "1M"};
  for (std::size_t round = 0; round < 2 * std::size(rings); ++round) {
    auto settings = kLongParts;
    settings.emplace_back("HEDDLE_SHM_RING_BYTES", rings[round / 2]);
    settings.emplace_back("HEDDLE_SHARING", round % 2 == 0 ? "exclusive" : "delegate");
    const Variables variables(settings);
    const std::size_t posted = round * lengths.size() / (2 * std::size(rings) - 1);
    Pair pair;
    std::vector<std::vector<std::byte>> sources;
    std::deque<Receipt> receipts;
    std::vector<Outcome> sent(lengths.size());
    for (const std::size_t bytes : lengths) {
      sources.push_back(pattern(bytes, static_cast<unsigned>(sources.size())));
      receipts.emplace_back(bytes);
    }
    for (std::size_t i = 0; i < posted; ++i) pair.post(receipts[i], 5);
    for (std::size_t i = 0; i < lengths.size(); ++i) pair.send(sources[i], 5, &sent[i]);
    for (std::size_t i = posted; i < lengths.size(); ++i) pair.post(receipts[i], 5);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      ASSERT_TRUE(pair.until({kSender, kReceiver}, [&] { return receipts[i].outcome.times == 1; })) << i;
      ASSERT_TRUE(pair.until({kSender, kReceiver}, [&] { return sent[i].times == 1; })) << i;
      EXPECT_EQ(sent[i].status, HEDDLE_DONE);
      EXPECT_EQ(receipts[i].outcome.status, HEDDLE_DONE);
      EXPECT_EQ(receipts[i].data, sources[i]) << "message " << i << ", " << posted << " posted";
    }
  }
}

TEST(Rendezvous, AReceiverThatClosesLeavesNothingToBeWritten) {
  for (const std::size_t bytes : {kOffered, kLongPiped}) {
    for (const int steps : {0, 1, 2, 5}) {
      const Variables variables(bytes == kLongPiped ? kLongParts : decltype(kLongParts){});
      Pair pair;
      const std::vector<std::byte> data = pattern(bytes, 9);
      Receipt receipt(data.size());
      Outcome sent;
      pair.post(receipt, 5);
      pair.send(data, 5, &sent);
      for (int i = 0; i < steps; ++i) {
        pair.progress(kSender);
        pair.progress(kReceiver);
      }
      pair.workers[kReceiver] = {};
      EXPECT_EQ(receipt.outcome.times, 1);
      EXPECT_EQ(receipt.outcome.status, HEDDLE_ERR_CANCELLED);
      receipt.data.assign(receipt.data.size(), std::byte{1});
      ASSERT_TRUE(pair.until({kSender}, [&] { return sent.times == 1; }));
      // what goes in parts counts as sent when it has left
      if (bytes == kOffered) {
        EXPECT_EQ(sent.status, HEDDLE_ERR_CANCELLED);
      }
      EXPECT_EQ(receipt.data, std::vector<std::byte>(data.size(), std::byte{1}));
    }
  }
}

TEST(Rendezvous, AReceiveEndsWhenItsSenderFails) {
  for (const std::size_t bytes : {kOffered, kLongPiped}) {
    for (const int steps : {0, 1, 2, 1000}) {
      const Variables variables(bytes == kLongPiped ? kLongParts : decltype(kLongParts){});
      Pair pair;
      const std::vector<std::byte> data = pattern(bytes, 10);
      Receipt receipt(data.size());
      Receipt later(data.size());
      Outcome sent;
      pair.post(receipt, 5);
      pair.post(later, 6);
      pair.send(data, 5, &sent);
      for (int i = 0; i < steps; ++i) {
        pair.progress(kSender);
        pair.progress(kReceiver);
      }
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
}

TEST(Rendezvous, ASendEndsWhenItsReceiverFails) {
  for (const std::size_t bytes : {kOffered, kLongPiped}) {
    for (const int steps : {0, 1, 2}) {
      const Variables variables(bytes == kLongPiped ? kLongParts : decltype(kLongParts){});
      Pair pair;
      const std::vector<std::byte> data = pattern(bytes, 11);
      Receipt receipt(data.size());
      Outcome sent;
      pair.post(receipt, 5);
      pair.send(data, 5, &sent);
      for (int i = 0; i < steps; ++i) {
        pair.progress(kReceiver);
        pair.progress(kSender);
      }
      check(heddle_inproc_fail(pair.job.handle(), kReceiver));
      ASSERT_TRUE(pair.until({kSender}, [&] { return sent.times == 1; }));
      EXPECT_EQ(sent.status, HEDDLE_ERR_PEER_FAILED);
      check(heddle_inproc_fail(pair.job.handle(), kSender));
      pair.workers[kReceiver] = {};
    }
  }
}

// Both ways at once, many of them, of all lengths, with receives before and after.
TEST(Rendezvous, ManyOfThemEachWay) {
  Pair pair;
  constexpr std::size_t kMessages = 40;
  struct Side {
    std::vector<std::vector<std::byte>> data;
    std::deque<Outcome> sent;
    std::deque<Receipt> receipts;
  };
  std::array<Side, 2> sides;
  base::Random random(1);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    Side& side = sides.at(rank);
    for (std::size_t i = 0; i < kMessages; ++i) {
      side.data.push_back(pattern(std::size_t{1} << (6 + random.below(15)), i + rank));
      side.data.back().resize(side.data.back().size() - random.below(50));
      side.receipts.emplace_back(side.data.back().size());
      side.sent.emplace_back();
    }
  }
  const auto receive = [&](std::uint32_t rank, std::size_t i) {
    Receipt& receipt = sides.at(1 - rank).receipts.at(i);
    const heddle_completion completion = receipt.outcome.completion();
    const heddle_wanted wanted{{1 - rank, 0}, i, UINT64_MAX};
    const Status status = pair.workers[rank].try_recv(wanted, receipt.data, &receipt.receive, &completion);
    ASSERT_GE(status, 0) << heddle_last_error();
    if (status != HEDDLE_POSTED) receipt.outcome = {1, status};
  };
  for (std::size_t i = 0; i < kMessages; ++i) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      if (i % 3 == 0) receive(rank, i);
      Outcome& outcome = sides.at(rank).sent.at(i);
      const heddle_completion completion = outcome.completion();
      Status status = HEDDLE_AGAIN;
      for (int tries = 0; status == HEDDLE_AGAIN && tries < 200; ++tries) {
        status = heddle_send(pair.workers[rank].handle(), {1 - rank, 0}, i, sides.at(rank).data[i].data(),
                             sides.at(rank).data[i].size(), &completion);
      }
      ASSERT_GE(status, 0) << heddle_last_error();
      if (status == HEDDLE_DONE) outcome = {1, status};
      if (random.below(2) == 0) pair.progress(static_cast<std::uint32_t>(random.below(2)));
    }
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      if (i % 3 != 0) receive(rank, i);
    }
  }
  const auto ended = [](const Side& side) {
    return std::ranges::all_of(side.sent, [](const Outcome& outcome) { return outcome.times == 1; }) &&
           std::ranges::all_of(side.receipts, [](const Receipt& receipt) { return receipt.outcome.times == 1; });
  };
  ASSERT_TRUE(pair.until({0, 1}, [&] { return ended(sides[0]) && ended(sides[1]); }));
  for (const Side& side : sides) {
    for (std::size_t i = 0; i < kMessages; ++i) {
      EXPECT_EQ(side.sent[i].status, HEDDLE_DONE);
      EXPECT_EQ(side.receipts[i].outcome.status, HEDDLE_DONE);
      EXPECT_EQ(side.receipts[i].data, side.data[i]) << "message " << i;
    }
  }
}

// Each rank in a thread of its own, so that both copy at once; with helpers, a third and a fourth.
// A part that both believed to have got would be missing from the data, or end the receive with an
// error.
void send_and_receive_at_once(const char* progress) {
  const auto messages = base::few_if_sanitized<std::uint64_t>(150, 400);
  const Variables variables(std::vector<std::pair<const char*, const char*>>{{"HEDDLE_PROGRESS", progress}});
  const Job job(2, "shm");
  std::atomic<std::uint64_t> posted{0};
  job.run([&](Context& context, Worker& worker) {
    base::Random random(context.rank() + 1);
    for (std::uint64_t i = 0; i < messages && !testing::Test::HasFailure(); ++i) {
      const std::vector<std::byte> data = pattern(20'000 + i % 7 * 133'000, i);
      const std::uint64_t delay = random.below(1000);  // so that each is first sometimes
      const auto ready = [&] {
        for (std::uint64_t spin = 0; spin < delay; ++spin) base::cpu_relax();
      };
      if (context.rank() == kSender) {
        Outcome sent;
        const heddle_completion completion = sent.completion();
        // Mostly the receive is posted first; and mostly just before, so that it is a race who
        // copies.
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
  });
}

TEST(RendezvousStress, BothCopyAtOnce) {
  send_and_receive_at_once("none");
}

TEST(RendezvousStress, BothCopyAtOnceWithHelpers) {
  send_and_receive_at_once("adaptive");
}

// A receiver that does not look fills its pipe. What waits in the queue behind the next long
// message for it must go on, such as messages for others.
TEST(Rendezvous, ABusyPipeHoldsUpNoQueue) {
  const Variables variables(std::vector<std::pair<const char*, const char*>>{
      {"HEDDLE_SHARING", "offload"}, {"HEDDLE_PROGRESS", "none"}, {"HEDDLE_TAG_CREDIT_BYTES", "32M"}});
  const Job job(3, "shm");
  constexpr std::size_t kMessages = 12;  // more than the cells that one peer may have hold
  std::vector<Context> contexts;
  std::vector<Worker> workers;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    contexts.push_back(job.join(rank));
    heddle_worker_options options{};
    options.size = sizeof options;
    options.sharing = rank == 0 ? HEDDLE_SHARING_OFFLOAD : HEDDLE_SHARING_EXCLUSIVE;
    workers.push_back(contexts.back().open_worker(options));
  }
  const std::vector<std::byte> data = pattern(400'000, 1);
  std::array<Outcome, kMessages> sent;
  for (std::size_t i = 0; i < kMessages; ++i) {
    const heddle_completion completion = sent.at(i).completion();
    Status status = HEDDLE_AGAIN;
    ASSERT_TRUE(within_time([&] { return status != HEDDLE_AGAIN; },
                            [&] { status = workers[0].try_send({1, 0}, i, data, &completion); }));
    ASSERT_GE(status, 0) << heddle_last_error();
    if (status == HEDDLE_DONE) sent.at(i) = {1, status};
  }
  const std::uint64_t word = 7;
  std::uint64_t got = 0;
  heddle_receive receive{};
  ASSERT_GE(workers[2].try_recv({{0, 0}, 9, UINT64_MAX}, std::as_writable_bytes(std::span(&got, 1)), &receive), 0);
  ASSERT_GE(workers[0].try_send({2, 0}, 9, std::as_bytes(std::span(&word, 1))), 0);
  ASSERT_TRUE(within_time([&] { return receive.status == HEDDLE_DONE; }, [&] { turn(workers[2]); }))
      << "it waits behind a message that does not get on";
  EXPECT_EQ(got, word);
  for (std::size_t i = 0; i < kMessages; ++i) {
    std::vector<std::byte> room(data.size());
    heddle_receive one{};
    Status status = workers[1].try_recv({{0, 0}, i, UINT64_MAX}, room, &one);
    ASSERT_GE(status, 0) << heddle_last_error();
    ASSERT_TRUE(
        within_time([&] { return std::atomic_ref(one.status).load(std::memory_order_acquire) != HEDDLE_POSTED; },
                    [&] { turn(workers[1]); }));
    EXPECT_EQ(one.status, HEDDLE_DONE);
    EXPECT_EQ(room, data) << "message " << i;
  }
  ASSERT_TRUE(within_time(
      [&] {
        return std::ranges::all_of(
            sent, [](Outcome& one) { return std::atomic_ref(one.times).load(std::memory_order_acquire) == 1; });
      },
      [&] { turn(workers[1]); }));
  for (const Outcome& one : sent) EXPECT_EQ(one.status, HEDDLE_DONE);
  std::vector<std::thread> leaving;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    leaving.emplace_back([&, rank] {
      workers[rank] = {};
      contexts[rank] = {};
    });
  }
  for (std::thread& thread : leaving) thread.join();
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
  settings.emplace_back("HEDDLE_TAG_CREDIT_BYTES", "1M");
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
  for (const Side& side : sides) EXPECT_LT(side.begun, 30U);
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
    testing::Values(Setting{"shm", "shm", {}}, Setting{"shm_offered", "shm", {{"HEDDLE_TAG_EAGER_BYTES", "8K"}}},
                    Setting{"shm_bounce", "shm", {{"HEDDLE_SHM_CMA", "0"}}},
                    Setting{"loopback_messages", "loopback-messages", {}},
                    Setting{"offload", "shm", {{"HEDDLE_SHARING", "offload"}, {"HEDDLE_TAG_EAGER_BYTES", "8K"}}},
                    Setting{"delegate", "shm", {{"HEDDLE_SHARING", "delegate"}}}),
    name_of);

}  // namespace
}  // namespace heddle::test::tagged_rendezvous_test
