// The queue of a worker: in which form commands wait there, and how they leave it. The transport's
// mailboxes are full at a moment that the test chooses.
#include "worker/inbox.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "worker/context.hpp"
#include "worker/worker.hpp"

namespace heddle::worker::inbox_test {
namespace {

using transport::Command;

constexpr std::uint32_t kNumbered = 1;  // handlers
constexpr std::uint32_t kFilling = 2;

struct Rank {
  Rank(bootstrap::inproc::ThreadJob* job, std::uint32_t rank, std::size_t workers_opened) {
    auto joined = Context::join({{"inproc", job, rank}, "loopback", "none"});
    EXPECT_TRUE(joined.ok()) << base::last_message();
    context = std::move(*joined);
    while (workers.size() < workers_opened) workers.push_back(*context->open_worker({}));
  }
  std::unique_ptr<Context> context;
  std::vector<Worker*> workers;
};

struct Told {
  int times = 0;
  base::Status status = HEDDLE_AGAIN;
  [[nodiscard]] engine::CallersCompletion completion(engine::OperationCounter* counter = nullptr) {
    const auto note = [](void* arg, heddle_status ended) {
      auto* self = static_cast<Told*>(arg);
      ++self->times;
      self->status = ended;
    };
    return {note, this, counter, HEDDLE_WHEN_REMOTE};
  }
};

class InboxTest : public testing::Test {
 protected:
  InboxTest() {
    const auto number = [](const heddle_am_arrival* arrival, void* arg) {
      std::uint64_t value = 0;
      std::memcpy(&value, arrival->payload, sizeof value);
      static_cast<std::vector<std::uint64_t>*>(arg)->push_back(value);
    };
    theirs.context->register_handler(kNumbered, {number, &arrived});
    theirs.context->register_handler(kFilling, {[](const heddle_am_arrival*, void*) {}, nullptr});
  }

