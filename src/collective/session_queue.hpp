// Runs one rank's schedule where all buffers and counters are memory of this process: the session queue in software.
//
// Commands are bound once, to addresses. start() begins a run: it writes two words and executes what may go at once; nothing is
// posted again, so it costs the same for any number of segments. From there whoever calls advance() moves the run on: the thread
// that waits, a helper, a peer's. One at a time is inside; the others go on without waiting.
//
// Invariants: started_ is the number of runs that were started, completed_ of those that are complete; started_ - completed_ is 0
// or 1. Everything else belongs to who holds lock_. A counter holds all credits that ever came to it; run k of a schedule waits
// for k * per_run + count. A counter with one giver is written by plain stores of the sum (release), one with several by
// additions (release); waits read it (acquire), so that who sees a credit sees the bytes that came with it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/cache_line.hpp"
#include "collective/schedule.hpp"
#include "queue/try_lock.hpp"

namespace heddle::collective {

// In memory that all ranks of the operation reach; a line each, so that givers do not disturb each other.
struct alignas(base::kCacheLine) CounterWord {
  // Partners: SessionQueue's release store or addition at the giver, its acquire load at the owner.
  std::atomic<std::uint64_t> credits{0};
};

// Combines `bytes` of `in` into `inout`: inout = in op inout, element by element. Commutative and associative.
struct Reduction {
  void (*combine)(void* inout, const void* in, std::uint64_t bytes, const void* argument) = nullptr;
  const void* argument = nullptr;
};

// A rank's memory, as this process sees it.
struct RankMemory {
  std::array<std::byte*, 3> places{};  // by Place; those that no command of this rank touches may be null
  CounterWord* counters = nullptr;     // as many as its schedule has
};

class SessionQueue {
 public:
  // `ranks[i]` is the memory of rank i; all of it stays until the queue is gone. Nobody may start before prepare() of all ranks is
  // done. The schedule is as check() proves it.
  SessionQueue(const Schedule& schedule, std::span<const RankMemory> ranks, Reduction reduction);
  SessionQueue(const SessionQueue&) = delete;
  SessionQueue& operator=(const SessionQueue&) = delete;

  // Gives this rank's counters what they have at first.
  static void prepare(const Schedule& schedule, CounterWord* counters);

  // Begins a run; the one before is complete. One thread at a time.
  void start() {
    // Release, partner: the acquire load in advance(): what the caller has written to its buffers goes with it.
    started_.store(started_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    static_cast<void>(advance());
  }
  // Executes what may go, unless somebody else is at it. True: the run is complete. Any thread.
  bool advance() {
    if (done()) return true;
    const queue::TryLock<>::Guard guard(lock_);
    return guard && advance_locked();
  }
  // Acquire, partner: the release store in advance_locked(): what has arrived is seen.
  [[nodiscard]] bool done() const {
    return completed_.load(std::memory_order_acquire) == started_.load(std::memory_order_relaxed);
  }

 private:
  struct Due {
    const CounterWord* counter = nullptr;
    std::uint64_t credits = 0;  // that the counter must have; grows by per_run with each run
    std::uint64_t per_run = 0;
  };
  struct Step {
    Action action = Action::nop;
    std::array<Due, 2> dues;
    const std::byte* source = nullptr;
    std::byte* destination = nullptr;
    std::uint64_t bytes = 0;
    CounterWord* counter = nullptr;  // null: it gives nothing
    std::uint64_t credits = 0;
    std::uint64_t* given = nullptr;  // one giver: the sum of what this rank has given; null: several
  };
  struct Queue {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::uint32_t next = 0;
  };

  [[nodiscard]] static bool released(const Due& due) {
    return due.counter == nullptr || due.counter->credits.load(std::memory_order_acquire) >= due.credits;
  }
  bool advance_locked();
  bool advance_queue(Queue& queue);
  void execute(Step& step);
  void bind(const Command& command, Rank rank, std::span<const RankMemory> ranks, const Schedule& schedule);
  std::uint64_t* sum_of(const CounterWord* counter);

  queue::TryLock<> lock_;
  std::atomic<std::uint64_t> started_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::uint64_t running_ = 0;  // the run that queues_ are at
  std::vector<Queue> queues_;  // those that are not at their end come first: open_ of them
  std::size_t open_ = 0;
  std::vector<Step> steps_;  // queue by queue
  std::vector<std::pair<const CounterWord*, std::unique_ptr<std::uint64_t>>> sums_;
  Reduction reduction_;
};

}  // namespace heddle::collective
