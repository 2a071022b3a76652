// The places where messages gather on their way to the transport: the queue of a worker, whose
// consumer posts consecutive messages as one span (worker::Inbox, beside which the model here
// stands; the
// queue is the code itself), and the packets of engine::Aggregator (the code itself). The transport
// is played by a thread: it takes k of n messages for every k, refuses, and takes again.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/aggregator.hpp"
#include "expect.hpp"
#include "queue/command_queue.hpp"
#include "queue/locks.hpp"

namespace heddle::explore::gathering_explore_test {
namespace {

using engine::Aggregator;
using transport::Completion;
using transport::Opcode;
using Message = transport::Command;

enum class Bug {
  none,
  // of the queue's consumer
  prefix_posted_again,     // after a span was taken in part, all of it goes back to the queue
  refused_skipped,         // what was not taken does not go back
  span_released,           // what was not taken is released as well
  released_before_posted,  // a record is free before the transport has its message
  refused_overtaken,       // the consumer goes on behind a command that was refused
  started_too_early,       // started() counts what the transport refused
  // of what stands between the consumer and the transport
  refused_with_effect,      // AGAIN, though the packet has the message
  packet_overtaken,         // a message goes to the transport while a packet to its peer waits
  flush_forgets_last_peer,  // progress offers the packets to all peers but one
  end_of_packet_told_once,  // only the first message of a packet ends
  copied_is_ended           // quiet does not wait for messages that were copied
};

// How many messages each producer posts, and which. Bit i is about message i: to which of the two
// peers it goes; whether it is one that is posted alone (two records); whether it is too long for a
// packet.
struct Shape {
  std::uint32_t producers;
  std::uint32_t messages;  // of each producer
  std::uint32_t ticks;     // messages that the transport takes one by one, before it takes all
  std::uint32_t peers;
  std::uint32_t alone = 0;
  std::uint32_t records = 4;  // of the queue
  bool gives_up = false;      // a producer whom the full queue refuses leaves that message out
  bool queued = false;        // all stand in the queue before the consumer comes
  std::uint32_t too_long = alone;
};

// 1 and up: 0 is no message.
constexpr std::uint64_t number_of(std::uint32_t producer, std::uint32_t message) {
  return 100 * (producer + 1) + message;
}

// The arrivals at the two peers, checked as they come.
template <Shape kShape>
class Arrivals {
 public:
  // `everywhere`: the order of a producer's messages holds across its peers, too.
  explicit Arrivals(bool everywhere) : everywhere_(everywhere) {}

  void arrive(std::uint32_t peer, std::uint64_t number) {
    const auto producer = static_cast<std::uint32_t>(number / 100 - 1);
    const auto message = static_cast<std::uint32_t>(number % 100);
    check(producer < kShape.producers && message < kShape.messages, "the message is whole");
    check(peer == (kShape.peers >> message & 1), "each message comes to its peer");
    check(!here_[producer][message], "each message comes once");
    here_[producer][message] = true;
    for (std::uint32_t later = message + 1; later < kShape.messages; ++later) {
      const bool ordered = everywhere_ || (kShape.peers >> later & 1) == peer;
      check(!ordered || !here_[producer][later], "a message comes before those that its thread posts later");
    }
    records_ += (kShape.alone >> message & 1) + 1;
  }
  [[nodiscard]] bool here(std::uint32_t producer, std::uint32_t message) const { return here_[producer][message]; }
  // Of the queue, that these messages had.
  [[nodiscard]] std::uint64_t records() const { return records_; }

 private:
  const bool everywhere_;
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
    seen = room;
    std::size_t taken = 0;
    for (Message& message : batch) {
      if (taken_ == room || message.rank == deaf_to) break;
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

  static constexpr std::uint32_t kNobody = 2;
  std::uint32_t deaf_to = kNobody;
  std::uint32_t seen = 0;  // ticks, by the last post()

 private:
  void take(const Message& message) {
    const auto* bytes = static_cast<const std::byte*>(message.source());
    if (wire::kind_of(message.immediate) != wire::Kind::packet) return arrive(message.rank, {bytes, message.bytes});
    const std::span<const std::byte> packet(bytes, message.bytes);
    check(engine::well_formed_packet(packet), "packets are well formed");
    engine::PacketReader reader(packet);
    while (const auto one = reader.next()) arrive(message.rank, one->bytes);
  }
  void arrive(std::uint32_t peer, std::span<const std::byte> bytes) {
    std::uint64_t number = 0;
    check(bytes.size() >= sizeof number, "the message has its length");
    std::memcpy(&number, bytes.data(), sizeof number);
    arrivals_.arrive(peer, number);
  }

  Atomic<std::uint32_t>& ticks_;
  Arrivals<kShape>& arrivals_;
  const bool held_;
  std::uint32_t taken_ = 0;
  std::vector<std::pair<std::uint32_t, transport::Token>> under_way_;
};

// The target of posts: the transport, or the aggregator before it; and the number of messages that
// have not ended, as Operations counts them.
template <Bug kBug, Shape kShape>
class Outlet {
 public:
  Outlet(Atomic<std::uint32_t>& ticks, Arrivals<kShape>& arrivals, bool aggregates, bool held)
      : transport_(new PlayedTransport<kShape>(ticks, arrivals, held)), aggregates_(aggregates) {
    if (aggregates_) {
      aggregator_ = std::make_unique<Aggregator>(std::unique_ptr<transport::TransportWorker>(transport_), kPacketBytes);
    } else {
      own_.reset(transport_);
    }
  }