  // A message to a worker of rank 1. Its payload begins with the number, and stays until the test
  // ends.
  Command message(std::uint64_t number, std::uint32_t to = 0, std::size_t bytes = 8) {
    sources_.push_back(std::make_unique<std::vector<std::uint64_t>>((bytes + 7) / 8, number));
    Command command(1, to, wire::encode_am(kNumbered, 0));
    command.set_message(nullptr, 0, sources_.back()->data(), bytes);
    return command;
  }
  // Makes that worker of rank 1 have room for so many messages.
  void leave_room(std::size_t room, std::uint32_t to = 0) {
    take_all();
    const std::uint64_t word = 0;
    std::size_t filled = 0;
    const auto fill = [&] {
      Command command(1, to, wire::encode_am(kFilling, 0));
      command.set_message(nullptr, 0, &word, sizeof word);
      return mine.workers[0]->post(command, engine::kNoCompletion) == HEDDLE_DONE;
    };
    if (mailbox_ == 0) {
      while (fill()) ++mailbox_;
      take_all();
    }
    for (; filled < mailbox_ - room; ++filled) ASSERT_TRUE(fill());
  }
  // Rank 1 takes the messages that have arrived.
  void take_all() {
    for (Worker* worker : theirs.workers) {
      while (worker->progress() > 0) {
      }
    }
  }
  void drain_to_the_end() {
    ASSERT_TRUE(test::within_time([&] { return !inbox.queued(); },
                                  [&] {
                                    static_cast<void>(inbox.drain(false));
                                    take_all();
                                  }));
    take_all();
  }
  [[nodiscard]] static std::vector<std::uint64_t> up_to(std::uint64_t count) {
    std::vector<std::uint64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  bootstrap::inproc::ThreadJob job{2};
  std::vector<std::uint64_t> arrived;
  std::vector<std::unique_ptr<std::vector<std::uint64_t>>> sources_;
  std::size_t mailbox_ = 0;  // messages
  Rank mine{&job, 0, 1};
  Rank theirs{&job, 1, 2};
  Inbox inbox{*mine.workers[0], 16, nullptr};
};

// ---- what is posted together --------------------------------------------------------------------

TEST_F(InboxTest, OfASpanEachPartMayBeTaken) {
  constexpr std::size_t kMessages = 6;
  for (std::size_t room = 0; room <= kMessages; ++room) {
    arrived.clear();
    leave_room(room);
    const std::uint64_t before = inbox.started();
    for (std::uint64_t i = 0; i < kMessages; ++i) ASSERT_EQ(inbox.put(message(i), engine::kNoCompletion), HEDDLE_DONE);
    EXPECT_EQ(inbox.drain(false), room);
    EXPECT_EQ(inbox.stalled(), room < kMessages);
    EXPECT_EQ(inbox.started() - before, room);
    EXPECT_EQ(inbox.records(), kMessages - room);
    EXPECT_EQ(inbox.ready(), room < kMessages) << "what was not taken is there";
    if (room < kMessages) {
      EXPECT_EQ(inbox.drain(false), 0U);
      EXPECT_TRUE(inbox.stalled());
    }
    take_all();
    EXPECT_EQ(arrived, up_to(room));
    EXPECT_EQ(inbox.drain(false), kMessages - room) << "the first alone, then the rest together";
    EXPECT_FALSE(inbox.stalled());
    EXPECT_FALSE(inbox.queued());
    EXPECT_EQ(inbox.started() - before, kMessages);
    take_all();
    EXPECT_EQ(arrived, up_to(kMessages)) << "each once, in order";
  }
}

TEST_F(InboxTest, WhatIsRefusedHoldsUpWhatIsBehindItToAnyPeer) {
  leave_room(1);
  for (std::uint64_t i = 0; i < 6; ++i) {
    ASSERT_EQ(inbox.put(message(i, i < 2 ? 0 : 1), engine::kNoCompletion), HEDDLE_DONE);
  }
  EXPECT_EQ(inbox.drain(false), 1U);
  static_cast<void>(theirs.workers[1]->progress());
  EXPECT_EQ(arrived, up_to(0)) << "the other worker has room, and its messages are behind";
  drain_to_the_end();
  EXPECT_EQ(arrived.size(), 6U);
}

TEST_F(InboxTest, AVisitStartsNoMoreThanABatch) {
  Inbox large(*mine.workers[0], 128, nullptr);
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_EQ(large.put(message(i), engine::kNoCompletion), HEDDLE_DONE);
  EXPECT_EQ(large.drain(false), 64U);
  EXPECT_FALSE(large.stalled());
  take_all();
  EXPECT_EQ(large.drain(false), 36U);
  take_all();
  EXPECT_EQ(arrived, up_to(100));
}

// Every form in which a message waits, between others, so that spans begin and end at each.
TEST_F(InboxTest, MessagesOfEveryFormKeepTheirOrderForEveryRoom) {
  constexpr std::array<std::size_t, 6> kLengths{8, 24, 32, 40, 1000, 2000};
  for (std::size_t room = 0; room <= 2 * kLengths.size(); ++room) {
    arrived.clear();
    leave_room(room);
    Told told;
    std::uint64_t number = 0;
    for (const std::size_t bytes : kLengths) {
      for (const bool notifies : {false, true}) {
        const bool copied = bytes <= Inbox::kMostCopied;
        const base::Status status =
            inbox.put(message(number++, 0, bytes), notifies ? told.completion() : engine::kNoCompletion);
        if (status == HEDDLE_AGAIN) {  // full: a queued message would arrive, and this one did not
          drain_to_the_end();
          ASSERT_EQ(inbox.put(message(number - 1, 0, bytes), notifies ? told.completion() : engine::kNoCompletion),
                    copied && !notifies ? HEDDLE_DONE : HEDDLE_POSTED);
          continue;
        }
        ASSERT_EQ(status, copied && !notifies ? HEDDLE_DONE : HEDDLE_POSTED) << bytes;
      }
    }
    drain_to_the_end();
    EXPECT_EQ(arrived, up_to(2 * kLengths.size())) << room;
    EXPECT_EQ(told.times, static_cast<int>(kLengths.size()));
    EXPECT_EQ(told.status, HEDDLE_DONE);
  }
}

// With its completion it takes one record, as the messages that are posted together.
TEST_F(InboxTest, OfAnEmptyMessageSomebodyIsTold) {
  Told told;
  Command command(1, 0, wire::encode_am(kFilling, 0));
  command.set_message(nullptr, 0, nullptr, 0);
  ASSERT_EQ(inbox.put(message(0), engine::kNoCompletion), HEDDLE_DONE);
  ASSERT_EQ(inbox.put(command, told.completion()), HEDDLE_POSTED);
  ASSERT_EQ(inbox.put(message(1), engine::kNoCompletion), HEDDLE_DONE);
  EXPECT_EQ(inbox.records(), 3U);
  EXPECT_EQ(inbox.drain(false), 3U);
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.status, HEDDLE_DONE);
  take_all();
  EXPECT_EQ(arrived, up_to(2));
}

TEST_F(InboxTest, ACopiedMessageIsTheQueuesAndALongOneTheCallers) {
  std::vector<std::uint64_t> source(256, 7);
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1024}, std::size_t{1032}}) {
    arrived.clear();
    Command command(1, 0, wire::encode_am(kNumbered, 0));
    command.set_message(nullptr, 0, source.data(), bytes);
    EXPECT_EQ(inbox.copies(command), bytes <= 1024);
    ASSERT_GE(inbox.put(command, engine::kNoCompletion), HEDDLE_DONE);
    source[0] = 8;
    drain_to_the_end();
    EXPECT_EQ(arrived, (std::vector<std::uint64_t>{bytes <= 1024 ? 7U : 8U})) << bytes;
    source[0] = 7;
  }
}

