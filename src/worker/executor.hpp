// The threads of the offload mode: when they stand aside for threads that wait (Standby), their
// rounds, sleep and wake-ups, and the executor of a context.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/cache_line.hpp"
#include "base/wait.hpp"
#include "queue/bell.hpp"
#include "transport/transport.hpp"

namespace heddle::worker {

// The result of a round at one gate. If the thread has several gates, the largest result counts.
enum class Round : std::uint8_t {
  idle,
  aside,          // threads that wait do its work
  aside_briefly,  // they may, soon: they did lately
  waiting,        // for something that only polling shows, or for the thread inside
  busy
};

struct StandbyLimits {
  static constexpr std::uint64_t kPollsOfAWait = 8;
  // A look after a sleep of twice the length takes twice as many, up to four times.
  static constexpr std::uint32_t kMostDoublings = 2;
  // 200 us at most, if no thread waits any more.
  static constexpr std::uint32_t kLooksBetweenWaits = 4;
};

// Decides which threads do the work of an offload worker: its executor, or the threads that wait on
// it. It is the executor's part of the gate; `Side` does the work inside the worker.
// gate_modes.hpp has the Side that is used, tests/explore has one that is explored.
//
// Where there is no spare core for the executor, a thread that waits would have to give its core to
// the executor for each event that it waits for, and the executor would have to give the core back.
// But such a thread does the executor's work by itself whenever it polls. So the executor stands
// aside while others poll, and for some looks more, since they may be between two waits. It does
// not stand aside for a thread that computes and polls only now and then. Decision 0043.
//
// Invariants
//   The executor sleeps without an end only while the queue's sleeping bit is set, nothing is under
//   way and the worker is armed: the producer that clears the bit wakes it, and so does a thread
//   inside that leaves something under way.
//   While the executor is aside neither holds; its sleeps have an end. Since the last poll of
//   others at most two of these sleeps end without a look inside: the one during which they polled,
//   and the next one, since they seemed to wait. kLooksBetweenWaits follow, with a look before
//   each.
//   While a call waits for the executor's thread, the executor does not begin to stand aside once
//   it has seen the call.
//
// Side, for the thread that calls:
//   enter(), leave()      false: somebody else is inside
//   drain()               how many commands were started
//   poll()                counts the poll as polls() does; how many events
//   polls()               of any thread
//   stalled(), under_way()      inside: of the queue; of the completer
//   can_ring(), arm(), has_arrivals()   of the transport, inside
//   prepare_queue(), wake_queue()       of the queue's sleeping bit
//   crowded()             threads share cores, or would if the executor took part
template <template <class> class Atomic = std::atomic, class Limits = StandbyLimits>
class Standby {
 public:
  // ---- any thread ----
  // The last round was Round::aside or aside_briefly.
  [[nodiscard]] bool aside() const { return aside_.load(std::memory_order_relaxed); }
  // A call is about to be queued for the executor's thread. True: wake it.
  [[nodiscard]] bool call_begins() {
    calls_.fetch_add(1, std::memory_order_relaxed);
    return aside();
  }
  // It has run, or will not be queued.
  void call_ends() { calls_.fetch_sub(1, std::memory_order_relaxed); }

  // Called inside, before the thread leaves. True: the executor sleeps, or is about to, though
  // something is under way; the caller must wake it after it has left. Only the thread inside sets
  // the queue's bit.
  template <class Side>
  [[nodiscard]] bool must_wake_executor(Side& side) {
    return wanted_by_work(side) && side.wake_queue();
  }

  // ---- the executor ----
  template <class Side>
  Round round(Side& side) {
    const Others others = look_at_others(side);
    stand_aside(others == Others::wait);
    if (aside()) return Round::aside;
    if (!side.enter()) return Round::waiting;
    std::size_t done = side.drain();
    ++own_polls_;
    done += side.poll();
    const bool open = wanted_by_work(side);
    side.leave();
    if (done != 0) return Round::busy;
    if (open) return Round::waiting;
    stand_aside(others == Others::waited_lately);
    return aside() ? Round::aside_briefly : Round::idle;
  }