  std::size_t post(std::span<Message> batch) {
    const std::size_t taken = hand_on(batch);
    for (const Message& message : batch.first(taken)) {
      check(!message.done || message.source_free, "an end frees the source");
      const bool ended = kBug == Bug::copied_is_ended ? message.source_free : message.done;
      if (!ended) ++under_way_;
    }
    for (const Message& message : batch.subspan(taken)) {
      check(!message.done && !message.source_free, "AGAIN has no effect on the command");
    }
    return taken;
  }
  // Number of events.
  std::size_t poll() {
    std::array<Completion, 3> completions;
    if (kBug == Bug::flush_forgets_last_peer) transport_->deaf_to = 1;
    std::size_t count = inner().poll(completions);
    transport_->deaf_to = PlayedTransport<kShape>::kNobody;
    if (kBug == Bug::end_of_packet_told_once && aggregates_) count = std::min<std::size_t>(count, 1);
    for (const Completion& completion : std::span(completions).first(count)) {
      check(completion.token > 0 && completion.token < Aggregator::kPacketToken, "the end of a message");
      if (kBug == Bug::copied_is_ended && under_way_ == 0) continue;
      check(under_way_ != 0, "no message ends twice");
      --under_way_;
    }
    return count;
  }
  // Operations::quiet()
  [[nodiscard]] bool quiet() const { return under_way_ == 0; }
  [[nodiscard]] bool waits() const { return aggregates_ && !aggregator_->idle(); }

  [[nodiscard]] std::uint32_t seen() const { return transport_->seen; }

  // Four short messages in one packet; a long one never is in one.
  static constexpr std::uint32_t kPacketBytes = 64;
  static Message message(std::uint64_t number) {
    Message message(kShape.peers >> number % 100 & 1, 0, wire::encode_am(1, 0));
    const std::array<std::uint64_t, 2> words{number, number};
    message.set_message(nullptr, 0, words.data(), (kShape.too_long >> number % 100 & 1) != 0 ? 16 : 8);
    message.token = number;
    return message;
  }

 private:
  transport::TransportWorker& inner() {
    if (aggregates_) return *aggregator_;
    return *transport_;
  }
  std::size_t hand_on(std::span<Message> batch) {
    if (!aggregates_) return transport_->post(batch);
    if (kBug == Bug::packet_overtaken && aggregator_->waiting_messages() != 0) {
      if (const std::size_t taken = transport_->post(batch); taken != 0) return taken;
    }
    const std::uint64_t before = aggregator_->waiting_messages();
    const std::size_t taken = aggregator_->post(batch);
    if (kBug == Bug::refused_with_effect && aggregator_->waiting_messages() > before) {
      batch[taken - 1].source_free = false;
      return taken - 1;
    }
    return taken;
  }

  PlayedTransport<kShape>* transport_;  // own_'s, or the aggregator's
  const bool aggregates_;
  std::unique_ptr<transport::TransportWorker> own_;
  std::unique_ptr<Aggregator> aggregator_;
  std::uint64_t under_way_ = 0;
};

constexpr std::uint32_t kAll = 1000;  // ticks: the transport refuses nothing more

struct Body {
  Plain<std::uint64_t> value;
};

// ---- the queue and its consumer -----------------------------------------------------------------

// Producers leave messages in the queue; the consumer drains it, makes progress and asks for quiet,
// as the executor of a worker in offload mode does.
template <Bug kBug, Shape kShape, bool kAggregates, bool kHeld>
struct InboxModel final : Model {
  using Queue = queue::CommandQueue<Body, Atomic>;
  using Queued = typename Queue::Command;
  static constexpr std::size_t kBatch = 3;  // Inbox::kBatch

