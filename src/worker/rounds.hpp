// The hand-over between a thread that visits its gates in turn and all threads that want something
// from it: all of executor.hpp's ExecutorLoop except the thread itself. The thread sleeps between
// two rounds, and takes orders there. Another thread first makes its request known (by the queue's
// sleeping bit, something under way, or an order), then wakes this thread.
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
// Gate: execute_round(role), aside(), prepare_sleep(role), is_quiet(), end_sleep(role), as
// standby.hpp has them. Bell: bell(), ring(), settle(), wait(), as transport.hpp has them.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "base/wait.hpp"
#include "queue/bell.hpp"
#include "worker/standby.hpp"

namespace heddle::engine {

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
  using Monitor = engine::Monitor;
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

template <class Gate, class Bell, class System = RoundsSystem>
class ExecutorRounds {
 public:
  // `bell`: on which it sleeps if it has gates; null: on a word of its own.
  ExecutorRounds(ExecutorRole role, Bell* bell) : role_(role), bell_(bell) {}
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
      for (Gate* gate : gates_) found = std::max(found, gate->execute_round(role_));
      if (found == Round::busy) {
        fruitless = 0;
        aside_ns = kAsideNs;
        continue;
      }
      if (found == Round::aside_briefly) aside_ns = kAsideNs;
      if (found == Round::aside || found == Round::aside_briefly) {
        sleep_aside(aside_ns);
        aside_ns = std::min(2 * aside_ns, kMostAsideNs);
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
  static constexpr std::int64_t kMostAsideNs = 200'000;
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
        const bool deaf = role_ != ExecutorRole::commands && !gates_.empty();
        static_cast<void>(sleeper_.sleep(deaf ? kDeafSleepNs : -1));
      }
    }
    for (Gate* gate : gates_) gate->end_sleep(role_);
  }

  // At least one gate stands aside, and none has work. Producers of the others wake this thread.
  void sleep_aside(std::int64_t ns) {
    bool may = true;
    for (Gate* gate : gates_) may = gate->aside() || gate->prepare_sleep(ExecutorRole::commands) ? may : false;
    if (may) static_cast<void>(sleeper_.sleep(ns));
    for (Gate* gate : gates_) {
      if (!gate->aside()) gate->end_sleep(ExecutorRole::commands);
    }
  }

  // True: from now on, anything that one of the gates wants wakes this thread.
  bool prepare_sleep() {
    for (Gate* gate : gates_) {
      if (!gate->prepare_sleep(role_)) return false;
    }
    if (role_ == ExecutorRole::commands) return true;
    if (bell_ != nullptr && !gates_.empty()) bell_->settle();
    return std::all_of(gates_.begin(), gates_.end(), [](Gate* gate) { return gate->is_quiet(); });
  }

  const ExecutorRole role_;
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

}  // namespace heddle::engine
