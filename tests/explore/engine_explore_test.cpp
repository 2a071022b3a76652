// The engine's counter, and how it learns of failures. Models beside the code, which stands on
// std::atomic: each function here does the atomic operations of the function that it is named
// after. If you change one, change the other. The table of handlers is the code itself.
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "engine/handlers.hpp"
#include "expect.hpp"
#include "queue/command_queue.hpp"

namespace heddle::explore::engine_explore_test {
namespace {

// ---- engine::OperationCounter -------------------------------------------------------------------

enum class CounterBug { none, raised_before_data, raised_relaxed, shared_without_update, read_relaxed };

// `kWriters` == 1: the counter of one exclusive worker (`only`), raised without a
// read-modify-write.
template <CounterBug kBug, std::uint32_t kWriters, std::uint32_t kRaises>
struct CounterModel final : Model {
  Atomic<std::uint64_t> value_;
  std::array<Plain<std::uint32_t>, kWriters * kRaises> brought;

  CounterModel() { value_.name("value"); }
  [[nodiscard]] std::uint32_t threads() const override { return kWriters + 1; }

  // OperationCounter::raise
  void raise() {
    const auto order = kBug == CounterBug::raised_relaxed ? std::memory_order_relaxed : std::memory_order_release;
    if (kWriters == 1 || kBug == CounterBug::shared_without_update) {
      value_.store(value_.load(std::memory_order_relaxed) + 1, order);
    } else {
      value_.fetch_add(1, order);
    }
  }
  // OperationCounter::value
  [[nodiscard]] std::uint64_t value() const {
    return value_.load(kBug == CounterBug::read_relaxed ? std::memory_order_relaxed : std::memory_order_acquire);
  }

  void run(std::uint32_t thread) override {
    if (thread == kWriters) return read();
    for (std::uint32_t i = 0; i < kRaises; ++i) {
      if (kBug == CounterBug::raised_before_data) raise();
      brought[thread * kRaises + i].store(50 + i);
      if (kBug != CounterBug::raised_before_data) raise();
    }
  }
  // heddle_counter_wait for each of the operations, or for all of them where their order is not
  // known.
  void read() {
    std::uint64_t last = 0;
    for (std::uint32_t i = kWriters == 1 ? 0 : kWriters * kRaises - 1; i < kWriters * kRaises; ++i) {
      std::uint64_t now = 0;
      while ((now = value()) < i + 1) pause();
      check(now >= last, "the count never falls");
      last = now;
      for (std::uint32_t done = 0; done <= i; ++done) {
        check(brought[done].load() == 50 + done % kRaises, "who sees the count sees what the operation brought");
      }
    }
  }
  void finish() override { check(value() == kWriters * kRaises, "each operation is counted once"); }
};

TEST(Counter, HoldsInAllSchedules) {
  expect_holds<CounterModel<CounterBug::none, 1, 3>>("counter of one worker", kOrdered);
  expect_holds<CounterModel<CounterBug::none, 1, 3>>("counter of one worker, data delayed", kByData);
  expect_holds<CounterModel<CounterBug::none, 2, 2>>("counter of two workers", kOrdered);
}

TEST(Counter, PlantedBugsAreFound) {
  expect_finds<CounterModel<CounterBug::raised_before_data, 1, 2>>("raised before the data", kOrdered, "race");
  expect_finds<CounterModel<CounterBug::raised_before_data, 1, 2>>("raised before the data, data delayed", kByData,
                                                                   "what the operation brought");
  expect_finds<CounterModel<CounterBug::raised_relaxed, 1, 2>>("raised relaxed, data delayed", kByData,
                                                               "what the operation brought");
  expect_finds<CounterModel<CounterBug::read_relaxed, 1, 2>>("read relaxed", kOrdered, "race");
  expect_finds<CounterModel<CounterBug::shared_without_update, 2, 2>>(
      "two writers without an update", {.weak = false, .races = false}, "waits for ever");
}

// ---- the failure epoch --------------------------------------------------------------------------

enum class EpochBug { none, epoch_before_flag, epoch_relaxed, seen_after_looking };

// The bootstrap's thread finds two ranks dead; an worker::Worker must learn of both, however its
// progress falls.
template <EpochBug kBug>
struct EpochModel final : Model {
  static constexpr std::uint32_t kDead = 2;