TEST_F(InboxTest, AFullQueueSaysAgainAndNothingHappened) {
  std::uint64_t put = 0;
  while (inbox.put(message(put), engine::kNoCompletion) == HEDDLE_DONE) ++put;
  EXPECT_GE(put, 16U);
  EXPECT_EQ(inbox.records(), put);
  Told told;
  EXPECT_EQ(inbox.put(message(1000), told.completion()), HEDDLE_AGAIN);
  EXPECT_EQ(inbox.put(message(1001, 0, 1000), engine::kNoCompletion), HEDDLE_AGAIN);
  EXPECT_EQ(inbox.put(CallStart{[](void*) {}, nullptr, 0, told.completion()}), HEDDLE_AGAIN);
  EXPECT_EQ(inbox.records(), put);
  EXPECT_EQ(inbox.claimed(), put);
  drain_to_the_end();
  EXPECT_EQ(arrived, up_to(put));
  EXPECT_EQ(told.times, 0);
  EXPECT_EQ(inbox.put(message(put), engine::kNoCompletion), HEDDLE_DONE);
  drain_to_the_end();
  EXPECT_EQ(arrived, up_to(put + 1));
}

// ---- puts and gets, and other starts ------------------------------------------------------------

TEST_F(InboxTest, PutsAndGetsWaitAndKeepTheirCompletions) {
  std::array<std::uint64_t, 8> memory{};
  auto region = theirs.context->objects().open_region(memory.data(), sizeof memory);
  ASSERT_TRUE(region.ok()) << base::last_message();
  auto imported = mine.context->objects().import(theirs.context->objects().pack(**region));
  ASSERT_TRUE(imported.ok()) << base::last_message();
  engine::RemoteRegion& remote = **imported;
  auto opened = mine.context->objects().open_counter(0, false);
  ASSERT_TRUE(opened.ok());
  engine::OperationCounter& counter = **opened;

  std::array<std::uint64_t, 8> local{};
  const auto block = [&](engine::Kind kind, std::size_t word) {
    return engine::BlockTransfer{kind, reinterpret_cast<std::byte*>(&local[word]), 8, &remote, 8 * word};
  };
  Told told;
  Told both;
  for (std::size_t i = 0; i < 4; ++i) local[i] = 10 + i;
  EXPECT_EQ(inbox.put(block(engine::Kind::put, 0), engine::kNoCompletion), HEDDLE_POSTED);
  EXPECT_EQ(inbox.put(block(engine::Kind::put, 1), told.completion()), HEDDLE_POSTED);
  EXPECT_EQ(inbox.put(block(engine::Kind::put, 2), {nullptr, nullptr, &counter, HEDDLE_WHEN_LOCAL}), HEDDLE_POSTED);
  EXPECT_EQ(inbox.put(block(engine::Kind::put, 3), both.completion(&counter)), HEDDLE_POSTED)
      << "takes several records";
  memory[4] = 14;
  EXPECT_EQ(inbox.put(block(engine::Kind::get, 4), engine::kNoCompletion), HEDDLE_POSTED);
  EXPECT_EQ(inbox.put(message(0), engine::kNoCompletion), HEDDLE_DONE);
  EXPECT_EQ(memory[0], 0U) << "nothing has been started";
  EXPECT_EQ(told.times + both.times, 0);
  EXPECT_EQ(inbox.drain(false), 6U);
  EXPECT_EQ(memory, (std::array<std::uint64_t, 8>{10, 11, 12, 13, 14}));
  EXPECT_EQ(local[4], 14U);
  EXPECT_EQ(told.times, 1) << "it was done at once, and its caller had been told POSTED";
  EXPECT_EQ(both.times, 1);
  EXPECT_EQ(counter.value(), 2U);
  drain_to_the_end();
  EXPECT_EQ(arrived, up_to(1));

  // A region that is released while its put waits.
  remote.closed = true;
  EXPECT_EQ(inbox.put(block(engine::Kind::put, 0), told.completion()), HEDDLE_POSTED);
  EXPECT_EQ(inbox.put(block(engine::Kind::put, 0), engine::kNoCompletion), HEDDLE_POSTED);
  EXPECT_EQ(inbox.put(message(1), engine::kNoCompletion), HEDDLE_DONE);
  EXPECT_EQ(inbox.drain(false), 3U) << "errors hold up nothing";
  EXPECT_EQ(told.times, 2);
  EXPECT_EQ(told.status, HEDDLE_ERR_HANDLE);
  EXPECT_EQ(mine.workers[0]->try_quiet(), HEDDLE_ERR_HANDLE);
  take_all();
  EXPECT_EQ(arrived, up_to(2));
  remote.closed = false;
}

