// src/worker: an executor that sleeps, stands aside for threads that wait, and takes orders; the
// code itself (executor.hpp) over the explorer's atomics, with the command queue, the
// sleeper and the bell that it is used with. The worker inside is simulated: commands that end at
// once, commands that end with an arrival, and calls that only the executor's thread may run.
#include <gtest/gtest.h>

#include <array>

#include "expect.hpp"
#include "queue/bell.hpp"
#include "queue/command_queue.hpp"
#include "queue/locks.hpp"
#include "worker/executor.hpp"

namespace heddle::explore::standby_explore_test {
namespace {

using worker::Round;

enum class Bug {
  none,
  // of the thread that wants something
  leaves_without_waking,
  posts_without_waking,
  calls_without_counting,
  counts_polls_twice,
  does_not_wait_for_the_order,
  // of the thread that sleeps
  does_not_settle,
  does_not_look_again,
  bell_read_late,
  bit_set_without_a_look
};

// The length of a sleep with a timeout: until the schedule ends it; or for ever, to show code that
// relies on its end.
enum class Timer { ends, never };

// A posted command: ends at once; ends when a thread has polled; runs on the executor's thread
// only.
enum What : std::uint32_t { kShort = 1, kPolled, kCall };

struct Shape {
  std::uint32_t commands = 1;  // of the thread that waits
  std::uint32_t looks = 1;     // of it, after each command; then it only looks at a word
  What what = kShort;          // each of them
  Timer timer = Timer::ends;
  bool crowded = true;
  bool inside = false;   // it posts one more from inside, when nothing else is left
  bool message = false;  // a peer sends one
  bool order = false;    // one more thread, which makes a call by order
  bool call = false;     // or one by the queue
  bool other = false;    // or posts to another gate, and does not poll
  bool direct = false;   // it posts by itself where the executor stands aside
};

struct Limits {
  static constexpr std::uint64_t kPollsOfAWait = 1;
  static constexpr std::uint32_t kMostDoublings = 1;
  static constexpr std::uint32_t kLooksBetweenWaits = 1;
};

// The store before it wakes the thread: it lets pause() go on.
template <Timer kTimer>
struct PatientFutex {
  template <class Word>
  static void wait(Word* word, std::uint32_t expected, std::int64_t timeout_ns) {
    if (timeout_ns >= 0 && kTimer == Timer::ends) return step();
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
  template <class Word>
  static void wake_all(Word*) {}
};

// The bell of a transport. Its sleep has no end: nothing relies on that of the real one.
template <Bug kBug>
class ModelBell {
 public:
  [[nodiscard]] std::uint32_t bell() { return bell_.rings(); }
  void ring() { bell_.ring(); }
  void settle() {
    if (kBug != Bug::does_not_settle) barrier();
  }
  void wait(std::uint32_t seen, std::int64_t, queue::Places) {
    bell_.wait(kBug == Bug::bell_read_late ? bell_.rings() : seen, -1);
  }

 private:
  queue::BellWords<Atomic> words_;
  queue::Bell<Atomic, PatientFutex<Timer::never>> bell_{&words_};
};

template <Bug kBug>
class ModelMonitor {
 public:
  template <class Function>
  void locked(Function&& function) {
    lock();
    function();
    unlock();
  }
  template <class Begin, class Done>
  void wait(Begin&& begin, Done&& done) {
    lock();
    begin();
    while (kBug != Bug::does_not_wait_for_the_order && !done()) {
      const std::uint32_t seen = told_.load(std::memory_order_relaxed);
      unlock();
      while (told_.load(std::memory_order_relaxed) == seen) pause();
      lock();
    }
    unlock();
  }
  void tell() { told_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void lock() {
    while (held_.exchange(1, std::memory_order_acquire) != 0) pause();
  }
  void unlock() { held_.store(0, std::memory_order_release); }

  Atomic<std::uint32_t> held_{0};
  Atomic<std::uint32_t> told_{0};
};

// No rounds in vain before it sleeps. One that finds something open goes on when another thread has
// moved.
template <Bug kBug, Timer kTimer, template <class> class A, template <class> class SleeperA>
struct ModelSystem {
  template <class T>
  using Atomic = A<T>;
  using Monitor = ModelMonitor<kBug>;
  using Sleeper = queue::Sleeper<SleeperA, PatientFutex<kTimer>>;
  static constexpr int kIdleRounds = 0;
  static constexpr int kWaitRounds = 1 << 30;
  static void relax() { pause(); }
  static void yield() { pause(); }
};

struct Body {
  Plain<std::uint32_t> what;
};

// OffloadGate, and a worker inside.
template <Shape kShape, Bug kBug, template <class> class A, template <class> class SleeperA>
class ModelGate {
 public:
  using Rounds = worker::ExecutorRounds<ModelGate, ModelBell<kBug>, ModelSystem<kBug, kShape.timer, A, SleeperA>>;

