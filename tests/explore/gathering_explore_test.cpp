// The queue of a worker, whose consumer posts consecutive messages as one span (worker::Inbox,
// beside which the model here stands; the queue is the code itself). The transport is played by a
// thread: it takes k of n messages for every k, refuses, and takes again.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "expect.hpp"
#include "queue/command_queue.hpp"
#include "transport/transport.hpp"
#include "wire/packet.hpp"

namespace heddle::explore::gathering_explore_test {
namespace {

using transport::Completion;
using transport::Opcode;
using Message = transport::Command;

enum class Bug {
  none,
  prefix_posted_again,     // after a span was taken in part, all of it goes back to the queue
  refused_skipped,         // what was not taken does not go back
  span_released,           // what was not taken is released as well
  released_before_posted,  // a record is free before the transport has its message
  refused_overtaken,       // the consumer goes on behind a command that was refused
  started_too_early        // started() counts what the transport refused
};

// How many messages each producer posts, and which. Bit i is about message i: to which of the two
// peers it goes; whether it is one that is posted alone (two records).
struct Shape {
  std::uint32_t producers;
  std::uint32_t messages;  // of each producer
  std::uint32_t ticks;     // messages that the transport takes one by one, before it takes all
  std::uint32_t peers;
  std::uint32_t alone = 0;
  std::uint32_t records = 4;  // of the queue
  bool gives_up = false;      // a producer whom the full queue refuses leaves that message out
  bool queued = false;        // all stand in the queue before the consumer comes
};

// 1 and up: 0 is no message.
constexpr std::uint64_t number_of(std::uint32_t producer, std::uint32_t message) {
  return 100 * (producer + 1) + message;
}

// The arrivals at the two peers, checked as they come.
template <Shape kShape>
class Arrivals {
 public:
  void arrive(std::uint32_t peer, std::uint64_t number) {
    const auto producer = static_cast<std::uint32_t>(number / 100 - 1);
    const auto message = static_cast<std::uint32_t>(number % 100);
    check(producer < kShape.producers && message < kShape.messages, "the message is whole");
    check(peer == (kShape.peers >> message & 1), "each message comes to its peer");
    check(!here_[producer][message], "each message comes once");
    here_[producer][message] = true;
    for (std::uint32_t later = message + 1; later < kShape.messages; ++later) {
      check(!here_[producer][later], "a message comes before those that its thread posts later");
    }
    records_ += (kShape.alone >> message & 1) + 1;
  }
  [[nodiscard]] bool here(std::uint32_t producer, std::uint32_t message) const { return here_[producer][message]; }
  // Of the queue, that these messages had.
  [[nodiscard]] std::uint64_t records() const { return records_; }

 private:
  std::array<std::array<bool, kShape.messages>, kShape.producers> here_{};
  std::uint64_t records_ = 0;
};

// Each tick, of another thread, is room for one message more, and the end of one that it has taken
// before. `held`: its messages end later than they are taken.
template <Shape kShape>
class PlayedTransport final : public transport::TransportWorker {
 public:
  PlayedTransport(Atomic<std::uint32_t>& ticks, Arrivals<kShape>& arrivals, bool held)
      : ticks_(ticks), arrivals_(arrivals), held_(held) {}

  [[nodiscard]] std::size_t post(std::span<Message> batch) override {
    const std::uint32_t room = ticks_.load(std::memory_order_relaxed);
    std::size_t taken = 0;
    for (Message& message : batch) {
      if (taken_ == room) break;
      ++taken_;
      ++taken;
      take(message);
      message.done = message.source_free = !held_;
      if (held_) under_way_.push_back({taken_, message.token});
    }
    return taken;
  }
  [[nodiscard]] std::size_t poll(std::span<Completion> completions) override {
    if (under_way_.empty()) return 0;
    const std::uint32_t ticks = ticks_.load(std::memory_order_relaxed);
    std::size_t count = 0;
    while (count < completions.size() && !under_way_.empty() && under_way_.front().first < ticks) {
      completions[count] = Completion{};
      completions[count++].token = under_way_.front().second;
      under_way_.erase(under_way_.begin());
    }
    return count;
  }
  void peer_failed(std::uint32_t /*rank*/) override {}

