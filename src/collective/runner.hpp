// How a rank's part of an operation is run: the program's request (Call), the interface (Runner),
// the table of ways, and what the ways by the network's interface have in common (Offload).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "collective/algorithms/algorithms.hpp"
#include "collective/schedule.hpp"
#include "queue/locks.hpp"
#include "tap/probes.hpp"
#include "tap/tracer.hpp"

namespace heddle::collective {

// One collective call, as the program made it.

// Combines `bytes` of `in` into `inout`, element by element: inout = in op inout. Must be
// commutative and associative.
struct Reduction {
  void (*combine)(void* inout, const void* in, std::uint64_t bytes, const void* argument) = nullptr;
  const void* argument = nullptr;
};

// How long an operation exists.
enum class Use : std::uint8_t {
  persistent,  // the program starts it as often as it likes
  once,        // starts when it is ready; destroyed when its end was reported
  kept         // for blocking calls of one kind; belongs to the team; other buffers each time
};

struct Call {
  Operation operation = Operation::barrier;
  // Null where this rank gives or gets nothing. A broadcast uses only `receive`, at the root too.
  // send == receive: in place, for the operations where send_bytes() and receive_bytes() are equal;
  // the caller has checked that.
  const void* send = nullptr;
  void* receive = nullptr;
  // where members list their blocks: this member's lists, laid out; the operation copies them
  const Exchange* lists = nullptr;
  std::uint64_t bytes = 0;  // see Operation; where there are blocks, of each rank's block
  std::uint64_t whole = 0;  // for a piece of a longer call: the same of that call
  // a piece: in the caller's memory a block begins every `whole` bytes
  bool apart = false;
  std::uint32_t root = 0;           // a rank of the team; the caller has checked it
  std::uint64_t element_bytes = 1;  // reductions; divides bytes
  Reduction reduction;              // reductions
  // distinguishes ranks that combine differently; numbers chosen by the caller
  std::uint32_t reduction_name = 0;
  // OPERATION.WAY; null: chosen (HEDDLE_COLLECTIVE_…, else by the table)
  const char* algorithm = nullptr;
  std::uint64_t segment_bytes = 0;  // 0: chosen
};

struct SetupRecord;

// Runs one rank's part of an operation, once or many times, by one of several ways: the software
// queue, the interface's session queues, its barrier gates. The caller need not know which.
//
// The members decide together. Each opens the way that it prefers and tells the others in its
// record. If all prefer the same way and agreed() is true, all use it. Otherwise all use the last
// way of the table, by software, which is always possible. Then bind() connects the members. No
// member starts before all have bound.
//
// Invariants: started_ counts the runs that were started, completed_ those that have ended;
// started_ - completed_ is 0 or 1. All other state of a run belongs to the thread that holds lock_.
// start(), set_buffers() and the functions of the set-up are for one thread at a time. Any thread
// may call the others; one thread at a time is inside.
//
// The list of ways is below.
class Runner {
 public:
  // nobody: the interface runs it, and advance() only looks
  enum class Needs : bool { processor, nobody };
  explicit Runner(Needs needs) : needs_(needs) {}
  // No thread is inside, and retire() was called if members may have put.
  virtual ~Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // ---- set-up, in this order
  // Writes into the record for this member what it must know about this way.
  virtual void tell(Rank, SetupRecord*) const {}
  // True: by the records of all members, all can use this way, and alike. The answer is the same at
  // all members.
  [[nodiscard]] virtual bool agreed(std::span<const SetupRecord>) const { return true; }
  virtual base::Status bind(const Schedule&, std::span<const SetupRecord>) { return HEDDLE_DONE; }

