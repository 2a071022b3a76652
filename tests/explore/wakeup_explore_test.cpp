// src/worker: a worker's descriptor; the code itself (Wakeup, Notifier) over the explorer's
// atomics, with the sleeper and the bell that it is used with. The worker inside is simulated: a
// peer sends, another thread polls, a rank fails. Sequentially consistent: notifier_explore_test
// and bell_explore_test show the effects of weak memory on its two handshakes.
#include <gtest/gtest.h>

#include <utility>

#include "engine/core.hpp"
#include "expect.hpp"
#include "queue/bell.hpp"
#include "queue/locks.hpp"
#include "worker/descriptor.hpp"

namespace heddle::explore::wakeup_explore_test {
namespace {

enum class Bug { none, no_second_look, failure_not_seen, arrival_not_seen, bell_read_late };

struct Shape {
  std::uint32_t messages = 1;
  bool other = false;  // another thread polls once
  bool fails = false;  // a rank fails after the messages
};

struct PatientFutex {
  template <class Word>
  static void wait(Word* word, std::uint32_t expected, std::int64_t timeout_ns) {
    if (timeout_ns >= 0) return step();
    while (word->load(std::memory_order_relaxed) == expected) pause();
  }
  template <class Word>
  static void wait(Word* word, std::uint32_t expected, std::int64_t timeout_ns, queue::Places) {
    wait(word, expected, timeout_ns);
  }
  template <class Word>
  static void wake(Word*, queue::Places) {}
  template <class Word>
  static void wake_one(Word*) {}
};

struct System {
  template <class T>
  using Atomic = explore::Atomic<T>;
  using Sleeper = queue::Sleeper<explore::Atomic, PatientFutex>;
};

struct Told {
  Atomic<std::uint32_t>* word = nullptr;
  void tell() const { word->fetch_add(1); }
};

// Descriptor, with a worker that two threads may use.
template <Bug kBug>
class ModelSide {
 public:
  ModelSide() { notifier_.open({&told_}); }