 private:
  void take(const Message& message) {
    std::uint64_t number = 0;
    check(message.bytes >= sizeof number, "the message has its length");
    std::memcpy(&number, message.source(), sizeof number);
    arrivals_.arrive(message.rank, number);
  }

  Atomic<std::uint32_t>& ticks_;
  Arrivals<kShape>& arrivals_;
  const bool held_;
  std::uint32_t taken_ = 0;
  std::vector<std::pair<std::uint32_t, transport::Token>> under_way_;
};

// The transport, and the number of messages that have not ended, as Operations counts them.
template <Shape kShape>
class Outlet {
 public:
  Outlet(Atomic<std::uint32_t>& ticks, Arrivals<kShape>& arrivals, bool held) : transport_(ticks, arrivals, held) {}

  std::size_t post(std::span<Message> batch) {
    const std::size_t taken = transport_.post(batch);
    for (const Message& message : batch.first(taken)) {
      check(!message.done || message.source_free, "an end frees the source");
      if (!message.done) ++under_way_;
    }
    for (const Message& message : batch.subspan(taken)) {
      check(!message.done && !message.source_free, "AGAIN has no effect on the command");
    }
    return taken;
  }
  // Number of events.
  std::size_t poll() {
    std::array<Completion, 3> completions;
    const std::size_t count = transport_.poll(completions);
    for (const Completion& completion : std::span(completions).first(count)) {
      check(completion.token > 0, "the end of a message");
      check(under_way_ != 0, "no message ends twice");
      --under_way_;
    }
    return count;
  }
  // Operations::quiet()
  [[nodiscard]] bool quiet() const { return under_way_ == 0; }
  static Message message(std::uint64_t number) {
    Message message(kShape.peers >> number % 100 & 1, 0, wire::encode_am(1, 0));
    message.set_message(nullptr, 0, &number, sizeof number);
    message.token = number;
    return message;
  }

 private:
  PlayedTransport<kShape> transport_;
  std::uint64_t under_way_ = 0;
};

constexpr std::uint32_t kAll = 1000;  // ticks: the transport refuses nothing more

struct Body {
  Plain<std::uint64_t> value;
};

// ---- the queue and its consumer -----------------------------------------------------------------

// Producers leave messages in the queue; the consumer drains it, makes progress and asks for quiet,
// as the executor of a worker in offload mode does.
template <Bug kBug, Shape kShape, bool kHeld>
struct InboxModel final : Model {
  using Queue = queue::CommandQueue<Body, Atomic>;
  using Queued = typename Queue::Command;
  static constexpr std::size_t kBatch = 3;  // Inbox::kBatch

  Queue queue_{kShape.records};
  Atomic<std::uint32_t> ticks{0};
  Atomic<std::uint32_t> over{0};  // producers that have posted all
  Arrivals<kShape> arrivals;
  Outlet<kShape> outlet{ticks, arrivals, kHeld};
  bool stalled_ = false;
  std::uint64_t started_ = 0;
  Queued overtaker_{};  // planted: has been started, and stands in the queue
  // each by its producer
  std::array<std::array<bool, kShape.messages>, kShape.producers> put_here{};

  InboxModel() {
    ticks.name("the transport's room");
    over.name("producers that are over");
    if (!kShape.queued) return;
    for (std::uint32_t i = 0; i < kShape.messages; ++i) {
      for (std::uint32_t producer = 0; producer < kShape.producers; ++producer) {
        put_here[producer][i] = put(number_of(producer, i));
      }
    }
    over.store(kShape.producers);
  }
  [[nodiscard]] std::uint32_t threads() const override { return kShape.queued ? 2 : kShape.producers + 2; }
  void run(std::uint32_t thread) override {
    if (thread == threads() - 2) return consume();
    if (thread != threads() - 1) return produce(thread);
    for (std::uint32_t i = 0; i < kShape.ticks; ++i) ticks.fetch_add(1, std::memory_order_relaxed);
    ticks.store(kAll);
  }

  static bool alone(std::uint64_t number) { return (kShape.alone >> number % 100 & 1) != 0; }

