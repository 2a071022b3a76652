// The machinery of the schedule explorer; its users include explorer.hpp.
//
// One execution: the threads of a model run as fibers, each up to its next visible action; the
// engine then decides which action happens. A decision is a node on a stack; the next execution
// repeats all decisions but the last that still has an untried choice. When none has, every
// schedule was seen.
//
// Sleep sets leave out schedules that differ only in the order of independent actions (Godefroid):
// every outcome, race and deadlock is still met. This needs that threads share nothing but Atomic,
// Plain and Memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fiber.hpp"

namespace heddle::explore {

inline constexpr std::uint32_t kMostThreads = 4;
inline constexpr std::uint32_t kNoLocation = UINT32_MAX;

struct Options {
  // Relaxed and release stores wait in a store buffer of their thread and become visible in any
  // order that C++ permits: per location in order, a release store after all earlier stores of its
  // thread. So a store may also be seen after later loads of its thread.
  bool weak = true;
  // Happens-before is tracked; an access to Plain or Memory that is not ordered against another
  // fails. This finds a missing acquire as well as a missing release. Without it plain stores pass
  // through the store buffer like relaxed ones, so that a missing release is found by the wrong
  // data that it causes.
  bool races = true;
  // at most so many changes away from a thread that could go on; -1: any number, all schedules
  int preemptions = -1;
  std::uint64_t most_schedules = 2'000'000;  // `complete` is false if these did not suffice
};

struct Outcome {
  std::uint64_t schedules = 0;  // executions that ran to an end
  bool complete = false;        // there is no other schedule (within the preemption bound)
  std::string failure;          // of the first schedule that failed; empty: none
  std::string schedule;         // what happened in it, one action a line
  [[nodiscard]] bool passed() const { return failure.empty() && complete; }
};

// The explored program. Made anew for each execution; the constructor and finish() run alone,
// before and after the threads.
class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;
  [[nodiscard]] virtual std::uint32_t threads() const = 0;
  virtual void run(std::uint32_t thread) = 0;
  virtual void finish() {}
};

class Memory;

using Clock = std::array<std::uint32_t, kMostThreads>;

enum class Kind : std::uint8_t { load, store, rmw, flush, pause, step, barrier };

struct Action {
  std::uint32_t thread = 0;
  Kind kind = Kind::step;
  std::uint32_t location = kNoLocation;
  std::memory_order order = std::memory_order_relaxed;
  bool operator==(const Action&) const = default;
};

constexpr bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
constexpr bool acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}

class Engine {
 public:
  using Make = std::unique_ptr<Model> (*)();

  static Outcome explore(const Options& options, Make make) {
    Engine engine(options);
    current_ = &engine;
    engine.run_all(make);
    current_ = nullptr;
    return engine.outcome_;
  }
  // The exploration under way; Atomic, Plain and Memory live only inside one.
  static Engine& current() { return *current_; }

  std::uint32_t add_location(std::uint64_t value, bool plain, std::uint64_t* mirror = nullptr) {
    locations_.push_back({value, plain, mirror});
    return static_cast<std::uint32_t>(locations_.size() - 1);
  }
  void name(std::uint32_t location, const char* text) { locations_[location].name = text; }
  void watch(Memory* memory) { memories_.push_back(memory); }

  std::uint64_t load(std::uint32_t location, std::memory_order order);
  void store(std::uint32_t location, std::uint64_t value, std::memory_order order);
  // `change` is given the old value and says by true that *value is to be stored; returns the old
  // value. `failure` is the order when nothing is stored.
  template <class Change>
  std::uint64_t update(std::uint32_t location, std::memory_order order, std::memory_order failure, Change change);
  std::uint64_t plain_load(std::uint32_t location);
  void plain_store(std::uint32_t location, std::uint64_t value);
  // For bytes that were read directly. Never an action: without Options::races it has nothing to
  // say.
  void note_plain_read(std::uint32_t location) {
    if (options_.races) plain_load(location);
  }