  // ---- runs
  // Of a job that is traced: the steps that are executed are noted, as of a run with this number.
  void set_tracer(tap::Tracer* tracer) { tracer_ = tracer; }
  [[nodiscard]] std::uint64_t traced_as() const { return reinterpret_cast<std::uintptr_t>(this); }
  // Sets the caller's buffers, and what combines. Call it before a start, while no run is under
  // way. Only for ways that blocking calls use.
  virtual void set_buffers(const Call&) {}
  // Begins a run; the one before has ended. start() itself moves at most `bytes`; the threads that
  // advance the run move the rest.
  virtual void start(std::uint64_t bytes) = 0;
  void start() { start(kAll); }
  static constexpr std::uint64_t kAll = ~std::uint64_t{0};
  // Advances the run, unless another thread is doing so. True: the run has ended. Any thread.
  virtual bool advance() = 0;
  // Acquire, partner: the release store in complete(): makes the data that has arrived visible.
  [[nodiscard]] bool done() const {
    return completed_.load(std::memory_order_acquire) == started_.load(std::memory_order_relaxed);
  }
  // Makes the current run and all later ones end with this error, as soon as nothing that was put
  // is under way. Any thread.
  void fail(base::Status status) { failure_.store(status, std::memory_order_relaxed); }
  [[nodiscard]] base::Status status() const { return failure_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t runs() const { return started_.load(std::memory_order_relaxed); }
  // Number of commands executed so far, over all runs. It shows whether advance() has moved
  // anything. Relaxed.
  [[nodiscard]] std::uint64_t executed() const { return executed_.load(std::memory_order_relaxed); }

  // ---- for reports
  [[nodiscard]] bool offloaded() const { return needs_ == Needs::nobody; }
  // Replaces the name of the schedule's algorithm, which is `scheduled`.
  [[nodiscard]] virtual const char* algorithm(const char* scheduled) const { return scheduled; }
  // The counters that the current run waits for now. Empty: none, or unknown, or another thread is
  // inside. Any thread.
  [[nodiscard]] virtual std::vector<std::uint32_t> awaited() { return {}; }
  // Explains what has gone wrong when runs end with this error; not for the death of a member.
  [[nodiscard]] virtual const char* reason(base::Status) const { return "what was put to a member did not arrive"; }

  // ---- the end
  // The history of the operation, for retire().
  struct Past {
    bool never;     // no member runs it, or ever ran it
    bool agreed;    // all members have made the same call
    bool rejected;  // agreed, and all members have been told that nobody runs it
    bool ran;       // all runs here, if there were any, have succeeded
    bool whole;     // all members are alive, as far as is known
  };
  // When the memory to which members put may be reused: now; when all that members owe its counters
  // has arrived; or not before the context ends.
  enum class Memory : std::uint8_t { now, late, never };
  // Call it once, before the destructor.
  [[nodiscard]] virtual Memory retire(const Past& past) = 0;

 protected:
  // Release, partner: the acquire load in begun(): makes visible what the caller has written to its
  // buffers.
  void begin() { started_.store(started_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  // Called with lock_ held. Acquire, partner: the release store in begin().
  [[nodiscard]] std::uint64_t begun() const { return started_.load(std::memory_order_acquire); }
  [[nodiscard]] bool completed(std::uint64_t run) const { return completed_.load(std::memory_order_relaxed) == run; }
  void complete(std::uint64_t run) { completed_.store(run, std::memory_order_release); }
  void count(std::uint64_t executed) {
    executed_.store(executed_.load(std::memory_order_relaxed) + executed, std::memory_order_relaxed);
    tap::probe_collective_step(this, executed);
    if (tracer_ != nullptr) [[unlikely]]
      note_steps(executed);
  }

  queue::TryLock<> lock_;

 private:
  [[gnu::cold]] void note_steps(std::uint64_t executed) {
    tap::TraceRecord record{};
    record.id = executed;
    record.bytes = traced_as();
    record.worker = tap::kNoTraceWorker;
    record.event = tap::TraceEvent::schedule_step;
    tracer_->note_many(record);
  }

  const Needs needs_;
  tap::Tracer* tracer_ = nullptr;
  std::atomic<std::uint64_t> started_{0};
  std::atomic<std::uint64_t> completed_{0};
  // Relaxed: it orders nothing; the end of the run, a release store, follows it.
  std::atomic<base::Status> failure_{HEDDLE_DONE};
  std::atomic<std::uint64_t> executed_{0};  // written inside
};

// The table of ways to run operations. To add a way, add a file with a class and the
// functions of a RunnerWay, and a row in runner.cpp.

class Places;
class Team;

// An operation that is being prepared, as ways see it.
struct Plan {
  Team& team;
  const Call& call;
  Use use;
  const Algorithm& algorithm;
  // the algorithm was asked for by name: nothing else may run the operation
  bool named;
  AlgorithmRequest& request;  // a way may change it, and then make the schedule anew
  Schedule& schedule;         // empty before open()
};

struct RunnerWay {
  // Called before there is a schedule: changes the request to what suits this way. Null: does
  // nothing.
  void (*suit)(const Plan& plan);
  // Null: the way is not for this operation, or lacks a resource. `places`: this member's memory
  // for the operation.
  std::unique_ptr<Runner> (*open)(const Plan& plan, const Places& places);
};
// The first way that opens is told to the members; the last one always opens.
std::span<const RunnerWay> ways();

// Most bytes that a way tells in a record.
inline constexpr std::size_t kWayBytes = 208;
struct WayKeys {
  std::uint32_t way = 0;  // row of the table
  std::uint32_t padding = 0;
  std::array<std::byte, kWayBytes> bytes{};

  template <class Keys>
  void set(const Keys& keys) {
    static_assert(sizeof(Keys) <= kWayBytes && std::is_trivially_copyable_v<Keys>);
    std::memcpy(bytes.data(), &keys, sizeof keys);
  }
  template <class Keys>
  [[nodiscard]] Keys get() const {
    static_assert(sizeof(Keys) <= kWayBytes && std::is_trivially_copyable_v<Keys>);
    Keys keys;
    std::memcpy(&keys, bytes.data(), sizeof keys);
    return keys;
  }
};

// Runs one rank's part of an operation on the network's interface: no thread is needed until the
// run ends, and advance() only looks. Derived classes choose the interface's mechanism: session
// queues in session_offload.hpp, barrier gates in gate_offload.hpp.
class Offload : public Runner {
 public:
  void start(std::uint64_t bytes) final;
  using Runner::start;
  bool advance() final;
  // Parts that have not ended stay with the interface, and so does memory that members may still
  // put to.
  [[nodiscard]] Memory retire(const Past& past) final;

 protected:
  Offload() : Runner(Needs::nobody) {}

 private:
  // Called with lock_ held. begin_run(): may call fail(). look(): DONE, AGAIN, or the run's error.
  virtual void begin_run() = 0;
  virtual base::Status look() = 0;
  // Everything that the interface was given stays with it: members may still reach it.
  virtual void leave() = 0;
};

}  // namespace heddle::collective
