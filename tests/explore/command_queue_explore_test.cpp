// src/queue: the command queue with its sleeper, and the try lock; the code itself, over the
// explorer's atomics.
#include <gtest/gtest.h>

#include <array>

#include "expect.hpp"
#include "queue/bell.hpp"
#include "queue/command_queue.hpp"
#include "queue/locks.hpp"

namespace heddle::explore::command_queue_explore_test {
namespace {

// A futex that never wakes by itself: a lost wake-up is a thread that waits for ever.
struct PatientFutex {
  template <class Word>
  static void wait(Word* word, std::uint32_t expected, std::int64_t) {
    while (word->load(std::memory_order_relaxed) == expected) pause();
  }
  template <class Word>
  static void wake_one(Word*) {}  // the store that precedes it lets pause() go on
};

struct Body {
  Plain<std::uint64_t> value;
};

enum class Bug {
  none,
  published_before_filled,
  released_before_read,
  sleeps_without_asking,
  no_wake,
  released_before_put_back
};

// Planted: the swap is made whatever it finds.
template <class T>
class BlindSwap : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order, std::memory_order) {
    expected = this->exchange(desired, order);
    return true;
  }
};
// Planted: compare-and-swap orders nothing.
template <class T>
class RelaxedSwaps : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  bool compare_exchange_strong(T& expected, T desired, std::memory_order, std::memory_order) {
    return Atomic<T>::compare_exchange_strong(expected, desired, std::memory_order_relaxed, std::memory_order_relaxed);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order) {
    return Atomic<T>::compare_exchange_weak(expected, desired, std::memory_order_relaxed);
  }
};
// Planted: an exchange that is a load and a store.
template <class T>
class TornExchange : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  T exchange(T value, std::memory_order order) {
    const T old = this->load(std::memory_order_acquire);
    this->store(value, order);
    return old;
  }
};

// The shape of a case with one queue of two records: the number of commands of each producer, and
// of records of a command.
struct Shape {
  std::uint32_t producers;
  std::uint32_t commands;  // of each producer
  std::uint32_t records;   // of each command
  bool sleeps;             // the consumer sleeps; without, it polls
  bool hesitates = false;  // it takes the next command too, and puts it back
  bool rows = false;       // put() and take_row(), of commands of one record
};

// The queue has been round once, so that every record holds an old lap and old data.
template <template <class> class A, Bug kBug, Shape kShape, template <class> class SleeperA = Atomic>
struct CommandModel final : Model {
  using Queue = queue::CommandQueue<Body, A>;
  static constexpr std::uint32_t kCommands = kShape.producers * kShape.commands;

  Queue queue{2};
  queue::Sleeper<SleeperA, PatientFutex> sleeper;
  Atomic<std::uint32_t> plain_asleep{0};  // for the planted bug: a flag beside the tail
  std::array<std::uint32_t, 2> got{};

  CommandModel() {
    for (std::uint32_t i = 0; i < 2; ++i) {
      const auto claim = queue.claim();
      check(bool(claim) && !claim.wake, "there is room");
      check(!queue.publish(claim), "nobody sleeps");
      typename Queue::Command command;
      check(queue.take(&command), "the first lap works");
      queue.release(command);
    }
  }
  [[nodiscard]] std::uint32_t threads() const override { return kShape.producers + 1; }
  void run(std::uint32_t thread) override { thread < kShape.producers ? produce(thread) : consume(); }

  static std::uint64_t pattern(std::uint32_t producer, std::uint32_t command, std::uint32_t record) {
    return 100 * (producer + 1) + 10 * command + record + 1;
  }

