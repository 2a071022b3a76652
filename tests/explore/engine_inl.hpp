// The bodies of engine.hpp.
#pragma once

#include "engine.hpp"
#include "memory.hpp"

namespace heddle::explore {

// ---- executions ---------------------------------------------------------------------------------

inline void Engine::run_all(Make make) {
  do {
    locations_.clear();
    memories_.clear();
    const std::unique_ptr<Model> model = make();
    model_ = model.get();
    thread_count_ = model_->threads();
    if (thread_count_ > kMostThreads) return fail("the model has too many threads for kMostThreads");
    run_one();
    if (blocked_) continue;
    ++outcome_.schedules;
    if (outcome_.failure.empty()) model_->finish();
    if (!outcome_.failure.empty()) {
      outcome_.schedule = describe();
      return;
    }
  } while (backtrack() && outcome_.schedules < options_.most_schedules);
  outcome_.complete = nodes_.empty();
}

inline void Engine::run_one() {
  sleep_.clear();
  trace_.clear();
  depth_ = 0;
  commits_ = 0;
  last_ = kMain;
  preempted_ = 0;
  blocked_ = false;
  starting_ = true;
  for (std::uint32_t i = 0; i < thread_count_; ++i) {
    Thread& thread = threads_[i];
    if (!thread.fiber) {
      seats_[i] = {this, i};
      thread.fiber = std::make_unique<Fiber>(&Engine::enter, &seats_[i]);
    }
    thread.finished = false;
    thread.clock = {};
    thread.clock[i] = 1;  // what was written in the constructor has time 0 and is known to all
    thread.buffer.clear();
    thread.commits = 0;
    thread.seen = 0;
    switch_to(kMain, i);  // up to its first action
  }
  starting_ = false;
  if (outcome_.failure.empty()) dispatch(kMain);
  abandoning_ = true;
  for (std::uint32_t i = 0; i < thread_count_; ++i) {
    if (!threads_[i].finished) switch_to(kMain, i);
  }
  abandoning_ = false;
}

inline bool Engine::backtrack() {
  while (!nodes_.empty()) {
    Node& node = nodes_.back();
    do {
      ++node.chosen;
    } while (node.chosen < node.options.size() &&
             std::find(node.sleep.begin(), node.sleep.end(), node.options[node.chosen]) != node.sleep.end());
    if (node.chosen < node.options.size()) return true;
    nodes_.pop_back();
  }
  return false;
}

inline void Engine::enter(void* seat) {
  const Seat* at = static_cast<Seat*>(seat);
  at->engine->thread_main(at->thread);
}

inline void Engine::thread_main(std::uint32_t thread) {
  for (;;) {
    try {
      model_->run(thread);
      collect();
    } catch (const Abandon&) {
    }
    threads_[thread].finished = true;
    dispatch(thread);
  }
}

inline void Engine::fail(const std::string& what) {
  if (abandoning_) throw Abandon{};
  if (outcome_.failure.empty()) {
    outcome_.failure = (alone() ? std::string() : "T" + std::to_string(running_) + ": ") + what;
  }
  if (!alone()) throw Abandon{};
}

// ---- scheduling ---------------------------------------------------------------------------------

// A visible action of the running thread comes next; returns when it is to happen.
inline void Engine::point(const Action& action) {
  if (alone()) return;
  collect();
  Thread& thread = threads_[running_];
  thread.pending = action;
  dispatch(action.thread);
  if (abandoning_) throw Abandon{};
  if (action.kind == Kind::pause) thread.seen = commits_ - thread.commits;
  if (action.kind == Kind::pause || action.kind == Kind::step) log(action, 0);
}

inline void Engine::dispatch(std::uint32_t from) {
  const bool home = starting_ || abandoning_ || !outcome_.failure.empty();
  const std::uint32_t next = home ? kMain : decide();
  if (next != from) switch_to(from, next);
  running_ = from;
}

inline void Engine::switch_to(std::uint32_t from, std::uint32_t to) {
  running_ = to;
  Fiber::switch_between(from == kMain ? main_ : *threads_[from].fiber, to == kMain ? main_ : *threads_[to].fiber);
  running_ = from;
}

// Lets stores out of the buffers as chosen; returns the thread whose turn it is, kMain at the end
// of the execution.
inline std::uint32_t Engine::decide() {
  for (;;) {
    if (depth_ == nodes_.size() && !add_node()) return kMain;
    Action action;
    if (!choose(&action)) return kMain;
    if (action.kind != Kind::flush) {
      last_ = action.thread;
      return action.thread;
    }
    flush(action);
  }
}

// Chooses the next action that no earlier execution has tried; false: there is none.
inline bool Engine::add_node() {
  find_options();
  if (choices_.empty()) {
    for (std::uint32_t i = 0; i < thread_count_; ++i) {
      if (!threads_[i].finished && outcome_.failure.empty()) {
        outcome_.failure = "T" + std::to_string(i) + " waits for ever";
      }
    }
    return false;
  }
  if (trace_.size() > kMostSteps) {
    outcome_.failure = "no end in sight: does a loop lack pause()?";
    return false;
  }
  std::size_t chosen = 0;
  while (chosen < choices_.size() && std::find(sleep_.begin(), sleep_.end(), choices_[chosen]) != sleep_.end()) {
    ++chosen;
  }
  if (chosen == choices_.size()) {
    blocked_ = true;
    return false;
  }
  nodes_.push_back({choices_, sleep_, chosen});
  return true;
}

// The next action: chosen before, or just now.
inline bool Engine::choose(Action* action) {
  const Node& node = nodes_[depth_++];
  *action = node.options[node.chosen];
  if (!possible(*action)) {
    outcome_.failure = "the same choices led elsewhere: the model depends on something besides the schedule";
    return false;
  }
  if (options_.preemptions >= 0) {
    // A bound and sleep sets do not go together: the schedule that was tried elsewhere may have
    // been out of bounds.
    if (action->kind != Kind::flush && last_ != kMain && action->thread != last_ && !threads_[last_].finished &&
        enabled(threads_[last_])) {
      ++preempted_;
    }
    return true;
  }
  if (depth_ < nodes_.size()) return true;  // the node behind this one knows what sleeps there
  sleep_.clear();
  for (const Action& other : node.sleep) {
    if (independent(other, *action)) sleep_.push_back(other);
  }
  for (std::size_t i = 0; i < node.chosen; ++i) {
    if (independent(node.options[i], *action)) sleep_.push_back(node.options[i]);
  }
  return true;
}

inline bool Engine::possible(const Action& action) const {
  const Thread& thread = threads_[action.thread];
  if (action.kind != Kind::flush) return !thread.finished && thread.pending == action && enabled(thread);
  return std::any_of(thread.buffer.begin(), thread.buffer.end(),
                     [&](const Buffered& entry) { return entry.location == action.location; });
}

inline void Engine::find_options() {
  choices_.clear();
  for (std::uint32_t i = 0; i < thread_count_; ++i) {
    const Thread& thread = threads_[i];
    if (!thread.finished && enabled(thread)) choices_.push_back(thread.pending);
  }
  if (options_.preemptions >= 0 && preempted_ >= options_.preemptions) bound_preemptions();
  for (std::uint32_t i = 0; i < thread_count_; ++i) {
    const Thread& thread = threads_[i];
    for (std::size_t entry = 0; entry < thread.buffer.size(); ++entry) {
      if (flushable(thread, entry)) choices_.push_back({i, Kind::flush, thread.buffer[entry].location});
    }
  }
}

inline void Engine::bound_preemptions() {
  const auto same = std::find_if(choices_.begin(), choices_.end(), [&](const Action& a) { return a.thread == last_; });
  if (same != choices_.end()) choices_ = {*same};
}

inline bool Engine::enabled(const Thread& thread) const {
  const Action& next = thread.pending;
  if (next.kind == Kind::pause) return commits_ - thread.commits != thread.seen;
  if (next.kind != Kind::store && next.kind != Kind::rmw) return true;
  // Stores that are not buffered: a read-modify-write, and a sequentially consistent store.
  if (releases(next.order)) return thread.buffer.empty();
  return std::none_of(thread.buffer.begin(), thread.buffer.end(),
                      [&](const Buffered& entry) { return entry.location == next.location; });
}

inline bool Engine::flushable(const Thread& thread, std::size_t entry) const {
  if (thread.buffer[entry].release) return entry == 0;
  for (std::size_t i = 0; i < entry; ++i) {
    if (thread.buffer[i].location == thread.buffer[entry].location) return false;
  }
  return true;
}

// No thread can notice the order of the two. A store that leaves its buffer counts as done by
// somebody else than its thread.
inline bool Engine::independent(const Action& a, const Action& b) const {
  if (a.kind != Kind::flush && b.kind != Kind::flush && a.thread == b.thread) return false;
  const auto writes = [](const Action& x) {
    return x.kind == Kind::store || x.kind == Kind::rmw || x.kind == Kind::flush;
  };
  const auto plain = [&](const Action& x) { return x.location != kNoLocation && locations_[x.location].plain; };
  if (a.kind == Kind::barrier || b.kind == Kind::barrier) return false;
  if (a.kind == Kind::pause || b.kind == Kind::pause) {
    const Action& other = a.kind == Kind::pause ? b : a;
    return !writes(other) || plain(other);
  }
  // Raw memory is read without an action of its own, after any action of a thread that does not
  // write it.
  const auto raw = [&](const Action& x, const Action& y) {
    return x.kind == Kind::flush && plain(x) && y.kind != Kind::flush && x.thread != y.thread;
  };
  if (raw(a, b) || raw(b, a)) return false;
  return a.location != b.location || a.location == kNoLocation || (!writes(a) && !writes(b));
}

// ---- memory -------------------------------------------------------------------------------------

inline std::uint64_t Engine::load(std::uint32_t location, std::memory_order order) {
  point({running_, Kind::load, location, order});
  Location& place = locations_[location];
  if (alone()) return place.value;
  Thread& thread = threads_[running_];
  std::uint64_t value = place.value;
  const auto own = std::find_if(thread.buffer.rbegin(), thread.buffer.rend(),
                                [&](const Buffered& entry) { return entry.location == location; });
  if (own != thread.buffer.rend()) {
    value = own->value;
  } else if (acquires(order)) {
    for (std::uint32_t i = 0; i < kMostThreads; ++i) thread.clock[i] = std::max(thread.clock[i], place.released[i]);
  }
  log({running_, Kind::load, location, order}, value);
  return value;
}

inline void Engine::store(std::uint32_t location, std::uint64_t value, std::memory_order order) {
  if (alone()) {
    locations_[location].value = value;
    return;
  }
  const Action action{running_, Kind::store, location, order};
  const bool buffered = options_.weak && order != std::memory_order_seq_cst;
  if (buffered) {
    if (abandoning_) throw Abandon{};
    collect();
  } else {
    point(action);
  }
  Thread& thread = threads_[running_];
  log(action, value);
  if (buffered) {
    thread.buffer.push_back({location, value, releases(order), thread.clock});
  } else {
    commit(running_, location, value, releases(order), thread.clock);
  }
  if (releases(order)) ++thread.clock[running_];
}

template <class Change>
std::uint64_t Engine::update(std::uint32_t location, std::memory_order order, std::memory_order failure,
                             Change change) {
  const Action action{running_, Kind::rmw, location, order};
  point(action);
  Location& place = locations_[location];
  const std::uint64_t old = place.value;
  std::uint64_t value = old;
  const bool stored = change(old, &value);
  if (alone()) {
    place.value = value;
    return old;
  }
  Thread& thread = threads_[running_];
  Clock released = place.released;
  if (acquires(stored ? order : failure)) {
    for (std::uint32_t i = 0; i < kMostThreads; ++i) thread.clock[i] = std::max(thread.clock[i], released[i]);
  }
  log(action, value);
  if (!stored) return old;
  if (releases(order)) {
    for (std::uint32_t i = 0; i < kMostThreads; ++i) released[i] = std::max(released[i], thread.clock[i]);
    ++thread.clock[running_];
  }
  // goes on with the release sequence that it found
  commit(running_, location, value, true, released);
  return old;
}

inline std::uint64_t Engine::plain_load(std::uint32_t location) {
  // With races found, the order of plain accesses that do not race is fixed by the atomics: no
  // action of its own.
  if (!options_.races) return load(location, std::memory_order_relaxed);
  Location& place = locations_[location];
  if (alone()) return place.value;
  check_race(place, false);
  place.reads[running_] = threads_[running_].clock[running_];
  return place.value;
}

inline void Engine::plain_store(std::uint32_t location, std::uint64_t value) {
  if (!options_.races && !alone()) {
    if (!options_.weak) return store(location, value, std::memory_order_relaxed);
    // Not through store(), which collects the writes to raw memory, and that calls this function.
    log({running_, Kind::store, location}, value);
    threads_[running_].buffer.push_back({location, value, false, {}});
    return;
  }
  Location& place = locations_[location];
  if (!alone()) {
    check_race(place, true);
    place.writer = running_;
    place.written = threads_[running_].clock[running_];
  }
  place.value = value;
  if (place.mirror != nullptr) *place.mirror = value;
}

inline void Engine::check_race(const Location& place, bool write) {
  const Clock& clock = threads_[running_].clock;
  const auto index = static_cast<std::uint32_t>(&place - locations_.data());
  if (place.writer != running_ && place.written > clock[place.writer]) {
    return fail(std::string(write ? "writes " : "reads ") + where(index) + " in a race with a write of T" +
                std::to_string(place.writer));
  }
  for (std::uint32_t i = 0; write && i < thread_count_; ++i) {
    if (i != running_ && place.reads[i] > clock[i]) {
      return fail("writes " + where(index) + " in a race with a read of T" + std::to_string(i));
    }
  }
}

inline void Engine::flush(const Action& action) {
  std::vector<Buffered>& buffer = threads_[action.thread].buffer;
  const auto entry = std::find_if(buffer.begin(), buffer.end(),
                                  [&](const Buffered& candidate) { return candidate.location == action.location; });
  const Buffered out = *entry;
  buffer.erase(entry);
  log(action, out.value);
  commit(action.thread, out.location, out.value, out.release, out.clock);
}

// The kernel makes every thread pass a full fence: all stores are visible afterwards. Orders
// nothing for check_race.
inline void Engine::barrier() {
  const Action action{running_, Kind::barrier};
  point(action);
  if (alone()) return;
  log(action, 0);
  for (std::uint32_t i = 0; i < thread_count_; ++i) {
    while (!threads_[i].buffer.empty()) flush({i, Kind::flush, threads_[i].buffer.front().location});
  }
}

inline void Engine::commit(std::uint32_t thread, std::uint32_t location, std::uint64_t value, bool release,
                           const Clock& clock) {
  Location& place = locations_[location];
  place.value = value;
  place.released = release ? clock : Clock{};
  if (place.mirror != nullptr) *place.mirror = value;
  if (place.plain) return;  // nobody waits for it
  ++commits_;
  ++threads_[thread].commits;
}

// The running thread's writes to raw memory since its last action.
inline void Engine::collect() {
  for (Memory* memory : memories_) {
    if (memory->writer() == running_) memory->collect();
  }
}

// ---- reports ------------------------------------------------------------------------------------

inline std::string Engine::where(std::uint32_t location) const {
  const char* text = locations_[location].name;
  return (text != nullptr ? std::string(text) : std::string("location")) + "#" + std::to_string(location);
}

inline std::string Engine::describe() const {
  static constexpr std::array kKinds = {"load", "store", "update", "becomes visible:", "pause", "step", "barrier"};
  static constexpr std::array kOrders = {"relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst"};
  std::string text;
  for (const Step& step : trace_) {
    const Action& action = step.action;
    text += "  T" + std::to_string(action.thread) + " " + kKinds[static_cast<std::size_t>(action.kind)];
    if (action.location != kNoLocation) {
      text += " " + where(action.location) + " = " + std::to_string(step.value);
      if (action.kind != Kind::flush && !locations_[action.location].plain) {
        text += std::string(" ") + kOrders[static_cast<std::size_t>(action.order)];
      }
    }
    text += "\n";
  }
  return text;
}

}  // namespace heddle::explore