TEST_F(InboxTest, WhatIsCancelledEndsUnstarted) {
  Told told;
  bool called = false;
  EXPECT_EQ(inbox.put(message(0), told.completion()), HEDDLE_POSTED);
  EXPECT_EQ(inbox.put(message(1, 0, 1000), told.completion()), HEDDLE_POSTED);
  EXPECT_EQ(inbox.put(CallStart{[](void* arg) { *static_cast<bool*>(arg) = true; }, &called, 0, told.completion()}),
            HEDDLE_POSTED);
  EXPECT_EQ(inbox.put(message(2), engine::kNoCompletion), HEDDLE_DONE);
  inbox.cancel_all(HEDDLE_ERR_CANCELLED);
  EXPECT_EQ(told.times, 3);
  EXPECT_EQ(told.status, HEDDLE_ERR_CANCELLED);
  EXPECT_FALSE(called);
  EXPECT_FALSE(inbox.queued());
  EXPECT_EQ(mine.workers[0]->try_quiet(), HEDDLE_ERR_CANCELLED) << "of the one that nobody is told of";
  take_all();
  EXPECT_EQ(arrived, up_to(0));
}

TEST_F(InboxTest, CallsRunInTheirTurn) {
  std::vector<std::uint64_t> seen;
  struct Call {
    const Inbox* inbox;
    std::vector<std::uint64_t>* seen;
  } call{&inbox, &seen};
  const auto look = [](void* arg) {
    const auto* self = static_cast<Call*>(arg);
    self->seen->push_back(self->inbox->started());
  };
  Told told;
  EXPECT_EQ(inbox.put(message(0), engine::kNoCompletion), HEDDLE_DONE);
  EXPECT_EQ(inbox.put(CallStart{look, &call, 0, told.completion()}), HEDDLE_POSTED);
  EXPECT_EQ(inbox.put(message(1), engine::kNoCompletion), HEDDLE_DONE);
  EXPECT_EQ(inbox.drain(false), 3U);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_GT(seen[0], 1U) << "it counts as started itself";
  EXPECT_LT(seen[0], inbox.started());
  EXPECT_EQ(told.times, 1);
}

// ---- several producers --------------------------------------------------------------------------

TEST_F(InboxTest, ProducersKeepTheirOrderWhileTheMailboxIsFullNowAndThen) {
  constexpr std::uint64_t kEach = 5000;
  constexpr std::uint64_t kProducer = 1'000'000;
  std::atomic<int> over{0};
  std::vector<std::thread> producers;
  for (std::uint64_t producer = 0; producer < 2; ++producer) {
    producers.emplace_back([&, producer] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        // Commands of one record, and of several: the former are posted in spans, the latter alone.
        const std::array<std::uint64_t, 12> words{producer * kProducer + i};
        Command command(1, static_cast<std::uint32_t>(i & 1), wire::encode_am(kNumbered, 0));
        command.set_message(nullptr, 0, words.data(), i % 7 == 0 ? sizeof words : 8);
        while (inbox.put(command, engine::kNoCompletion) == HEDDLE_AGAIN) std::this_thread::yield();
      }
      over.fetch_add(1, std::memory_order_release);
    });
  }
  std::uint64_t stalls = 0;
  EXPECT_TRUE(test::within_time([&] { return over.load(std::memory_order_acquire) == 2 && !inbox.queued(); },
                                [&] {
                                  static_cast<void>(inbox.drain(false));
                                  // Nothing is taken before a mailbox is full.
                                  if (!inbox.stalled()) return;
                                  ++stalls;
                                  take_all();
                                }));
  for (std::thread& producer : producers) producer.join();
  take_all();
  EXPECT_EQ(arrived.size(), 2 * kEach);
  std::array<std::array<std::uint64_t, 2>, 2> last{};
  std::array<std::uint64_t, 2> count{};
  for (const std::uint64_t value : arrived) {
    const std::uint64_t producer = value / kProducer;
    const std::uint64_t number = value % kProducer;
    ASSERT_LT(producer, 2U);
    std::uint64_t& before = last[producer][number & 1];
    ASSERT_GE(number + 1, before + 1) << "in the order of its producer";
    ASSERT_TRUE(number > before || number < 2) << "once";
    before = number;
    ++count[producer];
  }
  EXPECT_EQ(count[0], kEach);
  EXPECT_EQ(count[1], kEach);
  EXPECT_GE(stalls, 10U);
}

}  // namespace
}  // namespace heddle::worker::inbox_test