  void produce(std::uint32_t self) {
    for (std::uint32_t i = 0; i < kShape.commands; ++i) {
      if (kShape.rows) {
        put(self, i);
        continue;
      }
      typename Queue::Command claim;
      while (!(claim = queue.claim(kShape.records))) pause();
      if (kBug == Bug::published_before_filled) static_cast<void>(queue.publish(claim));
      for (std::uint32_t r = 0; r < kShape.records; ++r) queue.body(claim, r).value.store(pattern(self, i, r));
      bool wake = claim.wake;
      if (kBug != Bug::published_before_filled) wake = queue.publish(claim);
      if (kBug == Bug::sleeps_without_asking) wake = plain_asleep.exchange(0, std::memory_order_acq_rel) != 0;
      if (wake && kBug != Bug::no_wake) sleeper.wake();
    }
  }

  void put(std::uint32_t self, std::uint32_t command) {
    using Put = typename Queue::Put;
    Put done = Put::full;
    while (done == Put::full) {
      done = queue.put([&](Body& body) { body.value.store(pattern(self, command, 0)); });
      if (done == Put::full) pause();
    }
    if (done == Put::wake) sleeper.wake();
  }

  void consume_rows() {
    for (std::uint32_t taken = 0; taken < kCommands;) {
      const std::size_t row = queue.take_row(2, [&](Body& body) {
        const std::uint64_t value = body.value.load();
        const auto producer = static_cast<std::uint32_t>(value / 100 - 1);
        check(producer < kShape.producers, "the body is whole");
        check(value == pattern(producer, got[producer], 0), "in each producer's order");
        ++got[producer];
        return true;
      });
      if (row == 0) {
        wait();
        continue;
      }
      queue.release({2 + taken, static_cast<std::uint32_t>(row)});
      taken += static_cast<std::uint32_t>(row);
    }
  }

  void consume() {
    if (kShape.rows) return consume_rows();
    for (std::uint32_t taken = 0; taken < kCommands; ++taken) {
      typename Queue::Command command;
      next(&command);
      check(command.records == kShape.records, "the command is whole");
      if (kShape.hesitates) hesitate();
      if (kBug == Bug::released_before_read) queue.release(command);
      const std::uint64_t first = queue.body(command).value.load();
      const auto producer = static_cast<std::uint32_t>(first / 100 - 1);
      check(producer < kShape.producers, "the body is whole");
      for (std::uint32_t r = 0; r < kShape.records; ++r) {
        check(queue.body(command, r).value.load() == pattern(producer, got[producer], r), "in each producer's order");
      }
      ++got[producer];
      if (kBug != Bug::released_before_read) queue.release(command);
    }
  }

  void hesitate() {
    typename Queue::Command behind;
    if (!queue.take(&behind)) return;
    if (kBug == Bug::released_before_put_back) queue.release(behind);
    queue.put_back(behind.position);
  }

  void next(typename Queue::Command* command) {
    while (!queue.take(command)) wait();
  }

  void wait() {
    if (!kShape.sleeps) {
      pause();
    } else if (kBug == Bug::sleeps_without_asking) {
      // The look at the queue is over; only now is the flag set, and not in one step with a look.
      plain_asleep.store(1, std::memory_order_release);
      static_cast<void>(sleeper.sleep(-1));
    } else if (queue.prepare_sleep()) {
      static_cast<void>(sleeper.sleep(-1));
      static_cast<void>(queue.wake_up());
    } else {
      pause();  // claimed, and visible soon
    }
  }

  void finish() override {
    typename Queue::Command command;
    check(!queue.take(&command), "nothing comes twice");
    check(queue.executed() == queue.claimed() && queue.executed() == 2 + kCommands * kShape.records, "all is executed");
    check(queue.prepare_sleep() && queue.wake_up() && !queue.wake_up(), "the bit is as it was");
  }
};