  // The thread whose step this is.
  [[nodiscard]] std::uint32_t running() const { return running_; }
  void pause() { point({running_, Kind::pause, kNoLocation}); }
  void step() { point({running_, Kind::step, kNoLocation}); }
  void barrier();
  // The execution has failed. Does not return, except outside of the threads.
  void fail(const std::string& what);

 private:
  struct Abandon {};  // unwinds the threads of an execution that is given up
  struct Location {
    std::uint64_t value = 0;
    bool plain = false;
    std::uint64_t* mirror = nullptr;  // raw memory that shows what is visible
    const char* name = nullptr;
    Clock released{};  // what an acquire load of the value synchronizes with
    Clock reads{};     // plain: each thread's last read, in its own time
    std::uint32_t writer = 0;
    std::uint32_t written = 0;  // plain: in the writer's own time
  };
  struct Buffered {
    std::uint32_t location = 0;
    std::uint64_t value = 0;
    bool release = false;
    Clock clock{};
  };
  struct Thread {
    std::unique_ptr<Fiber> fiber;
    Action pending;
    bool finished = true;
    Clock clock{};
    std::vector<Buffered> buffer;
    std::uint64_t commits = 0;  // its own visible stores
    std::uint64_t seen = 0;     // others' visible stores when it last left pause()
  };
  struct Node {
    std::vector<Action> options;
    std::vector<Action> sleep;  // tried elsewhere, with the same outcome
    std::size_t chosen = 0;
  };
  struct Step {
    Action action;
    std::uint64_t value = 0;
  };
  struct Seat {
    Engine* engine;
    std::uint32_t thread;
  };
  static constexpr std::uint32_t kMain = kMostThreads;
  static constexpr std::size_t kMostSteps = 5000;

  explicit Engine(const Options& options) : options_(options) {}

  void run_all(Make make);
  void run_one();
  [[nodiscard]] bool backtrack();
  static void enter(void* seat);
  void thread_main(std::uint32_t thread);

  void point(const Action& action);
  void dispatch(std::uint32_t from);
  void switch_to(std::uint32_t from, std::uint32_t to);
  [[nodiscard]] std::uint32_t decide();
  [[nodiscard]] bool add_node();
  [[nodiscard]] bool choose(Action* action);
  [[nodiscard]] bool possible(const Action& action) const;
  void find_options();
  void bound_preemptions();
  [[nodiscard]] bool enabled(const Thread& thread) const;
  [[nodiscard]] bool flushable(const Thread& thread, std::size_t entry) const;
  [[nodiscard]] bool independent(const Action& a, const Action& b) const;

  void flush(const Action& action);
  void commit(std::uint32_t thread, std::uint32_t location, std::uint64_t value, bool release, const Clock& clock);
  void collect();
  void log(const Action& action, std::uint64_t value) { trace_.push_back({action, value}); }
  void check_race(const Location& place, bool write);
  [[nodiscard]] std::string where(std::uint32_t location) const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] bool alone() const { return running_ == kMain; }

  static inline Engine* current_ = nullptr;

  Options options_;
  Outcome outcome_;
  Fiber main_;
  std::array<Thread, kMostThreads> threads_;
  std::array<Seat, kMostThreads> seats_{};
  std::uint32_t thread_count_ = 0;
  Model* model_ = nullptr;

  // Of the whole exploration.
  std::vector<Node> nodes_;

  // Of one execution.
  std::vector<Location> locations_;
  std::vector<Memory*> memories_;
  std::vector<Action> choices_;
  std::vector<Action> sleep_;
  std::vector<Step> trace_;
  std::size_t depth_ = 0;
  std::uint64_t commits_ = 0;
  std::uint32_t running_ = kMain;
  std::uint32_t last_ = kMain;  // the thread that acted last
  int preempted_ = 0;
  bool starting_ = false;
  bool blocked_ = false;  // all that could happen was tried elsewhere
  bool abandoning_ = false;
};

}  // namespace heddle::explore

#include "engine_inl.hpp"
