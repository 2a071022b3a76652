// src/queue: delegation over the command queue, as worker/gate.cpp puts them together in delegate
// mode; the code itself, over the explorer's atomics.
#include <gtest/gtest.h>

#include <array>

#include "expect.hpp"
#include "queue/command_queue.hpp"
#include "queue/locks.hpp"

namespace heddle::explore::delegation_explore_test {
namespace {

// A read-modify-write with release waits until all earlier stores of its thread are visible, and
// nothing acquires from it.
template <bool kAfterExit, bool kAfterPublish>
struct ModelFences {
  static inline Atomic<std::uint32_t>* word = nullptr;  // of the execution under way
  static void after_exit() {
    if (kAfterExit) word->fetch_add(1, std::memory_order_release);
  }
  static void after_publish() {
    if (kAfterPublish) word->fetch_add(1, std::memory_order_release);
  }
};
using BothFences = ModelFences<true, true>;

enum class Bug { none, leaves_without_looking, helps_without_trying, short_way_overtakes };

struct Body {
  Plain<std::uint64_t> value;
};

struct Shape {
  std::uint32_t producers;
  std::uint32_t commands;  // of each
  bool idler;              // one more thread, which comes by once with nothing of its own
  bool short_way = false;  // posts try DelegateGate::post_now() first
};

// Every post is Gate::post(): the thread inside starts it at once, after the commands queued before
// it; any other thread queues it. Nobody comes by when the threads have ended, so each command must
// have been executed by then.
template <Shape kShape, Bug kBug = Bug::none, template <class> class A = Atomic, class Fences = BothFences>
struct DelegationModel final : Model {
  using Queue = queue::CommandQueue<Body, A>;
  static constexpr std::uint32_t kCommands = kShape.producers * kShape.commands;

  Atomic<std::uint32_t> fence{0};
  Queue queue{4};
  queue::Delegation<A, Fences> inside;
  Plain<std::uint64_t> executed;  // the worker's own data
  std::array<Plain<std::uint64_t>, kMostThreads> last;

  DelegationModel() {
    Fences::word = &fence;
    executed.name("the worker's data");
  }
  [[nodiscard]] std::uint32_t threads() const override { return kShape.producers + (kShape.idler ? 1 : 0); }

  void run(std::uint32_t thread) override {
    if (thread == kShape.producers) {
      if (!inside.try_enter()) return;
      drain();
      return leave();
    }
    for (std::uint32_t i = 0; i < kShape.commands; ++i) {
      if (!kShape.short_way || !try_send(thread, i + 1)) post(thread, i + 1);
    }
  }
  // DelegateGate::post_now()
  bool try_send(std::uint32_t thread, std::uint64_t number) {
    if ((kBug != Bug::short_way_overtakes && queued()) || !inside.try_enter()) return false;
    execute(thread * 10 + number);
    if (kBug == Bug::leaves_without_looking) {
      inside.exit();
    } else if (inside.exit_unless([this] { return queue.ready(); }, 0)) {
      drain();
      leave();
    }
    return true;
  }
  void post(std::uint32_t thread, std::uint64_t number) {
    if (inside.try_enter()) {
      if (queued()) drain();
      queued() ? enqueue(thread, number) : execute(thread * 10 + number);
      return leave();
    }
    enqueue(thread, number);
    if (kBug == Bug::helps_without_trying || !inside.help()) return;
    drain();
    leave();
  }
  [[nodiscard]] bool queued() const { return queue.claimed() != queue.executed(); }
  void enqueue(std::uint32_t thread, std::uint64_t number) {
    const auto claim = queue.claim();
    check(bool(claim), "there is room");
    queue.body(claim).value.store(thread * 10 + number);
    check(!queue.publish(claim), "nobody sleeps");
  }
  void execute(std::uint64_t value) {
    Plain<std::uint64_t>& before = last[value / 10];
    check(before.load() + 1 == value % 10, "in each thread's order");
    before.store(value % 10);
    executed.store(executed.load() + 1);
  }
  void drain() {
    typename Queue::Command command;
    while (queue.take(&command)) {
      execute(queue.body(command).value.load());
      queue.release(command);
    }
  }
  void leave() {
    if (kBug == Bug::leaves_without_looking) return inside.exit();
    for (int looks = 0; inside.exit_unless([this] { return queue.ready(); }, looks); ++looks) drain();
  }
  void finish() override {
    check(queue.claimed() == queue.executed(), "no command is left behind");
    check(executed.load() == kCommands, "each command is executed once");
  }
};

constexpr Shape kOneEach{2, 1, false};
constexpr Shape kTwoEach{2, 2, false};
constexpr Shape kOneEachAndIdler{2, 1, true};
constexpr Shape kOneEachShort{2, 1, false, true};
constexpr Shape kTwoEachShort{2, 2, false, true};
constexpr Shape kOneEachShortAndIdler{2, 1, true, true};
constexpr Options kBounded{.weak = false, .preemptions = 3};

TEST(Delegation, HoldsInAllSchedules) {
  expect_holds<DelegationModel<kOneEach>>("delegation, 2 threads", kOrdered);
}

TEST(Delegation, HoldsWithMoreCommandsAndThreads) {
  expect_holds<DelegationModel<kTwoEach>>("delegation, 2 threads of 2", kBounded);
  expect_holds<DelegationModel<kOneEachAndIdler>>("delegation, 2 threads and an idler", kBounded);
}

TEST(Delegation, HoldsOnTheShortWay) {
  expect_holds<DelegationModel<kOneEachShort>>("delegation, short way", kOrdered);
  expect_holds<DelegationModel<kTwoEachShort>>("delegation, short way, 2 threads of 2", kBounded);
  expect_holds<DelegationModel<kOneEachShortAndIdler>>("delegation, short way, and an idler", kBounded);
}

TEST(Delegation, PlantedBugsOfTheShortWayAreFound) {
  expect_finds<DelegationModel<kOneEachShort, Bug::leaves_without_looking>>("leaves without looking again", kOrdered,
                                                                            "left behind");
  expect_finds<DelegationModel<kTwoEachShort, Bug::short_way_overtakes>>("overtakes what its thread has queued",
                                                                         kBounded, "in each thread's order");
}

TEST(Delegation, PlantedBugsAreFound) {
  expect_finds<DelegationModel<kOneEach, Bug::leaves_without_looking>>("leaves without looking again", kOrdered,
                                                                       "left behind");
  expect_finds<DelegationModel<kOneEach, Bug::helps_without_trying>>("helps without trying", kOrdered, "left behind");
  expect_finds<DelegationModel<kOneEach, Bug::none, Atomic, ModelFences<false, true>>>("no fence on leaving", kOrdered,
                                                                                       "left behind");
  expect_finds<DelegationModel<kOneEach, Bug::none, Atomic, ModelFences<true, false>>>("no fence before helping",
                                                                                       kOrdered, "left behind");
  expect_finds<DelegationModel<kOneEach, Bug::none, RelaxedStores>>("leaving without release", kOrdered, "race");
}

}  // namespace
}  // namespace heddle::explore::delegation_explore_test