constexpr Shape kOneByThree{1, 3, 1, false};
constexpr Shape kOneByTwoDouble{1, 2, 2, false};
constexpr Shape kTwoByOne{2, 1, 1, false};
constexpr Shape kTwoByOneDouble{2, 1, 2, false};
constexpr Shape kTwoByTwo{2, 2, 1, false};
constexpr Shape kOneByTwoAsleep{1, 2, 1, true};
constexpr Shape kTwoByOneAsleep{2, 1, 1, true};
constexpr Shape kTwoByTwoAsleep{2, 2, 1, true};
constexpr Shape kOneByThreeHesitant{1, 3, 1, false, true};
constexpr Shape kTwoByOneHesitant{2, 1, 1, true, true};
constexpr Shape kOneByThreeInRows{1, 3, 1, false, false, true};
constexpr Shape kTwoByOneInRows{2, 1, 1, false, false, true};
constexpr Shape kTwoByOneInRowsAsleep{2, 1, 1, true, false, true};

// All schedules of the largest cases are more than there is time for: the largest are bounded in
// their preemptions.
constexpr Options kBounded{.weak = false, .preemptions = 2};

TEST(CommandQueue, HoldsInAllSchedules) {
  expect_holds<CommandModel<Atomic, Bug::none, kOneByThree>>("commands, 1 producer, full", kOrdered);
  expect_holds<CommandModel<Atomic, Bug::none, kOneByTwoDouble>>("commands of two records, full", kOrdered);
  expect_holds<CommandModel<Atomic, Bug::none, kOneByTwoAsleep>>("commands, 1 producer, sleep", kOrdered);
  expect_holds<CommandModel<Atomic, Bug::none, kTwoByOne>>("commands, 2 producers", kOrdered);
  expect_holds<CommandModel<Atomic, Bug::none, kTwoByOneDouble>>("commands of two records, 2 producers, full",
                                                                 kInterleaved);
}

TEST(CommandQueue, HoldsWithSleepOverTwoProducers) {
  expect_holds<CommandModel<Atomic, Bug::none, kTwoByOneAsleep>>("commands, 2 producers, sleep", kInterleaved);
  expect_holds<CommandModel<Atomic, Bug::none, kTwoByTwo>>("commands, 2 producers of 2, full", kBounded);
  expect_holds<CommandModel<Atomic, Bug::none, kTwoByTwoAsleep>>("commands, 2 producers of 2, full, sleep", kBounded);
}

TEST(CommandQueue, HoldsWithAConsumerThatPutsBack) {
  expect_holds<CommandModel<Atomic, Bug::none, kOneByThreeHesitant>>("commands put back, full", kOrdered);
  expect_holds<CommandModel<Atomic, Bug::none, kTwoByOneHesitant>>("commands put back, sleep", kInterleaved);
}

TEST(CommandQueue, HoldsWithRows) {
  expect_holds<CommandModel<Atomic, Bug::none, kOneByThreeInRows>>("commands in rows, full", kOrdered);
  expect_holds<CommandModel<Atomic, Bug::none, kTwoByOneInRows>>("commands in rows, 2 producers", kOrdered);
  expect_holds<CommandModel<Atomic, Bug::none, kTwoByOneInRowsAsleep>>("commands in rows, 2 producers, sleep",
                                                                       kInterleaved);
  expect_finds<CommandModel<RelaxedStores, Bug::none, kTwoByOneInRows>>("rows, no release", kOrdered, "race");
  expect_finds<CommandModel<RelaxedLoads, Bug::none, kTwoByOneInRows>>("rows, no acquire", kOrdered, "race");
}

