// Parts of a message that threads mark ready, run after run. It decides which thread posts each
// part: the one that marks it, if the run is open (the receiver has begun it); otherwise the one
// that opens the run.
//
// Invariants (the state of a part in run r is 4r + step, and only grows, except by unclaim())
//   idle → marked → claimed → ended, or idle → claimed → ended. Each step is made by one thread: by
//   compare-and-swap, or by plain stores where one thread makes all calls (`plain`). The thread
//   that has claimed a part posts it, and no other thread does.
//   No part stays marked in a run that is open. The thread that marks reads open_ afterwards, the
//   one that opens reads the parts afterwards, all sequentially consistent, so that at least one of
//   the two sees the other's step; the claim decides between them. The next collect() finds what
//   unclaim() has put back.
//   Run r + 1 is opened when all parts of run r have been claimed. Its parts may be marked earlier,
//   even while the thread that opened run r still looks for marks, if nothing of run r is left to
//   claim: such marks wait for their own run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace heddle::queue {

template <template <class> class Atomic = std::atomic>
class PartMarks {
 public:
  PartMarks(std::uint32_t parts, bool plain)
      : states_(std::make_unique<Atomic<std::uint64_t>[]>(parts)), parts_(parts), plain_(plain) {}

  enum class Marked : std::uint8_t {
    twice,    // it was already marked in this run
    waiting,  // the thread that opens the run claims it
    claimed   // by the caller, which posts it
  };
  // Any thread.
  Marked mark(std::uint32_t part, std::uint64_t run) {
    Atomic<std::uint64_t>& state = states_[part];
    std::uint64_t seen = state.load(std::memory_order_relaxed);
    if (seen >= kSteps * run) return Marked::twice;
    const bool open = open_.load(std::memory_order_acquire) >= run;  // partner: open()
    if (!move(state, seen, kSteps * run + (open ? kClaimed : kMarked))) return Marked::twice;
    if (open) return Marked::claimed;
    if (open_.load(std::memory_order_seq_cst) < run) return Marked::waiting;  // partner: open()
    return move(state, kSteps * run + kMarked, kSteps * run + kClaimed) ? Marked::claimed : Marked::waiting;
  }
  // Opens the run; a thread that claims in it sees what the caller wrote before. One thread at a
  // time, which calls collect() next.
  void open(std::uint64_t run) { open_.store(run, std::memory_order_seq_cst); }
  // The run of the last open(); only a hint, since it orders nothing.
  [[nodiscard]] std::uint64_t opened() const { return open_.load(std::memory_order_relaxed); }
  // Claims the marked parts and calls claimed(part) for each. One thread at a time.
  template <class Claimed>
  void collect(Claimed&& claimed) {
    const std::uint64_t run = open_.load(std::memory_order_relaxed);  // this thread's own
    for (std::uint32_t part = 0; part < parts_; ++part) {
      const std::uint64_t seen = states_[part].load(std::memory_order_seq_cst);  // partner: mark()
      if (seen == kSteps * run + kMarked && move(states_[part], seen, seen - kMarked + kClaimed)) claimed(part);
    }
  }
  // By the thread that has claimed the part.
  void unclaim(std::uint32_t part) { step(part, kMarked, std::memory_order_seq_cst); }
  // By the thread that has claimed the part, or by the end of the operation that it has posted. The
  // last access to the part in this run; partner: the acquire load of has_ended().
  void end(std::uint32_t part) { step(part, kEnded, std::memory_order_release); }

  // The run of a part that is claimed.
  [[nodiscard]] std::uint64_t run_of(std::uint32_t part) const {
    return states_[part].load(std::memory_order_relaxed) / kSteps;
  }
  [[nodiscard]] bool has_ended(std::uint32_t part, std::uint64_t run) const {
    return states_[part].load(std::memory_order_acquire) == kSteps * run + kEnded;
  }
  // It is being posted, or in flight.
  [[nodiscard]] bool is_claimed(std::uint32_t part, std::uint64_t run) const {
    return states_[part].load(std::memory_order_acquire) == kSteps * run + kClaimed;
  }
  [[nodiscard]] bool is_idle(std::uint32_t part, std::uint64_t run) const {
    return states_[part].load(std::memory_order_relaxed) < kSteps * run;
  }

 private:
  enum Step : std::uint64_t { kMarked = 1, kClaimed = 2, kEnded = 3, kSteps = 4 };

  bool move(Atomic<std::uint64_t>& state, std::uint64_t from, std::uint64_t to) {
    if (plain_) {
      state.store(to, std::memory_order_relaxed);
      return true;
    }
    return state.compare_exchange_strong(from, to, std::memory_order_seq_cst);
  }
  void step(std::uint32_t part, Step to, std::memory_order order) {
    const std::uint64_t run = states_[part].load(std::memory_order_relaxed) / kSteps;
    states_[part].store(kSteps * run + to, order);
  }

  std::unique_ptr<Atomic<std::uint64_t>[]> states_;
  const std::uint32_t parts_;
  const bool plain_;
  Atomic<std::uint64_t> open_{0};
};

}  // namespace heddle::queue
