// Parts of a message that threads mark ready, run after run, and who posts each: the thread that
// marks it, if the run is open (the receiver has begun it); else the one that opens the run.
//
// Invariants (the state of a part in run r is 4r + step, and only grows, but for unclaim())
//   idle → marked → claimed → ended, or idle → claimed → ended. Each step is made by one thread: by
//   compare-and-swap, or by plain stores where one thread uses all of it (`plain`). Who has claimed
//   a part posts it, and nobody else does.
//   No part stays marked in a run that is open. For who marks looks at open_ afterwards, who opens
//   looks at the parts afterwards, all sequentially consistent, so that at least one of the two
//   sees the other's step; the claim decides between them. What was put back by unclaim() is found
//   by the next collect().
//   Run r + 1 is opened when all parts of run r have been claimed. It may be marked before, even
//   while who has opened run r still looks for marks, if nothing of run r is left to claim: such
//   marks wait for their own run.
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
    twice,    // it was marked in this run
    waiting,  // who opens the run claims it
    claimed   // by the caller, who posts it
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
  // The run is open from here on, and what the caller wrote before is there for who claims in it.
  // One thread at a time, which collects next.
  void open(std::uint64_t run) { open_.store(run, std::memory_order_seq_cst); }
  // Of the last open(); a hint where it orders nothing.
  [[nodiscard]] std::uint64_t opened() const { return open_.load(std::memory_order_relaxed); }
  // Claims what is marked: claimed(part) for each. One thread at a time.
  template <class Claimed>
  void collect(Claimed&& claimed) {
    const std::uint64_t run = open_.load(std::memory_order_relaxed);  // this thread's own
    for (std::uint32_t part = 0; part < parts_; ++part) {
      const std::uint64_t seen = states_[part].load(std::memory_order_seq_cst);  // partner: mark()
      if (seen == kSteps * run + kMarked && move(states_[part], seen, seen - kMarked + kClaimed)) claimed(part);
    }
  }
  // By who has claimed it.
  void unclaim(std::uint32_t part) { step(part, kMarked, std::memory_order_seq_cst); }
  // By who has claimed it, or what that has posted. The last that is done with the part; partner:
  // the acquire load of has_ended().
  void end(std::uint32_t part) { step(part, kEnded, std::memory_order_release); }

  // Of a part that is claimed.
  [[nodiscard]] std::uint64_t run_of(std::uint32_t part) const {
    return states_[part].load(std::memory_order_relaxed) / kSteps;
  }
  [[nodiscard]] bool has_ended(std::uint32_t part, std::uint64_t run) const {
    return states_[part].load(std::memory_order_acquire) == kSteps * run + kEnded;
  }
  // It is being posted, or under way.
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