  // True: the executor may sleep. The next producer will wake it, and so will a thread that leaves
  // something under way, and arrivals, once the transport has settled and if is_quiet() is true
  // then. end_sleep() must follow, whatever the result.
  template <class Side>
  [[nodiscard]] bool prepare_sleep(Side& side) {
    if (!side.enter()) return false;
    bool may = !wanted_by_work(side);
    // If the transport cannot ring, it is not armed, and the sleep is short.
    if (may && side.can_ring()) may = side.arm();
    may = may && side.prepare_queue();
    side.leave();
    return may;
  }
  // The same for a short sleep, which serves arrivals by its end: only producers, and threads that
  // leave something under way, will wake the executor.
  template <class Side>
  [[nodiscard]] bool prepare_nap(Side& side) {
    if (!side.enter()) return false;
    const bool may = !side.stalled() && side.prepare_queue();
    side.leave();
    return may;
  }
  template <class Side>
  [[nodiscard]] bool is_quiet(Side& side) {
    if (!side.can_ring()) return true;
    if (!side.enter()) return false;
    const bool quiet = !side.has_arrivals();
    side.leave();
    return quiet;
  }
  template <class Side>
  void end_sleep(Side& side) {
    static_cast<void>(side.wake_queue());
  }

 private:
  enum class Others : std::uint8_t { do_not_wait, waited_lately, wait };

  // Something is under way that only polling shows, or that a peer waits for. Called inside.
  template <class Side>
  [[nodiscard]] static bool wanted_by_work(Side& side) {
    return side.stalled() || side.under_way();
  }

  template <class Side>
  Others look_at_others(Side& side) {
    const std::uint64_t others = side.polls() - own_polls_;
    const std::uint64_t polls = others - std::exchange(seen_polls_, others);
    const bool wait = polls >= Limits::kPollsOfAWait << std::min(doublings_, Limits::kMostDoublings);
    const bool lately = polls >= Limits::kPollsOfAWait;
    if (calls_.load(std::memory_order_relaxed) != 0 || !(aside() || side.crowded())) {
      looks_left_ = 0;
      return Others::do_not_wait;
    }
    doublings_ = wait && aside() ? doublings_ + 1 : 0;
    if (lately) looks_left_ = Limits::kLooksBetweenWaits + 1;
    if (looks_left_ == 0) return Others::do_not_wait;
    --looks_left_;
    return wait ? Others::wait : Others::waited_lately;
  }

  void stand_aside(bool now) {
    if (now != aside()) aside_.store(now, std::memory_order_relaxed);
  }