  Queue queue_{kShape.records};
  Atomic<std::uint32_t> ticks{0};
  Atomic<std::uint32_t> over{0};  // producers that have posted all
  Arrivals<kShape> arrivals{!kAggregates};
  Outlet<kBug, kShape> outlet{ticks, arrivals, kAggregates, kHeld};
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
    check(arrivals.records() >= target && !outlet.waits(), "nothing stays behind when quiet says DONE");
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
    *message = Outlet<kBug, kShape>::message(queue_.body(queued).value.load());
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
    Message message = Outlet<kBug, kShape>::message(number);
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

// Messages of each producer to the one peer and to the other in turn; or all but the third to one.
constexpr std::uint32_t kInTurn = 0b101010;
constexpr std::uint32_t kThirdAside = 0b100;

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
constexpr Shape kQueuedLong{1, 6, 2, 0, 0, 8, false, true, 0b100000};
constexpr Shape kQueuedMixed{1, 4, 2, 0, 0, 4, false, true, 0b0010};

// All schedules of producers, consumer and transport are more than there is time for: the larger
// cases are bounded in their preemptions. What stands in the queue already meets every k of n.
constexpr Options kBounded{.weak = false, .preemptions = 2};

template <Shape kShape, bool kAggregates, bool kHeld>
using Inboxes = InboxModel<Bug::none, kShape, kAggregates, kHeld>;

TEST(GatheringInTheQueue, HoldsForEveryPartThatIsTaken) {
  expect_holds<Inboxes<kQueued, false, false>>("4 queued", kInterleaved);
  expect_holds<Inboxes<kQueued, false, true>>("4 queued, ended later", kInterleaved);
  expect_holds<Inboxes<kQueuedAlone, false, true>>("4 queued, some alone", kInterleaved);
  expect_holds<Inboxes<kQueued, true, false>>("4 queued, packets", kInterleaved);
  expect_holds<Inboxes<kQueued, true, true>>("4 queued, packets, ended later", kInterleaved);
  expect_holds<Inboxes<kQueuedAlone, true, true>>("4 queued, packets, some alone", kInterleaved);
  expect_holds<Inboxes<kQueuedLong, true, true>>("6 queued, a full packet", kInterleaved);
  expect_holds<Inboxes<kQueuedMixed, true, true>>("4 queued, packets, one too long", kInterleaved);
}

TEST(GatheringInTheQueue, HoldsWhileProducersPost) {
  expect_holds<Inboxes<kOneByTwo, false, false>>("2 messages", kInterleaved);
  expect_holds<Inboxes<kOneByThree, false, true>>("3 messages", kBounded);
  expect_holds<Inboxes<kOneByThreeFull, false, true>>("3 messages, full", kBounded);
  expect_holds<Inboxes<kOneByThreeGivesUp, false, true>>("3 messages, full, left out", kBounded);
  expect_holds<Inboxes<kTwoByOne, false, true>>("2 producers", kBounded);
  expect_holds<Inboxes<kTwoByOneFull, false, true>>("2 producers, full, alone", kBounded);
  expect_holds<Inboxes<kTwoByTwo, false, false>>("2 producers of 2", kBounded);
}

TEST(GatheringInTheQueue, HoldsWhileProducersPostAndPacketsWait) {
  expect_holds<Inboxes<kOneByTwo, true, true>>("2 messages, packets", kInterleaved);
  expect_holds<Inboxes<kOneByThreeFull, true, true>>("3 messages, packets, full", kBounded);
  expect_holds<Inboxes<kOneByThreeGivesUp, true, true>>("3 messages, packets, left out", kBounded);
  expect_holds<Inboxes<kTwoByTwo, true, true>>("2 producers of 2, packets", kBounded);
  expect_holds<Inboxes<kTwoByTwoAlone, true, true>>("2 producers of 2, packets, some alone", kBounded);
}

TEST(GatheringInTheQueue, PlantedBugsAreFound) {
  expect_finds<InboxModel<Bug::prefix_posted_again, kQueued, false, false>>("the part that was taken is posted again",
                                                                            kInterleaved, "comes once");
  expect_finds<InboxModel<Bug::prefix_posted_again, kQueuedMixed, true, true>>(
      "the part that was taken is posted again, packets", kInterleaved, "comes once");
  expect_finds<InboxModel<Bug::refused_skipped, kQueued, false, false>>("what was refused is left out", kInterleaved,
                                                                        "for ever");
  expect_finds<InboxModel<Bug::span_released, kQueued, false, false>>("the whole span is released", kInterleaved,
                                                                      "nothing stays behind");
  expect_finds<InboxModel<Bug::released_before_posted, kOneByThreeFull, false, false>>("released before it is posted",
                                                                                       kBounded, "race");
  expect_finds<InboxModel<Bug::refused_overtaken, kQueuedMixed, false, false>>(
      "a refused message is overtaken", kInterleaved, "before those that its thread posts later");
  expect_finds<InboxModel<Bug::started_too_early, kQueued, false, false>>("a refused message counts as started",
                                                                          kInterleaved, "nothing stays behind");
}

// ---- packets, with several threads that post ----------------------------------------------------

// Each producer posts for itself, under the lock, as in mutex mode; one more thread makes progress
// and asks for quiet.
template <Bug kBug, Shape kShape, bool kHeld>
struct PacketsModel final : Model {
  queue::TryLock<Atomic> lock;
  Atomic<std::uint32_t> ticks{0};
  Atomic<std::uint32_t> over{0};
  // Guarded by the lock.
  Arrivals<kShape> arrivals{false};
  Outlet<kBug, kShape> outlet{ticks, arrivals, true, kHeld};
  std::uint64_t accepted = 0;

