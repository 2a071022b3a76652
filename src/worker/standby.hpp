// Who does the work of an offload worker: its executor, or the threads that wait on it. The
// executor's part of the gate, over what `Side` does inside the worker; gate_offload.hpp has the
// one that is used, tests/explore one that is explored.
//
// Where threads share cores, one that waits would have to give its core to the executor, and the
// executor would have to give it back, for each thing that it waits for. But such a thread does the
// executor's work by itself whenever it polls. So the executor stands aside while others poll, and
// for some looks more, since they may be between two waits. Somebody who computes and polls now and
// then is not enough. Decision 0043.
//
// Invariants
//   A thread that sleeps without an end does so behind the queue's sleeping bit (who takes
//   commands: the producer that clears the bit wakes it) and while nothing is under way (who polls:
//   the worker is armed, and who is inside and leaves something under way wakes it).
//   While the executor is aside neither holds; its sleeps have an end. Since the last poll of
//   others at most two of them end without a look inside: the one during which they polled, and the
//   one after it, since they seemed to wait. kLooksBetweenWaits follow, with a look before each.
//   While a call waits for its thread it does not begin to stand aside once it has seen the call.
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

// What a thread of an executor does.
enum class ExecutorRole : std::uint8_t {
  both,
  commands,    // takes and posts; does not poll
  completions  // polls
};

// What it has found at one gate. The larger one counts where it has several gates.
enum class Round : std::uint8_t {
  idle,
  aside,          // threads that wait do its work
  aside_briefly,  // they may, soon: they did lately
  waiting,        // for what only polling will tell, or who is inside
  busy
};

struct StandbyLimits {
  static constexpr std::uint64_t kPollsOfAWait = 8;
  // 200 us at most, if nobody waits any more.
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

  // Inside, before the thread leaves. True: who polls sleeps, or is about to, though something is
  // under way, and the caller wakes it after it has left. Nobody sets the queue's bit but who is
  // inside.
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

  // True: the next producer will wake who takes commands; who leaves something under way, and what
  // arrives (once the transport has settled, and if is_quiet() then), will wake who polls. Whatever
  // it says, end_sleep() follows.
  template <class Side>
  [[nodiscard]] bool prepare_sleep(Side& side, ExecutorRole role) {
    if (!side.enter()) return false;
    bool may = role == ExecutorRole::commands ? !side.stalled() : !wanted_by_work(side);
    // Armed or not where the transport cannot ring: then the sleep is short.
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

  // Something is under way that only polling will tell, or that a peer waits for. Inside.
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
  std::uint32_t looks_left_ = 0;  // at which those who have waited count as waiting
  // Written by the executor, read by any thread. Relaxed: who misses it waits until the executor
  // looks again, which is soon.
  Atomic<bool> aside_{false};
  // Calls that wait for the executor's thread, or are about to: it does not stand aside for long
  // while there is one. Relaxed: as aside_.
  Atomic<std::uint32_t> calls_{0};
  // For the thread inside: a thread that only polls sleeps, or is about to.
  bool poller_asleep_ = false;
};

}  // namespace heddle::engine