  // The executor's.
  std::uint64_t own_polls_ = 0;
  std::uint64_t seen_polls_ = 0;  // of others, at the last look
  std::uint32_t doublings_ = 0;   // of the sleep, as long as others wait
  std::uint32_t looks_left_ = 0;  // at which threads that have waited still count as waiting
  // Written by the executor, read by each thread that posts. Relaxed: a thread that misses it
  // waits until the executor looks again, which is soon.
  alignas(base::kCacheLine) Atomic<bool> aside_{false};
  // The number of calls that wait for the executor's thread, or are about to: the executor does not
  // stand aside for long while there is one. Relaxed: as aside_.
  Atomic<std::uint32_t> calls_{0};
};

// A mutex, and threads that wait for what it guards to change.
class Monitor {
 public:
  template <class Function>
  void locked(Function&& function) {
    const std::lock_guard lock(mutex_);
    function();
  }
  // Runs begin() and waits until done(), both locked.
  template <class Begin, class Done>
  void wait(Begin&& begin, Done&& done) {
    std::unique_lock lock(mutex_);
    begin();
    changed_.wait(lock, done);
  }
  // Locked.
  void tell() { changed_.notify_all(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct RoundsSystem {
  template <class T>
  using Atomic = std::atomic<T>;
  using Monitor = worker::Monitor;
  using Sleeper = queue::Sleeper<>;

  // Rounds without work before the thread sleeps: a few microseconds, about what waking it costs a
  // producer.
  static constexpr int kIdleRounds = 200;
  // Rounds without events before the thread gives its core to others, since the answer may have to
  // be computed there.
  static constexpr int kWaitRounds = 1000;

  static void relax() { base::cpu_relax(); }
  static void yield() { sched_yield(); }
};

// A call, on its caller's stack.
struct ExecutorCall {
  void (*run)(void*) = nullptr;
  void* function = nullptr;
  ExecutorCall* next = nullptr;
  bool done = false;  // guarded, as the list is
  std::exception_ptr thrown;
};

// The hand-over between a thread that visits its gates in turn and all threads that want something
// from it: all of Executor except the thread itself. The thread sleeps between two rounds, and
// takes orders there. Another thread first makes its request known (by the queue's sleeping bit,
// something under way, or an order), then wakes this thread.
//
// Invariants
//   sleep() has no end, or a very long one. Every wake-up is set up before the thread looks for the
//   last time: the bell's number is read before prepare_sleep(), the sleeping bits are set and the
//   worker is armed in it, and the transport settles before is_quiet(). So a thread that comes
//   later finds a reason to wake this thread, and the wake-up is kept: the bell has another number,
//   or the sleeper a token.
//   sleep_aside() is short. Its end is what serves the gates that stand aside, and arrivals at the
//   other gates; producers of the other gates, orders and calls wake the thread.
//   An order is counted before orders_ is set, and orders_ is set before the wake-up. remove() and
//   call() return when the thread has taken theirs; the thread has let a gate go before it says so.
//
// Gate: execute_round(), aside(), prepare_sleep(), prepare_nap(), is_quiet(), end_sleep(), as
// Standby has them. Bell: bell(), ring(), settle(), wait(), as transport.hpp has them.
template <class Gate, class Bell, class System = RoundsSystem>
class ExecutorRounds {
 public:
  // `bell`: on which it sleeps if it has gates; null: on a word of its own.
  explicit ExecutorRounds(Bell* bell) : bell_(bell) {}
  ExecutorRounds(const ExecutorRounds&) = delete;
  ExecutorRounds& operator=(const ExecutorRounds&) = delete;

  // ---- any other thread ----
  void add(Gate* gate) {
    monitor_.locked([&] {
      wanted_.push_back(gate);
      ++given_;
      orders_.store(true, std::memory_order_release);
    });
    wake();
  }
  // Afterwards the thread does not touch the gate.
  void remove(Gate* gate) {
    std::uint64_t order = 0;  // none: it is not there
    monitor_.wait(
        [&] {
          if (std::erase(wanted_, gate) == 0) return;
          order = ++given_;
          orders_.store(true, std::memory_order_release);
          wake();
        },
        [&] { return done_ >= order; });
  }
  // Returns when the call has run; `thrown` has its exception.
  void call(ExecutorCall& call) {
    monitor_.wait(
        [&] {
          call.next = std::exchange(calls_, &call);
          orders_.store(true, std::memory_order_release);
          wake();
        },
        [&] { return call.done; });
  }
  // run() returns within one round.
  void stop() {
    stop_.store(true, std::memory_order_relaxed);
    orders_.store(true, std::memory_order_release);
    wake();
  }
  void wake() {
    sleeper_.wake();
    if (bell_ != nullptr) bell_->ring();
  }

  // ---- the thread ----
  void run() {
    int fruitless = 0;
    std::int64_t aside_ns = kAsideNs;
    for (;;) {
      if (orders_.load(std::memory_order_acquire)) [[unlikely]] {
        take_orders();
        if (stop_.load(std::memory_order_relaxed)) return;
      }
      Round found = Round::idle;
      bool all_aside = true;
      for (Gate* gate : gates_) {
        const Round here = gate->execute_round();
        found = std::max(found, here);
        all_aside = all_aside && here == Round::aside;
      }
      if (found == Round::busy) {
        fruitless = 0;
        aside_ns = kAsideNs;
        continue;
      }
      if (found == Round::aside_briefly) aside_ns = kAsideNs;
      if (found == Round::aside || found == Round::aside_briefly) {
        aside_ns = std::min(aside_ns, all_aside ? kMostAsideNs : kMostBesideNs);
        sleep_aside(aside_ns);
        aside_ns *= 2;
        continue;
      }
      aside_ns = kAsideNs;
      ++fruitless;
      if (found == Round::idle && fruitless > System::kIdleRounds) {
        fruitless = 0;
        sleep();
      } else if (fruitless > System::kWaitRounds) {
        System::yield();
      } else {
        System::relax();
      }
    }
  }

 private:
  // How long it stands aside for threads that do its work, at first and at most. Work that they
  // leave behind may wait that long.
  static constexpr std::int64_t kAsideNs = 50'000;
  static constexpr std::int64_t kMostAsideNs = 1'000'000;
  // The same while nobody waits on another of its gates, where arrivals wait meanwhile.
  static constexpr std::int64_t kMostBesideNs = 200'000;
  // If the transport cannot ring, the thread looks at it so often.
  static constexpr std::int64_t kDeafSleepNs = 1'000'000;
  // A wake-up cannot be lost, as far as we know; if one were, this is how long it would be felt.
  static constexpr std::int64_t kLongestSleepNs = 10'000'000'000;

  void take_orders() {
    ExecutorCall* calls = nullptr;
    monitor_.locked([&] {
      orders_.store(false, std::memory_order_relaxed);
      gates_ = wanted_;
      done_ = given_;
      calls = std::exchange(calls_, nullptr);
      monitor_.tell();
    });
    if (calls != nullptr) run_calls(calls);
  }

  // In the order in which they came.
  void run_calls(ExecutorCall* first) {
    ExecutorCall* ordered = nullptr;
    while (first != nullptr) {
      ExecutorCall* const next = std::exchange(first->next, ordered);
      ordered = std::exchange(first, next);
    }
    while (ordered != nullptr) {
      ExecutorCall& call = *ordered;
      ordered = call.next;
      try {
        call.run(call.function);
      } catch (...) {
        call.thrown = std::current_exception();
      }
      monitor_.locked([&] {
        call.done = true;  // and its caller may be gone
        monitor_.tell();
      });
    }
  }

  void sleep() {
    const std::uint32_t seen = bell_ != nullptr ? bell_->bell() : 0;
    if (prepare_sleep()) {
      // Without gates nothing that arrives concerns it.
      if (bell_ != nullptr && !gates_.empty()) {
        // A thread that gives an order rings after it: either the order is seen here, or the bell
        // has rung since.
        if (!orders_.load(std::memory_order_acquire)) bell_->wait(seen, kLongestSleepNs, queue::kEveryPlace);
      } else {
        static_cast<void>(sleeper_.sleep(gates_.empty() ? -1 : kDeafSleepNs));
      }
    }
    for (Gate* gate : gates_) gate->end_sleep();
  }

  // At least one gate stands aside, and none has work. Producers of the others wake this thread.
  void sleep_aside(std::int64_t ns) {
    bool may = true;
    for (Gate* gate : gates_) may = gate->aside() || gate->prepare_nap() ? may : false;
    if (may) static_cast<void>(sleeper_.sleep(ns));
    for (Gate* gate : gates_) {
      if (!gate->aside()) gate->end_sleep();
    }
  }

  // True: from now on, anything that one of the gates wants wakes this thread.
  bool prepare_sleep() {
    for (Gate* gate : gates_) {
      if (!gate->prepare_sleep()) return false;
    }
    if (bell_ != nullptr && !gates_.empty()) bell_->settle();
    return std::all_of(gates_.begin(), gates_.end(), [](Gate* gate) { return gate->is_quiet(); });
  }

  Bell* const bell_;
  std::vector<Gate*> gates_;  // the thread's
  typename System::Sleeper sleeper_;
  typename System::template Atomic<bool> stop_{false};  // relaxed: orders_ orders it
  // release by the thread that gives them, acquire by this thread; before each wake()
  typename System::template Atomic<bool> orders_{false};
  typename System::Monitor monitor_;  // guards what follows
  std::vector<Gate*> wanted_;
  ExecutorCall* calls_ = nullptr;  // the last one first
  std::uint64_t given_ = 0;
  std::uint64_t done_ = 0;
};

class OffloadGate;

// The thread of the offload mode: it takes the commands of its workers from their queues in
// batches, hands them to the transport, polls, and runs handlers and callbacks. A context has one,
// which starts with its first offload worker. Decision 0021.
//
// With nothing to do the thread looks a little longer, then sleeps on the transport's bell (each
// worker armed, so that what arrives wakes it). A producer that finds the sleeping bit of its queue
// wakes it, and so does a thread that leaves something under way inside a worker.
//
// Gates are added and removed by orders, which the thread takes between two rounds: remove()
// returns when the thread has released the gate. Above are the rounds, the sleep and the orders.
//
// If the transport's library takes calls of one thread only (Capabilities::one_thread), one
// executor of the process serves all workers of all its contexts. It makes the other calls of these
// transports, too (call(); one_thread.hpp). Decision 0028.
class Executor {
 public:
  // `transport`: on whose bell it may sleep; null: it looks now and then. Throws std::system_error
  // if there can be no more threads.
  explicit Executor(transport::Transport* transport);
  ~Executor();  // within one round
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The one that makes all calls of libraries that allow one thread only. It is started at the
  // first call and runs until the process ends, since a restarted thread would be a second one.
  // Throws std::system_error.
  static Executor& of_process();

  // Runs function() on the thread, inside no gate, and waits for it to return; called on that
  // thread, runs it directly. Exceptions of function() reach the caller. The caller must hold
  // nothing that the thread might wait for.
  template <class Function>
  void call(Function&& function) {
    if (is_this_thread()) return function();
    ExecutorCall call;
    call.function = &function;
    call.run = [](void* what) { (*static_cast<std::remove_reference_t<Function>*>(what))(); };
    rounds_.call(call);
    if (call.thrown) std::rethrow_exception(call.thrown);
  }

  void add(OffloadGate* gate) { rounds_.add(gate); }
  // Afterwards the thread does not touch the gate. Must not be called from inside a handler.
  void remove(OffloadGate* gate) { rounds_.remove(gate); }
  // Any thread.
  void wake() { rounds_.wake(); }
  [[nodiscard]] bool is_this_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  ExecutorRounds<OffloadGate, transport::Transport> rounds_;
  std::thread thread_;  // the last: it uses the rounds
};

}  // namespace heddle::worker