  std::array<Atomic<bool>, kDead> gone;
  Atomic<std::uint64_t> failure_epoch;

  EpochModel() {
    for (Atomic<bool>& flag : gone) flag.name("gone");
    failure_epoch.name("epoch");
  }
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override {
    if (thread == 1) return progress();
    for (std::uint32_t rank = 0; rank < kDead; ++rank) take_gone(rank);
  }

  // bootstrap::local::Local::take_gone, bootstrap::inproc::ThreadJob::fail
  void take_gone(std::uint32_t rank) {
    const auto order = kBug == EpochBug::epoch_relaxed ? std::memory_order_relaxed : std::memory_order_release;
    if (kBug == EpochBug::epoch_before_flag) failure_epoch.fetch_add(1, order);
    gone[rank].store(true, std::memory_order_release);
    if (kBug != EpochBug::epoch_before_flag) failure_epoch.fetch_add(1, order);
  }

  // worker::Worker::progress and note_failures, until both are known
  void progress() {
    std::uint64_t seen_epoch = 0;
    std::array<bool, kDead> failed{};
    while (!(failed[0] && failed[1])) {
      if (failure_epoch.load(std::memory_order_relaxed) == seen_epoch) {
        pause();
        continue;
      }
      if (kBug != EpochBug::seen_after_looking) seen_epoch = failure_epoch.load(std::memory_order_acquire);
      for (std::uint32_t rank = 0; rank < kDead; ++rank) {
        if (!failed[rank]) failed[rank] = gone[rank].load(std::memory_order_acquire);
      }
      if (kBug == EpochBug::seen_after_looking) seen_epoch = failure_epoch.load(std::memory_order_acquire);
    }
  }
};

TEST(FailureEpoch, HoldsInAllSchedules) {
  expect_holds<EpochModel<EpochBug::none>>("failure epoch", kOrdered);
  expect_holds<EpochModel<EpochBug::none>>("failure epoch, interleaved", kInterleaved);
}

TEST(FailureEpoch, PlantedBugsAreFound) {
  expect_finds<EpochModel<EpochBug::epoch_before_flag>>("epoch before the flag", kInterleaved, "waits for ever");
  expect_finds<EpochModel<EpochBug::epoch_relaxed>>("epoch raised relaxed", kOrdered, "waits for ever");
  expect_finds<EpochModel<EpochBug::seen_after_looking>>("epoch noted after looking", kInterleaved, "waits for ever");
}

// ---- releasing what a queued command names: Inbox::drain, Objects::reclaim, Worker::names_remote

enum class ReleaseBug { none, marks_before_queue, released_before_marked };

template <ReleaseBug kBug>
struct ReleaseModel final : Model {
  struct Body {
    Plain<std::uint64_t> value;
  };
  using Queue = queue::CommandQueue<Body, Atomic>;

  Queue queue{2};
  // MarkTable: the operation that the command becomes, which does not end here
  Atomic<std::uint32_t> mark{0};
  Plain<std::uint32_t> destroyed;

  ReleaseModel() {
    mark.name("mark");
    const auto claim = queue.claim();
    static_cast<void>(queue.publish(claim));
  }
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override { thread == 0 ? drain() : reclaim(); }