  // ---- for Wakeup
  void disarm() {
    notifier_.disarm();
    told_before_ = told_.load();
  }
  [[nodiscard]] std::uint64_t moved() const { return moves_.load(std::memory_order_acquire); }
  bool arm_notifier() {
    epoch_.store(failures_.load(std::memory_order_acquire), std::memory_order_relaxed);
    notifier_.arm();
    return true;
  }
  worker::Quiet lie_down() {
    if (!door_.try_lock()) return {.polls = true};
    armed_.store(1, std::memory_order_relaxed);
    const bool failure = kBug != Bug::failure_not_seen && failures_.load(std::memory_order_acquire) != seen_failures_;
    const bool arrival = kBug != Bug::no_second_look && arrivals_.load(std::memory_order_acquire) != taken_.load();
    door_.unlock();
    return {.work = arrival || failure, .armed = true};
  }
  void remind() { told_.fetch_add(1); }
  [[nodiscard]] bool telling() const { return notifier_.armed(); }
  void tell() { notifier_.tell(); }
  [[nodiscard]] bool arrived() const {
    if (kBug == Bug::arrival_not_seen) return false;
    return armed_.load(std::memory_order_relaxed) == 0 ||
           failures_.load(std::memory_order_acquire) != epoch_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool can_ring() const { return true; }
  [[nodiscard]] std::uint32_t bell() const { return bell_.rings(); }
  void ring() { bell_.ring(); }
  // A sleep without a timeout does not rely on one.
  void wait(std::uint32_t seen, std::int64_t timeout_ns) {
    constexpr std::int64_t kLong = 1'000'000'000;
    if (timeout_ns < kLong) return step();
    bell_.wait(kBug == Bug::bell_read_late ? bell_.rings() : seen, -1);
  }

  // ---- the program, and another thread
  void progress() {
    if (!door_.try_lock()) return pause();
    const std::uint32_t arrived = arrivals_.load(std::memory_order_acquire);
    const std::uint32_t failed = failures_.load(std::memory_order_acquire);
    const bool moves = arrived != taken_.load() || failed != std::exchange(seen_failures_, failed);
    taken_.store(arrived);
    if (moves) {
      moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      notifier_.tell();
    }
    door_.unlock();
  }
  // poll() of the descriptor.
  void wait_until_readable() const {
    while (told_.load() == told_before_) pause();
  }
  [[nodiscard]] std::uint32_t taken() const { return taken_.load(); }
  [[nodiscard]] std::uint32_t failures_seen() {
    while (!door_.try_lock()) pause();
    const std::uint32_t seen = seen_failures_;
    door_.unlock();
    return seen;
  }

  // ---- a peer
  void send() {
    step();
    arrivals_.store(arrivals_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    if (queue::disarmed_by_me(armed_)) bell_.ring();
  }
  void fail() {
    failures_.store(1, std::memory_order_release);
    bell_.ring();
  }

 private:
  Atomic<std::uint32_t> told_{0};
  std::uint32_t told_before_ = 0;
  engine::Notifier<Atomic, Told> notifier_;
  queue::BellWords<Atomic> words_;
  queue::Bell<Atomic, PatientFutex> bell_{&words_};
  queue::TryLock<Atomic> door_;
  Atomic<std::uint32_t> armed_{0};
  Atomic<std::uint32_t> arrivals_{0};
  Atomic<std::uint32_t> failures_{0};
  Atomic<std::uint32_t> epoch_{0};
  Atomic<std::uint64_t> moves_{0};
  Atomic<std::uint32_t> taken_{0};
  std::uint32_t seen_failures_ = 0;  // inside
};

template <Shape kShape, Bug kBug>
struct WakeupModel final : Model {
  ModelSide<kBug> side;
  worker::Wakeup<ModelSide<kBug>, System> wakeup{side};

  [[nodiscard]] std::uint32_t threads() const override { return kShape.other ? 4 : 3; }
  void run(std::uint32_t thread) override {
    switch (thread) {
      case 0:
        return program();
      case 1:
        return wakeup.run();
      case 2:
        for (std::uint32_t i = 0; i < kShape.messages; ++i) side.send();
        if (kShape.fails) side.fail();
        return;
      default:
        return side.progress();
    }
  }
  void program() {
    for (;;) {
      side.progress();
      if (side.taken() == kShape.messages && (!kShape.fails || side.failures_seen() == 1)) break;
      if (wakeup.arm() == HEDDLE_DONE) side.wait_until_readable();
    }
    side.disarm();
    wakeup.stop();
  }
};

constexpr Options kBounded{.weak = false, .preemptions = 2};
constexpr Shape kOne{};
constexpr Shape kTwo{.messages = 2};
constexpr Shape kOther{.other = true};
constexpr Shape kFails{.messages = 0, .fails = true};
constexpr Shape kLastFails{.fails = true};

TEST(Wakeup, HoldsInAllSchedules) {
  expect_holds<WakeupModel<kOne, Bug::none>>("a message", kBounded);
  expect_holds<WakeupModel<kTwo, Bug::none>>("two messages", kBounded);
  expect_holds<WakeupModel<kOther, Bug::none>>("another thread polls", Options{.weak = false, .preemptions = 1});
  expect_holds<WakeupModel<kFails, Bug::none>>("a rank fails", kBounded);
  expect_holds<WakeupModel<kLastFails, Bug::none>>("a message, then a failure", kBounded);
}

TEST(Wakeup, PlantedBugsAreFound) {
  expect_finds<WakeupModel<kOne, Bug::no_second_look>>("no second look", kBounded, "waits for ever");
  expect_finds<WakeupModel<kFails, Bug::failure_not_seen>>("a failure before the arming", kBounded, "waits for ever");
  expect_finds<WakeupModel<kOne, Bug::arrival_not_seen>>("an arrival before the bell is read", kBounded,
                                                         "waits for ever");
  expect_finds<WakeupModel<kFails, Bug::bell_read_late>>("the bell is read late", kBounded, "waits for ever");
}

}  // namespace
}  // namespace heddle::explore::wakeup_explore_test