  PacketsModel() {
    ticks.name("the transport's room");
    over.name("producers that are over");
  }
  [[nodiscard]] std::uint32_t threads() const override { return kShape.producers + 2; }
  void run(std::uint32_t thread) override {
    if (thread < kShape.producers) return produce(thread);
    if (thread == kShape.producers) return progress();
    for (std::uint32_t i = 0; i < kShape.ticks; ++i) ticks.fetch_add(1, std::memory_order_relaxed);
    ticks.store(kAll);
  }

  void produce(std::uint32_t self) {
    for (std::uint32_t i = 0; i < kShape.messages; ++i) {
      // If a thread tried again whenever another thread has been inside, the transport's thread
      // would never run.
      std::uint32_t seen = 0;
      while (!post(number_of(self, i), &seen)) {
        while (ticks.load(std::memory_order_relaxed) == seen) pause();
      }
    }
    over.fetch_add(1, std::memory_order_release);
  }
  void enter() {
    while (!lock.try_lock()) {
      while (lock.looks_held()) pause();
    }
  }
  // False: AGAIN, at that tick.
  bool post(std::uint64_t number, std::uint32_t* seen) {
    enter();
    Message message = Outlet<kBug, kShape>::message(number);
    const bool posted = outlet.post({&message, 1}) == 1;
    if (posted) ++accepted;
    *seen = outlet.seen();
    lock.unlock();
    return posted;
  }
  void progress() {
    for (;;) {
      enter();
      const bool all = over.load(std::memory_order_acquire) == kShape.producers;
      const bool moved = outlet.poll() != 0;
      const bool quiet = outlet.quiet();
      if (quiet) check(arrivals.records() >= accepted && !outlet.waits(), "nothing stays behind when quiet says DONE");
      lock.unlock();
      if (quiet && all) return;
      if (!moved) pause();
    }
  }
  void finish() override {
    for (std::uint32_t producer = 0; producer < kShape.producers; ++producer) {
      for (std::uint32_t i = 0; i < kShape.messages; ++i) check(arrivals.here(producer, i), "each message comes");
    }
  }
};

constexpr Options kOnePreemption{.weak = false, .preemptions = 1};

constexpr Shape kOneByFive{1, 5, 2, 0};
constexpr Shape kOneByThreeLong{1, 3, 2, kThirdAside, 0, 4, false, false, 0b010};
constexpr Shape kTwoByTwoLong{2, 2, 2, 0, 0, 4, false, false, 0b10};
constexpr Shape kTwoByThree{2, 3, 2, kThirdAside};

TEST(GatheringInPackets, HoldsWhileThreadsPost) {
  expect_holds<PacketsModel<Bug::none, kOneByThree, true>>("3 messages", kBounded);
  expect_holds<PacketsModel<Bug::none, kOneByThreeLong, true>>("3 messages, one too long", kBounded);
  expect_holds<PacketsModel<Bug::none, kOneByFive, false>>("5 messages, a full packet", kBounded);
  expect_holds<PacketsModel<Bug::none, kTwoByTwo, false>>("2 threads of 2", kBounded);
  expect_holds<PacketsModel<Bug::none, kTwoByTwoLong, true>>("2 threads of 2, one too long", kOnePreemption);
  expect_holds<PacketsModel<Bug::none, kTwoByThree, true>>("2 threads of 3", kOnePreemption);
}

TEST(GatheringInPackets, PlantedBugsAreFound) {
  expect_finds<PacketsModel<Bug::refused_with_effect, kOneByThree, true>>("AGAIN with an effect", kBounded,
                                                                          "nothing stays behind");
  expect_finds<PacketsModel<Bug::packet_overtaken, kOneByFive, false>>("a packet is overtaken", kBounded,
                                                                       "before those that its thread posts later");
  expect_finds<PacketsModel<Bug::flush_forgets_last_peer, kOneByThree, true>>("a flush that forgets the last peer",
                                                                              kBounded, "waits for ever");
  expect_finds<PacketsModel<Bug::end_of_packet_told_once, kOneByFive, true>>("one end for a packet", kBounded,
                                                                             "waits for ever");
  expect_finds<PacketsModel<Bug::copied_is_ended, kOneByThree, true>>("what was copied counts as ended", kBounded,
                                                                      "nothing stays behind");
}

}  // namespace
}  // namespace heddle::explore::gathering_explore_test
