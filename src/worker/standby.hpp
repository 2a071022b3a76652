// Decides which threads do the work of an offload worker: its executor, or the threads that wait on
// it. It is the executor's part of the gate; `Side` does the work inside the worker.
// gate_offload.hpp has the Side that is used, tests/explore has one that is explored.
//
// Where threads share cores, a thread that waits would have to give its core to the executor for
// each event that it waits for, and the executor would have to give the core back. But such a
// thread does the executor's work by itself whenever it polls. So the executor stands aside while
// others poll, and for some looks more, since they may be between two waits. It does not stand
// aside for a thread that computes and polls only now and then. Decision 0043.
//
// Invariants
//   A thread that takes commands sleeps without an end only while the queue's sleeping bit is set:
//   the producer that clears the bit wakes it. A thread that polls sleeps without an end only while
//   nothing is under way and the worker is armed: a thread inside that leaves something under way
//   wakes it.
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
//   crowded()             threads share cores
//   apart()               another thread polls
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace heddle::engine {

// The part of the work that a thread of an executor does.
enum class ExecutorRole : std::uint8_t {
  both,
  commands,    // takes and posts; does not poll
  completions  // polls
};

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
  // 200 us at most, if no thread waits any more.
  static constexpr std::uint32_t kLooksBetweenWaits = 4;
};

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

  // Called inside, before the thread leaves. True: the polling thread sleeps, or is about to,
  // though something is under way; the caller must wake it after it has left. Only the thread
  // inside sets the queue's bit.
  template <class Side>
  [[nodiscard]] bool must_wake_poller(Side& side) {
    return wanted_by_work(side) && (side.apart() ? std::exchange(poller_asleep_, false) : side.wake_queue());
  }

  // ---- the executor's threads ----
  template <class Side>
  Round round(Side& side, ExecutorRole role) {
    const Others others = role == ExecutorRole::both ? look_at_others(side) : Others::do_not_wait;
    stand_aside(others == Others::wait);
    if (aside()) return Round::aside;
    if (!side.enter()) return Round::waiting;
    std::size_t done = role != ExecutorRole::completions ? side.drain() : 0;
    if (role != ExecutorRole::commands) {
      ++own_polls_;
      poller_asleep_ = false;
      done += side.poll();
    }
    const bool open = role == ExecutorRole::commands ? side.stalled() : wanted_by_work(side);
    side.leave();
    if (done != 0) return Round::busy;
    if (open) return Round::waiting;
    stand_aside(others == Others::waited_lately);
    return aside() ? Round::aside_briefly : Round::idle;
  }

  // True: the thread may sleep. The next producer will wake the thread that takes commands. A
  // thread that leaves something under way will wake the thread that polls, and so will arrivals,
  // once the transport has settled and if is_quiet() is true then. end_sleep() must follow,
  // whatever the result.
  template <class Side>
  [[nodiscard]] bool prepare_sleep(Side& side, ExecutorRole role) {
    if (!side.enter()) return false;
    bool may = role == ExecutorRole::commands ? !side.stalled() : !wanted_by_work(side);
    // If the transport cannot ring, it is not armed, and the sleep is short.
    if (may && role != ExecutorRole::commands && side.can_ring()) may = side.arm();
    if (may && role != ExecutorRole::completions) may = side.prepare_queue();
    if (role == ExecutorRole::completions) poller_asleep_ = may;
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
  void end_sleep(Side& side, ExecutorRole role) {
    if (role != ExecutorRole::completions) static_cast<void>(side.wake_queue());
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
    const bool wait = others - std::exchange(seen_polls_, others) >= Limits::kPollsOfAWait;
    if (calls_.load(std::memory_order_relaxed) != 0 || !(aside() || side.crowded())) {
      looks_left_ = 0;
      return Others::do_not_wait;
    }
    if (wait) looks_left_ = Limits::kLooksBetweenWaits + 1;
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
  std::uint32_t looks_left_ = 0;  // at which threads that have waited still count as waiting
  // Written by the executor, read by any thread. Relaxed: a thread that misses it waits until the
  // executor looks again, which is soon.
  Atomic<bool> aside_{false};
  // The number of calls that wait for the executor's thread, or are about to: the executor does not
  // stand aside for long while there is one. Relaxed: as aside_.
  Atomic<std::uint32_t> calls_{0};
  // For the thread inside: a thread that only polls sleeps, or is about to.
  bool poller_asleep_ = false;
};

}  // namespace heddle::engine