  ModelGate() {
    inside_.name("the inside");
    aside_sleeps_.name("sleeps aside");
  }
  void begin(Rounds* executor) {
    executor_ = executor;
    executor_->add(this);
  }
  void end() {
    executor_->remove(this);
    ended_ = true;
  }

  // ---- any thread ----
  void post(What what) {
    const auto claim = queue_.claim();
    check(bool(claim), "there is room");
    queue_.body(claim).what.store(what);
    if (queue_.publish(claim) && kBug != Bug::posts_without_waking) executor_->wake();
  }
  // OffloadGate::post_now() and post_aside()
  void post_where_it_may(What what) {
    if (!kShape.direct || !standby_.aside() || queue_.claimed() != queue_.executed() || !door_.try_lock())
      return post(what);
    Side side{*this, false};
    execute(what);
    side.leave();
  }
  // Gate::progress()
  void progress() {
    if (!door_.try_lock()) return;
    Side side{*this, false};
    count_poll();
    static_cast<void>(side.drain());
    static_cast<void>(side.poll());
    side.leave();
  }
  // A callback that posts on its way out, of a thread that makes no progress.
  void post_inside(What what) {
    while (!door_.try_lock()) pause();
    Side side{*this, false};
    execute(what);
    side.leave();
  }
  // Gate::start() of a call
  void queue_call() {
    if (kBug != Bug::calls_without_counting && standby_.call_begins()) executor_->wake();
    sleeps_at_call_ = sleeps_aside();
    post(kCall);
  }
  void await(std::uint32_t ended) const {
    while (ended_commands_.load(std::memory_order_acquire) < ended) pause();
  }
  // A peer.
  void send() {
    step();
    arrived_.store(1, std::memory_order_release);
    if (queue::disarmed_by_me(armed_)) executor_->wake();
  }
  [[nodiscard]] std::uint32_t sleeps_aside() const { return aside_sleeps_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t sleeps_at_last_end() const { return sleeps_at_last_end_; }

  // ---- the executor ----
  Round execute_round() {
    check(!ended_, "a gate that was removed is left alone");
    Side side{*this, true};
    const Round found = standby_.round(side);
    check(!ended_, "a gate that was removed is left alone");
    if (found == Round::aside || found == Round::aside_briefly) check_sleep(found);
    return found;
  }
  [[nodiscard]] bool aside() const { return standby_.aside(); }
  [[nodiscard]] bool prepare_sleep() {
    Side side{*this, true, true};
    return standby_.prepare_sleep(side);
  }
  [[nodiscard]] bool prepare_nap() {
    Side side{*this, true, true};
    return standby_.prepare_nap(side);
  }
  [[nodiscard]] bool is_quiet() {
    Side side{*this, true, true};
    return standby_.is_quiet(side);
  }
  void end_sleep() {
    Side side{*this, true};
    standby_.end_sleep(side);
  }

  // When the threads have ended.
  void check_end(std::uint32_t ended) {
    check(queue_.claimed() == queue_.executed(), "no command is left behind");
    check(ended_commands_.load() == ended, "each command has ended");
    check(under_way_ == 0, "nothing is under way");
    check(inside_.load() + polled_ == ended, "nothing is executed twice");
  }

 private:
  struct Side {
    ModelGate& gate;
    bool executor;
    bool sleeping = false;

    // Before it sleeps: one that is refused looks again when another thread has moved. In a round
    // it is relax() that waits.
    bool enter() {
      if (gate.door_.try_lock()) return true;
      if (sleeping) pause();
      return false;
    }
    void leave() {
      const bool wake = gate.standby_.must_wake_executor(*this);
      gate.door_.unlock();
      if (wake && kBug != Bug::leaves_without_waking) gate.executor_->wake();
    }
    std::size_t drain() {
      std::size_t done = 0;
      gate.stalled_ = false;
      typename Queue::Command command;
      while (gate.queue_.take(&command)) {
        const std::uint32_t what = gate.queue_.body(command).what.load();
        if (what == kCall && !executor) {
          gate.queue_.put_back(command.position);
          gate.stalled_ = true;
          break;
        }
        gate.execute(what);
        gate.queue_.release(command);
        ++done;
      }
      return done;
    }
    std::size_t poll() {
      if (executor) gate.count_poll();
      const std::uint32_t arrived = gate.arrived_.load(std::memory_order_acquire);
      const std::uint32_t news = arrived - std::exchange(gate.polled_, arrived);
      const std::uint32_t ends = std::exchange(gate.under_way_, 0U);
      for (std::uint32_t i = 0; i < news + ends; ++i) gate.end_one();
      return news + ends;
    }
    [[nodiscard]] std::uint64_t polls() const { return gate.looked_ = gate.polls_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool stalled() const { return gate.stalled_; }
    [[nodiscard]] bool under_way() const { return gate.under_way_ != 0; }
    [[nodiscard]] bool can_ring() const { return true; }
    bool arm() {
      gate.armed_.store(1, std::memory_order_relaxed);
      return true;
    }
    [[nodiscard]] bool has_arrivals() const {
      return kBug != Bug::does_not_look_again && gate.arrived_.load(std::memory_order_acquire) != gate.polled_;
    }
    bool prepare_queue() {
      if (kBug == Bug::bit_set_without_a_look) {
        gate.blind_ = true;
        return true;
      }
      if (gate.queue_.prepare_sleep()) return true;
      pause();  // claimed, and visible soon
      return false;
    }
    bool wake_queue() {
      return kBug == Bug::bit_set_without_a_look ? std::exchange(gate.blind_, false) : gate.queue_.wake_up();
    }
    [[nodiscard]] bool crowded() const { return kShape.crowded; }
  };
  using Queue = queue::CommandQueue<Body, Atomic>;

  void count_poll() {
    const std::uint64_t more = kBug == Bug::counts_polls_twice ? 2 : 1;
    polls_.store(polls_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  void execute(std::uint32_t what) {
    inside_.store(inside_.load() + 1);
    if (what == kPolled) {
      ++under_way_;
      return;
    }
    if (what == kCall) {
      standby_.call_ends();
      check(sleeps_aside() <= sleeps_at_call_ + 1, "a call waits for one sleep at most");
    }
    end_one();
  }
  void end_one() {
    sleeps_at_last_end_ = sleeps_aside();
    ended_commands_.store(ended_commands_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // The executor's. One sleep without a look for each time that others are seen to poll, and few
  // more.
  void check_sleep(Round found) {
    aside_sleeps_.store(aside_sleeps_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (found == Round::aside) {
      check(looked_ != looked_at_aside_, "it sleeps without a look only when others have polled");
      looked_at_aside_ = looked_;
      brief_ = 0;
    } else {
      check(++brief_ <= Limits::kLooksBetweenWaits, "it does not stand aside for ever");
    }
  }

  Rounds* executor_ = nullptr;
  queue::TryLock<Atomic> door_;
  Queue queue_{4};
  Atomic<std::uint64_t> polls_{0};
  worker::Standby<Atomic, Limits> standby_;
  Atomic<std::uint32_t> ended_commands_{0};
  Atomic<std::uint32_t> arrived_{0};
  Atomic<std::uint32_t> armed_{0};
  Atomic<std::uint32_t> aside_sleeps_{0};
  // for the thread inside
  Plain<std::uint32_t> inside_;  // commands that were executed
  std::uint32_t under_way_ = 0;
  std::uint32_t polled_ = 0;  // arrivals
  bool stalled_ = false;
  bool blind_ = false;
  std::uint32_t sleeps_at_last_end_ = 0;
  std::uint32_t sleeps_at_call_ = 0;  // written before the call is queued
  // of the executor
  std::uint64_t looked_ = 0;  // polls() at its last look
  std::uint64_t looked_at_aside_ = 0;
  std::uint32_t brief_ = 0;
  bool ended_ = false;
};

// Thread 0 is the executor. Thread 1 posts, waits, and closes at the end. Others as the shape says.
template <Shape kShape, Bug kBug = Bug::none, template <class> class A = Atomic,
          template <class> class SleeperA = Atomic>
struct StandbyModel final : Model {
  using Gate = ModelGate<kShape, kBug, A, SleeperA>;
  using Rounds = typename Gate::Rounds;
  static constexpr bool kThird = kShape.order || kShape.call || kShape.other;
  static constexpr std::uint32_t kEnds =
      kShape.commands + (kShape.inside ? 1 : 0) + (kShape.message ? 1 : 0) + (kShape.call ? 1 : 0);
  static constexpr std::uint32_t kPeer = 2;
  static constexpr std::uint32_t kOther = kPeer + (kShape.message ? 1 : 0);

  ModelBell<kBug> bell;
  Rounds executor{&bell};
  Gate gate;
  Gate other;
  Atomic<std::uint32_t> finished{0};  // the third thread
  std::uint32_t left_at = 0;          // sleeps aside when the last command was posted
  bool called = false;

  StandbyModel() {
    gate.begin(&executor);
    if (kShape.other) other.begin(&executor);
  }
  [[nodiscard]] std::uint32_t threads() const override { return kOther + (kThird ? 1 : 0); }
  void run(std::uint32_t thread) override {
    if (thread == 0) return executor.run();
    if (thread == 1) return wait();
    if (thread == kPeer && kShape.message) return gate.send();
    if (kShape.order) order();
    if (kShape.call) gate.queue_call();
    if (kShape.other) produce();
    finished.store(1, std::memory_order_release);
  }
  void wait() {
    for (std::uint32_t i = 0; i < kShape.commands; ++i) {
      gate.post_where_it_may(kShape.what);
      const bool leaves = kShape.direct && i + 1 == kShape.commands;  // it posts, and goes away
      for (std::uint32_t look = 0; look < kShape.looks && !leaves; ++look) gate.progress();
    }
    if (kShape.inside) {
      gate.await(kShape.commands);
      gate.post_inside(kPolled);
    }
    left_at = gate.sleeps_aside();
    gate.await(kEnds);
    while (kThird && finished.load(std::memory_order_acquire) == 0) pause();
    gate.end();
    if (kShape.other) other.end();
    executor.stop();
  }
  void order() {
    worker::ExecutorCall call;
    call.function = this;
    call.run = [](void* self) { static_cast<StandbyModel*>(self)->called = true; };
    executor.call(call);
    check(call.done && called, "a call has run when it returns");
  }
  void produce() {
    other.post(kShort);
    other.await(1);
  }
  void finish() override {
    gate.check_end(kEnds);
    if (kShape.other) other.check_end(1);
    if (kShape.call || kShape.message) return;  // they end after what was left
    check(gate.sleeps_at_last_end() <= left_at + 2, "what is left behind waits for two sleeps at most");
  }
};

// A thread without gates that is to end: small enough for weak memory.
template <template <class> class A = Atomic, template <class> class SleeperA = Atomic>
struct EndModel final : Model {
  typename ModelGate<Shape{}, Bug::none, A, SleeperA>::Rounds rounds{nullptr};

  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override { thread == 0 ? rounds.run() : rounds.stop(); }
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

// More than two threads, or weak memory, have more schedules than there is time for.
constexpr Options kOne{.weak = false, .preemptions = 1};
constexpr Options kTwo{.weak = false, .preemptions = 2};
constexpr Options kThree{.weak = false, .preemptions = 3};
constexpr Options kWeakTwo{.weak = true, .preemptions = 2};

constexpr Shape kNobodyPolls{.looks = 0, .crowded = false};
constexpr Shape kPostsInside{.looks = 0, .crowded = false, .inside = true};
constexpr Shape kMessage{.commands = 0, .looks = 0, .crowded = false, .message = true};
constexpr Shape kOneWaits{};
constexpr Shape kTwoCommands{.commands = 2};
constexpr Shape kAsideMessage{.message = true};
constexpr Shape kAsideInside{.inside = true};
constexpr Shape kAsideDirect{.commands = 2, .what = kPolled, .direct = true};
constexpr Shape kOrder{.timer = Timer::never, .order = true};
constexpr Shape kCallQueued{.looks = 2, .call = true};
constexpr Shape kOtherGate{.timer = Timer::never, .other = true};

TEST(Standby, SleepsAndIsWokenInAllSchedules) {
  expect_holds<EndModel<>>("executor ends", kOrdered);
  expect_holds<StandbyModel<kNobodyPolls>>("executor sleeps, 1 producer", kThree);
  expect_holds<StandbyModel<kPostsInside>>("executor sleeps, 1 posts inside", kTwo);
  expect_holds<StandbyModel<kMessage>>("executor sleeps, 1 message comes", kTwo);
}

// The sleeps aside have an end, which the schedule chooses.
TEST(Standby, StandsAsideAndComesBackInAllSchedules) {
  expect_holds<StandbyModel<kOneWaits>>("aside, 1 waits", kThree);
  expect_holds<StandbyModel<kTwoCommands>>("aside, 1 waits twice", kTwo);
  expect_holds<StandbyModel<kAsideInside>>("aside, 1 waits and leaves something", kTwo);
  expect_holds<StandbyModel<kAsideMessage>>("aside, 1 waits, a message comes", kOne);
  expect_holds<StandbyModel<kCallQueued>>("aside, 1 waits, a call by the queue", kOne);
  expect_holds<StandbyModel<kAsideDirect>>("aside, 1 waits and posts by itself", kTwo);
}

TEST(StandbySlow, StandsAsideTwiceAndComesBackInAllSchedules) {
  expect_holds<StandbyModel<kTwoCommands>>("aside, 1 waits twice", kThree);
}

// They have none: it must be woken.
TEST(Standby, OrdersAndOtherGatesDoNotRelyOnTheEndOfASleep) {
  expect_holds<StandbyModel<kOrder>>("aside for ever, a call by order", kOne);
  expect_holds<StandbyModel<kOtherGate>>("aside for ever, another gate", kOne);
}

TEST(Standby, WhatAWaiterLeavesBehindReliesOnTheEndOfASleep) {
  static constexpr Shape kLeft{.timer = Timer::never, .inside = true};
  static constexpr Shape kCallLeft{.timer = Timer::never, .call = true};
  expect_finds<StandbyModel<kLeft>>("aside for ever, something left", kTwo, "waits for ever");
  expect_finds<StandbyModel<kCallLeft>>("aside for ever, a call by the queue", kTwo, "waits for ever");
}

TEST(Standby, PlantedBugsOfThoseWhoWantSomethingAreFound) {
  expect_finds<StandbyModel<kNobodyPolls, Bug::posts_without_waking>>("posts without waking", kTwo, "waits for ever");
  expect_finds<StandbyModel<kPostsInside, Bug::leaves_without_waking>>("leaves something without waking", kTwo,
                                                                       "waits for ever");
  expect_finds<StandbyModel<kAsideDirect, Bug::leaves_without_waking>>("posts by itself without waking", kThree,
                                                                       "waits for ever");
  expect_finds<StandbyModel<kCallQueued, Bug::calls_without_counting>>("a call that is not counted", kThree,
                                                                       "one sleep at most");
  expect_finds<StandbyModel<kOneWaits, Bug::counts_polls_twice>>("takes its own polls for those of others", kTwo,
                                                                 "no end in sight");
  expect_finds<StandbyModel<kNobodyPolls, Bug::does_not_wait_for_the_order>>("does not wait for its order", kTwo,
                                                                             "left alone");
  expect_finds<EndModel<RelaxedStores>>("orders without release", kOrdered, "waits for ever");
}

TEST(Standby, PlantedBugsOfTheSleeperAreFound) {
  expect_finds<StandbyModel<kNobodyPolls, Bug::bit_set_without_a_look>>("the bit set without a look at the tail", kTwo,
                                                                        "waits for ever");
  expect_finds<StandbyModel<kMessage, Bug::does_not_look_again>>("no second look", kTwo, "waits for ever");
  expect_finds<StandbyModel<kMessage, Bug::does_not_settle>>("does not settle", kWeakTwo, "waits for ever");
  expect_finds<StandbyModel<kNobodyPolls, Bug::bell_read_late>>("the bell is read late", kTwo, "waits for ever");
  expect_finds<EndModel<Atomic, BlindSwap>>("a sleeper that overlooks the token", kOrdered, "waits for ever");
}

}  // namespace
}  // namespace heddle::explore::standby_explore_test