  void drain() {
    typename Queue::Command command;
    check(queue.take(&command), "it was queued before its region was released");
    if (kBug == ReleaseBug::released_before_marked) queue.release(command);
    mark.store(1, std::memory_order_release);
    if (kBug != ReleaseBug::released_before_marked) queue.release(command);
  }
  void reclaim() {
    if (!names_remote()) destroyed.store(1);
  }
  [[nodiscard]] bool queued() const { return queue.claimed() != queue.executed(); }
  [[nodiscard]] bool marked() const { return mark.load(std::memory_order_acquire) != 0; }
  [[nodiscard]] bool names_remote() const {
    return kBug == ReleaseBug::marks_before_queue ? marked() || queued() : queued() || marked();
  }
  void finish() override { check(destroyed.load() == 0, "what an operation names stays"); }
};

TEST(Release, HoldsInAllSchedules) {
  expect_holds<ReleaseModel<ReleaseBug::none>>("release under a queued command", kOrdered);
}

TEST(Release, PlantedBugsAreFound) {
  expect_finds<ReleaseModel<ReleaseBug::marks_before_queue>>("marks before the queue", kInterleaved, "stays");
  expect_finds<ReleaseModel<ReleaseBug::released_before_marked>>("released before marked", kInterleaved, "stays");
}

// ---- registering handlers while messages arrive: engine::HandlerTable ---------------------------

constexpr std::uint32_t kHandlers = 4;
template <std::uint32_t kIndex>
void handle(const heddle_am_arrival* /*message*/, void* /*arg*/) {}
constexpr std::array<heddle_am_handler, kHandlers> kFunctions{handle<0>, handle<1>, handle<2>, handle<3>};

// Planted: a reader that does not look again. Its second look is the only relaxed load that
// `g_registers` does not announce.
bool g_registers = false;
template <class T>
class LooksOnce : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  T load(std::memory_order order) const {
    if (order != std::memory_order_relaxed) return seen_ = Atomic<T>::load(order);
    return std::exchange(g_registers, false) ? Atomic<T>::load(order) : seen_;
  }

 private:
  mutable T seen_{};  // by the one reader
};

// The first handler is there from the beginning; a thread registers the others while another one
// looks.
template <template <class> class A, std::uint32_t kLooks>
struct HandlersModel final : Model {
  engine::HandlerTable<1, A> table;
  std::array<Plain<std::uint32_t>, kHandlers> arguments;  // what they point to
  std::array<char, kHandlers> names{};

  HandlersModel() {
    for (auto& argument : arguments) argument.name("what the argument points to");
    add(0);
  }
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void add(std::uint32_t index) {
    arguments[index].store(70 + index);
    g_registers = true;
    table.set(0, {kFunctions[index], &names[index]});
  }
  void run(std::uint32_t thread) override {
    if (thread == 0) {
      for (std::uint32_t index = 1; index < kHandlers; ++index) add(index);
      return;
    }
    std::size_t last = 0;
    for (std::uint32_t look = 0; look < kLooks; ++look) {
      const engine::Handler found = table.find(0);
      const auto index = static_cast<std::size_t>(static_cast<const char*>(found.arg) - names.data());
      check(found.fn == kFunctions[index], "a function is found with its own argument");
      check(index >= last, "a handler that was replaced does not come back");
      check(arguments[index].load() == 70 + index, "what the argument points to is there");
      last = index;
    }
  }
};

TEST(HandlerTable, HoldsInAllSchedules) {
  expect_holds<HandlersModel<Atomic, 2>>("handlers", kOrdered);
  expect_holds<HandlersModel<Atomic, 1>>("handlers, data delayed", kByData);
}

TEST(HandlerTable, PlantedBugsAreFound) {
  expect_finds<HandlersModel<LooksOnce, 1>>("a reader that looks once", kInterleaved, "its own argument");
  expect_finds<HandlersModel<RelaxedLoads, 1>>("loads relaxed", kOrdered, "race");
  expect_finds<HandlersModel<RelaxedStores, 1>>("stores relaxed", kByData, "its own argument");
}

}  // namespace
}  // namespace heddle::explore::engine_explore_test