  void produce(std::uint32_t self) {
    for (std::uint32_t i = 0; i < kShape.messages; ++i) {
      bool in = put(number_of(self, i));
      while (!in && !kShape.gives_up) {
        pause();
        in = put(number_of(self, i));
      }
      put_here[self][i] = in;
    }
    over.fetch_add(1, std::memory_order_release);
  }
  // Inbox::put(); false: AGAIN
  bool put(std::uint64_t number) {
    const std::uint32_t records = alone(number) ? 2 : 1;
    const Queued claimed = queue_.claim(records);
    if (!claimed) return false;
    for (std::uint32_t i = 0; i < records; ++i) queue_.body(claimed, i).value.store(number);
    static_cast<void>(queue_.publish(claimed));
    return true;
  }

  void consume() {
    for (;;) {
      const bool all = over.load(std::memory_order_acquire) == kShape.producers;
      const std::size_t moved = drain() + outlet.poll();
      if (moved != 0) continue;
      if (quiet() && all) return;
      pause();
    }
  }
  // Worker::try_quiet(), Gate::after_queued()
  bool quiet() {
    const std::uint64_t target = queue_.claimed();
    if (started_ < target) drain();
    if (started_ < target || !outlet.quiet()) return false;
    check(arrivals.records() >= target, "nothing stays behind when quiet says DONE");
    return true;
  }

  // Inbox::drain()
  std::size_t drain() {
    std::size_t started = 0;
    Queued queued;
    std::size_t most = std::exchange(stalled_, false) ? 1 : kBatch;
    while (started < kBatch && queue_.take(&queued)) {
      if (kBug == Bug::refused_overtaken) {
        most = 1;
        if (overtaker_ && overtaker_.position == queued.position) {
          started_ = queued.end();
          queue_.release(queued);
          overtaker_ = {};
          continue;
        }
      }
      if (const std::size_t posted = post_run(queued, std::min(most, kBatch - started)); posted != 0) {
        started += posted;
        most = kBatch;
        continue;
      }
      started_ = queued.end();
      if (!execute(queued)) {
        if (kBug != Bug::started_too_early) started_ = queued.position;
        stalled_ = true;
        if (kBug == Bug::refused_overtaken && overtake(queued)) continue;
        queue_.put_back(queued.position);
        break;
      }
      queue_.release(queued);
      ++started;
      most = kBatch;
    }
    return started;
  }
  // Inbox::read_prepared(); the message itself only where it is one of one record
  bool read_prepared(const Queued& queued, Message* message) {
    if (queued.records != 1) return false;
    *message = Outlet<kShape>::message(queue_.body(queued).value.load());
    return true;
  }
  // Inbox::post_run()
  std::size_t post_run(const Queued& first, std::size_t most) {
    std::array<Message, kBatch> room;
    std::size_t count = 0;
    for (Queued queued = first; read_prepared(queued, &room[count]);) {
      if (++count == most || !queue_.take(&queued)) break;
    }
    if (count == 0) return 0;
    if (kBug == Bug::released_before_posted) queue_.release({first.position, static_cast<std::uint32_t>(count)});
    const std::size_t posted = outlet.post(std::span(room).first(count));
    const std::size_t gone = kBug == Bug::span_released && posted != 0 ? count : posted;
    const Queued done{first.position, static_cast<std::uint32_t>(gone)};
    if (kBug == Bug::prefix_posted_again && posted < count) {
      queue_.put_back(first.position);
      return posted;
    }
    if (kBug != Bug::refused_skipped) queue_.put_back(posted == 0 ? first.end() : done.end());
    if (posted == 0) return 0;
    started_ = done.end();
    if (kBug != Bug::released_before_posted) queue_.release(done);
    return posted;
  }
  // Inbox::execute(), run_message(); false: AGAIN
  bool execute(const Queued& queued) {
    const std::uint64_t number = queue_.body(queued).value.load();
    check(queued.records == 1 || queue_.body(queued, 1).value.load() == number, "the command is whole");
    Message message = Outlet<kShape>::message(number);
    return outlet.post({&message, 1}) == 1;
  }
  // Planted: the next one is started before the refused one.
  bool overtake(const Queued& refused) {
    Queued next;
    if (overtaker_ || !queue_.take(&next)) return false;
    if (execute(next)) overtaker_ = next;
    queue_.put_back(refused.position);
    return bool(overtaker_);
  }