TEST(CommandQueue, PlantedBugsAreFound) {
  expect_finds<CommandModel<Atomic, Bug::released_before_put_back, kOneByThreeHesitant>>("put back after its release",
                                                                                         kOrdered, "race");
  expect_finds<CommandModel<Atomic, Bug::published_before_filled, kTwoByOne>>("published before filled", kOrdered,
                                                                              "race");
  expect_finds<CommandModel<Atomic, Bug::released_before_read, kOneByThree>>("released before read", kOrdered, "race");
  expect_finds<CommandModel<RelaxedStores, Bug::none, kTwoByOne>>("no release", kOrdered, "race");
  expect_finds<CommandModel<RelaxedLoads, Bug::none, kTwoByOne>>("no acquire", kOrdered, "race");
  expect_finds<CommandModel<TornSwap, Bug::none, kTwoByOne>>("two claims of one place", kInterleaved, "race");
  expect_finds<CommandModel<Atomic, Bug::no_wake, kOneByTwoAsleep>>("nobody is woken", kOrdered, "waits for ever");
  expect_finds<CommandModel<Atomic, Bug::sleeps_without_asking, kOneByTwoAsleep>>("a flag beside the tail", kOrdered,
                                                                                  "waits for ever");
  expect_finds<CommandModel<BlindSwap, Bug::none, kOneByTwoAsleep>>("the bit set without a look at the tail", kOrdered,
                                                                    "waits for ever");
  expect_finds<CommandModel<Atomic, Bug::none, kOneByTwoAsleep, BlindSwap>>("a sleeper that overlooks the token",
                                                                            kOrdered, "waits for ever");
}

// There is no fixed consumer: a producer that would have to wake it becomes the consumer. The role
// passes on through the sleeping bit.
template <template <class> class A, std::uint32_t kCommands, bool kHelper>
struct DelegateModel final : Model {
  using Queue = queue::CommandQueue<Body, A>;

  Queue queue{2};
  Plain<std::uint64_t> executed;  // the consumer's own data

  DelegateModel() {
    executed.name("the consumer's data");
    check(queue.prepare_sleep(), "it is empty");
  }
  [[nodiscard]] std::uint32_t threads() const override { return kHelper ? 3 : 2; }
  void run(std::uint32_t thread) override {
    if (thread == 2) {
      if (queue.wake_up()) execute();
      return;
    }
    for (std::uint32_t i = 0; i < kCommands; ++i) {
      typename Queue::Command claim;
      while (!(claim = queue.claim())) pause();
      queue.body(claim).value.store(1);
      if (queue.publish(claim)) execute();
    }
  }
  void execute() {
    do {
      typename Queue::Command command;
      while (queue.take(&command)) {
        executed.store(executed.load() + queue.body(command).value.load());
        queue.release(command);
      }
      if (queue.prepare_sleep()) return;
      pause();
    } while (true);
  }
  void finish() override { check(executed.load() == 2 * kCommands, "each command is executed once"); }
};

TEST(CommandQueue, RoleOfTheConsumerPassesOn) {
  expect_holds<DelegateModel<Atomic, 1, false>>("delegate, 2 threads", kOrdered);
  expect_holds<DelegateModel<Atomic, 2, false>>("delegate, 2 threads of 2", kBounded);
  expect_holds<DelegateModel<Atomic, 1, true>>("delegate, 2 threads and a helper", kBounded);
  expect_finds<DelegateModel<RelaxedSwaps, 1, false>>("a role without order", kOrdered, "the consumer's data");
}

// Two threads try once each, twice: a thread that gets in is alone.
template <template <class> class A>
struct TryLockModel final : Model {
  queue::TryLock<A> lock;
  Plain<std::uint64_t> guarded;
  std::array<std::uint32_t, 2> entered{};

  TryLockModel() { guarded.name("guarded"); }
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override {
    for (int i = 0; i < 2; ++i) {
      if (!lock.try_lock()) continue;  // without Guard: its destructor could not be abandoned
      guarded.store(guarded.load() + 1);
      ++entered[thread];
      lock.unlock();
    }
  }
  void finish() override {
    check(guarded.load() == entered[0] + entered[1] && guarded.load() >= 2, "somebody always gets in, alone");
    check(!lock.looks_held(), "it is free in the end");
  }
};

TEST(TryLock, HoldsInAllSchedules) {
  expect_holds<TryLockModel<Atomic>>("try lock", kOrdered);
}

TEST(TryLock, PlantedBugsAreFound) {
  expect_finds<TryLockModel<TornExchange>>("look, then take", kInterleaved, "not so");
  expect_finds<TryLockModel<RelaxedStores>>("no release", kOrdered, "race");
}

}  // namespace
}  // namespace heddle::explore::command_queue_explore_test
