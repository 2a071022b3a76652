// Runs one rank's part in an operation, again and again, in one of several ways: the software
// queue, the interface's session queues, its barrier gates. Who calls it need not know which.
//
// The members decide together: each opens the way that it would go, tells the others in its record,
// and goes it if all go the same and agreed() says so; else all go the last way of the table, by
// software, which is always there. bind() then connects the members. Nobody starts before all have
// bound.
//
// Invariants: started_ is the number of runs that were started, completed_ of those that have
// ended; started_ - completed_ is 0 or 1. Everything else of a run belongs to who holds lock_.
// start(), set_buffers() and the functions of the set-up are for one thread at a time; the others
// for any: one at a time is inside.
//
// Which ways there are says ways.hpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "collective/call.hpp"
#include "collective/schedule.hpp"
#include "queue/try_lock.hpp"

namespace heddle::collective {

struct Record;

class Runner {
 public:
  // nobody: the interface does it, and advance() only looks
  enum class Needs : bool { processor, nobody };
  explicit Runner(Needs needs) : needs_(needs) {}
  // nobody is inside, and retire() was called where members may have put
  virtual ~Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // ---- set-up, in this order
  // Puts into the record for this member what it has to know of this way.
  virtual void tell(Rank, Record*) const {}
  // Whether all members have what it takes, by what all have told, all the same way: the same
  // answer at all of them.
  [[nodiscard]] virtual bool agreed(std::span<const Record>) const { return true; }
  virtual base::Status bind(const Schedule&, std::span<const Record>) { return HEDDLE_DONE; }

  // ---- runs
  // Before a start, no run being under way: the caller's buffers, and what combines. Only where
  // blocking calls go this way.
  virtual void set_buffers(const Call&) {}
  // Begins a run; the one before has ended. It may move so many bytes at once: the rest is for
  // those who advance it.
  virtual void start(std::uint64_t bytes) = 0;
  void start() { start(kAll); }
  static constexpr std::uint64_t kAll = ~std::uint64_t{0};
  // Moves the run on, unless somebody else is at it. True: it has ended. Any thread.
  virtual bool advance() = 0;
  // Acquire, partner: the release store in complete(): what has arrived is seen.
  [[nodiscard]] bool done() const {
    return completed_.load(std::memory_order_acquire) == started_.load(std::memory_order_relaxed);
  }
  // The run that is under way, and all that follow, end with this error, when nothing that was put
  // is still on its way. Any thread.
  void fail(base::Status status) { failure_.store(status, std::memory_order_relaxed); }
  [[nodiscard]] base::Status status() const { return failure_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t runs() const { return started_.load(std::memory_order_relaxed); }
  // Commands that were executed so far, of all runs; for those who want to know whether advance()
  // has moved anything. Relaxed.
  [[nodiscard]] std::uint64_t executed() const { return executed_.load(std::memory_order_relaxed); }

  // ---- for reports
  [[nodiscard]] bool offloaded() const { return needs_ == Needs::nobody; }
  // Instead of the schedule's algorithm, which is `scheduled`.
  [[nodiscard]] virtual const char* algorithm(const char* scheduled) const { return scheduled; }
  // The counters that the run which is under way waits for now. Empty: none, it is not known, or
  // somebody else is inside. Any thread.
  [[nodiscard]] virtual std::vector<std::uint32_t> awaited() { return {}; }
  // What has gone wrong where runs end with this error; no death of a member.
  [[nodiscard]] virtual const char* reason(base::Status) const { return "what was put to a member did not arrive"; }

  // ---- the end
  // What has become of the operation.
  struct Past {
    bool never;    // no member runs it, or has run it
    bool agreed;   // all members have made the same call, and
    bool refused;  // all have been told that nobody runs it
    bool ran;      // its runs here, if there were any, have all ended well
    bool whole;    // as far as is known, all members live
  };
  // When the memory that members put to for it is used again: now, when all that they owe its
  // counters has come, or not before the context ends.
  enum class Memory : std::uint8_t { now, late, never };
  // Once, before the destructor.
  [[nodiscard]] virtual Memory retire(const Past& past) = 0;

 protected:
  // Release, partner: the acquire load in begun(): what the caller has written to its buffers goes
  // with it.
  void begin() { started_.store(started_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  // Within lock_. Acquire, partner: the release store in begin().
  [[nodiscard]] std::uint64_t begun() const { return started_.load(std::memory_order_acquire); }
  [[nodiscard]] bool completed(std::uint64_t run) const { return completed_.load(std::memory_order_relaxed) == run; }
  void complete(std::uint64_t run) { completed_.store(run, std::memory_order_release); }
  void count(std::uint64_t executed) {
    executed_.store(executed_.load(std::memory_order_relaxed) + executed, std::memory_order_relaxed);
  }

  queue::TryLock<> lock_;

 private:
  const Needs needs_;
  std::atomic<std::uint64_t> started_{0};
  std::atomic<std::uint64_t> completed_{0};
  // Relaxed: it orders nothing; the run's end, with release, follows it.
  std::atomic<base::Status> failure_{HEDDLE_DONE};
  std::atomic<std::uint64_t> executed_{0};  // written inside
};

}  // namespace heddle::collective