  void finish() override {
    for (std::uint32_t producer = 0; producer < kShape.producers; ++producer) {
      for (std::uint32_t i = 0; i < kShape.messages; ++i) {
        check(arrivals.here(producer, i) == put_here[producer][i], "a message comes if its post did not say AGAIN");
      }
    }
    check(queue_.executed() == queue_.claimed() && started_ == queue_.claimed(), "all is started");
  }
};

// Messages of each producer to the one peer and to the other in turn.
constexpr std::uint32_t kInTurn = 0b101010;

constexpr Shape kOneByTwo{1, 2, 1, 0};
constexpr Shape kOneByThree{1, 3, 2, kInTurn};
constexpr Shape kOneByThreeFull{1, 3, 1, kInTurn, 0, 2};
constexpr Shape kOneByThreeGivesUp{1, 3, 1, kInTurn, 0, 2, true};
constexpr Shape kTwoByOne{2, 1, 1, 0};
constexpr Shape kTwoByOneFull{2, 1, 1, 0, 0b1, 2};
constexpr Shape kTwoByTwo{2, 2, 2, kInTurn};
constexpr Shape kTwoByTwoAlone{2, 2, 1, 0, 0b10};
constexpr Shape kQueued{2, 2, 3, kInTurn, 0, 4, false, true};
constexpr Shape kQueuedAlone{2, 2, 2, 0, 0b01, 8, false, true};
constexpr Shape kQueuedOfOne{1, 4, 2, 0, 0, 4, false, true};

// All schedules of producers, consumer and transport are more than there is time for: the larger
// cases are bounded in their preemptions. What stands in the queue already meets every k of n.
constexpr Options kBounded{.weak = false, .preemptions = 2};

template <Shape kShape, bool kHeld>
using Inboxes = InboxModel<Bug::none, kShape, kHeld>;

TEST(GatheringInTheQueue, HoldsForEveryPartThatIsTaken) {
  expect_holds<Inboxes<kQueued, false>>("4 queued", kInterleaved);
  expect_holds<Inboxes<kQueued, true>>("4 queued, ended later", kInterleaved);
  expect_holds<Inboxes<kQueuedAlone, true>>("4 queued, some alone", kInterleaved);
}

TEST(GatheringInTheQueue, HoldsWhileProducersPost) {
  expect_holds<Inboxes<kOneByTwo, false>>("2 messages", kInterleaved);
  expect_holds<Inboxes<kOneByThree, true>>("3 messages", kBounded);
  expect_holds<Inboxes<kOneByThreeFull, true>>("3 messages, full", kBounded);
  expect_holds<Inboxes<kOneByThreeGivesUp, true>>("3 messages, full, left out", kBounded);
  expect_holds<Inboxes<kTwoByOne, true>>("2 producers", kBounded);
  expect_holds<Inboxes<kTwoByOneFull, true>>("2 producers, full, alone", kBounded);
  expect_holds<Inboxes<kTwoByTwo, false>>("2 producers of 2", kBounded);
  expect_holds<Inboxes<kTwoByTwoAlone, true>>("2 producers of 2, some alone", kBounded);
}

TEST(GatheringInTheQueue, PlantedBugsAreFound) {
  expect_finds<InboxModel<Bug::prefix_posted_again, kQueued, false>>("the part that was taken is posted again",
                                                                     kInterleaved, "comes once");
  expect_finds<InboxModel<Bug::refused_skipped, kQueued, false>>("what was refused is left out", kInterleaved,
                                                                 "for ever");
  expect_finds<InboxModel<Bug::span_released, kQueued, false>>("the whole span is released", kInterleaved,
                                                               "nothing stays behind");
  expect_finds<InboxModel<Bug::released_before_posted, kOneByThreeFull, false>>("released before it is posted",
                                                                                kBounded, "race");
  expect_finds<InboxModel<Bug::refused_overtaken, kQueuedOfOne, false>>("a refused message is overtaken", kInterleaved,
                                                                        "before those that its thread posts later");
  expect_finds<InboxModel<Bug::started_too_early, kQueued, false>>("a refused message counts as started", kInterleaved,
                                                                   "nothing stays behind");
}

}  // namespace
}  // namespace heddle::explore::gathering_explore_test
