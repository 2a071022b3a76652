#include "worker/executor.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/quiet_thread.hpp"
#include "base/topology.hpp"
#include "base/wait.hpp"
#include "worker/gate_offload.hpp"

namespace heddle::engine {
namespace {

// Rounds without work before the thread sleeps: a few microseconds, about what waking it costs a
// producer.
constexpr int kIdleRounds = 200;
// Rounds without events before it gives its core to others, for the answer may have to be computed
// there.
constexpr int kWaitRounds = 1000;
// How long it stands aside for threads that do its work, at first and at most: that long what they
// leave behind may wait.
constexpr std::int64_t kAsideNs = 50'000;
constexpr std::int64_t kMostAsideNs = 200'000;
// A transport that cannot ring is looked at so often.
constexpr std::int64_t kDeafSleepNs = 1'000'000;
// A wake-up cannot be lost, as far as we know; if one were, this is how long it would be felt.
constexpr std::int64_t kLongestSleepNs = 10'000'000'000;

bool rings(const transport::Transport* transport) {
  return transport != nullptr && transport->capabilities().sleeping != transport::Sleeping::impossible;
}

}  // namespace

ExecutorLoop::ExecutorLoop(ExecutorRole role, transport::Transport* transport, std::uint32_t number,
                           const std::vector<int>& cores)
    : role_(role), transport_(transport), on_bell_(role != ExecutorRole::commands && rings(transport)) {
  // It reads thread_ when a gate is there, and that is after this.
  thread_ = base::start_quiet_thread([this] { run(); });
  char name[16];
  std::snprintf(name, sizeof name, "heddle-%s-%u", role == ExecutorRole::completions ? "comp" : "exec", number % 1000);
  pthread_setname_np(thread_.native_handle(), name);
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  pthread_setaffinity_np(thread_.native_handle(), sizeof set, &set);  // else it runs anywhere
}

// Never destroyed: it may still be in a call of the library when the process ends.
ExecutorLoop& ExecutorLoop::of_process() {
  static ExecutorLoop* const loop =
      new ExecutorLoop(ExecutorRole::both, nullptr, 0, {});  // NOLINT(cppcoreguidelines-owning-memory)
  return *loop;
}

ExecutorLoop::~ExecutorLoop() {
  stop_.store(true, std::memory_order_relaxed);
  orders_.store(true, std::memory_order_release);
  wake();
  thread_.join();
}

void ExecutorLoop::add(OffloadGate* gate) {
  {
    const std::lock_guard lock(mutex_);
    wanted_.push_back(gate);
    ++given_;
    orders_.store(true, std::memory_order_release);
  }
  wake();
}

void ExecutorLoop::remove(OffloadGate* gate) {
  std::unique_lock lock(mutex_);
  if (std::erase(wanted_, gate) == 0) return;
  const std::uint64_t order = ++given_;
  orders_.store(true, std::memory_order_release);
  wake();
  taken_.wait(lock, [&] { return done_ >= order; });
}

void ExecutorLoop::take_orders() {
  Call* calls = nullptr;
  {
    const std::lock_guard lock(mutex_);
    orders_.store(false, std::memory_order_relaxed);
    gates_ = wanted_;
    done_ = given_;
    calls = std::exchange(calls_, nullptr);
    taken_.notify_all();
  }
  if (calls != nullptr) run_calls(calls);
}

void ExecutorLoop::wait_for(Call& call) {
  {
    std::unique_lock lock(mutex_);
    call.next = std::exchange(calls_, &call);
    orders_.store(true, std::memory_order_release);
    wake();
    taken_.wait(lock, [&] { return call.done; });
  }
  if (call.thrown) std::rethrow_exception(call.thrown);
}

// In the order in which they came.
void ExecutorLoop::run_calls(Call* first) {
  Call* ordered = nullptr;
  while (first != nullptr) {
    Call* const next = std::exchange(first->next, ordered);
    ordered = std::exchange(first, next);
  }
  while (ordered != nullptr) {
    Call& call = *ordered;
    ordered = call.next;
    try {
      call.run(call.function);
    } catch (...) {
      call.thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    call.done = true;  // and its caller may be gone
    taken_.notify_all();
  }
}

void ExecutorLoop::wake() {
  sleeper_.wake();
  if (on_bell_) transport_->ring();
}

void ExecutorLoop::run() {
  int fruitless = 0;
  std::int64_t aside_ns = kAsideNs;
  for (;;) {
    if (orders_.load(std::memory_order_acquire)) [[unlikely]] {
      take_orders();
      if (stop_.load(std::memory_order_relaxed)) return;
    }
    OffloadGate::Round found = OffloadGate::Round::idle;
    for (OffloadGate* gate : gates_) found = std::max(found, gate->execute_round(role_));
    if (found == OffloadGate::Round::busy) {
      fruitless = 0;
      aside_ns = kAsideNs;
      continue;
    }
    if (found == OffloadGate::Round::aside_briefly) aside_ns = kAsideNs;
    if (found == OffloadGate::Round::aside || found == OffloadGate::Round::aside_briefly) {
      sleep_aside(aside_ns);
      aside_ns = std::min(2 * aside_ns, kMostAsideNs);
      continue;
    }
    aside_ns = kAsideNs;
    ++fruitless;
    if (found == OffloadGate::Round::idle && fruitless > kIdleRounds) {
      fruitless = 0;
      sleep();
    } else if (fruitless > kWaitRounds) {
      sched_yield();
    } else {
      base::cpu_relax();
    }
  }
}

void ExecutorLoop::sleep() {
  const std::uint32_t seen = on_bell_ ? transport_->bell() : 0;
  if (prepare_sleep()) {
    // Without gates nothing that arrives concerns it.
    if (on_bell_ && !gates_.empty()) {
      // Who gives an order rings after it: either the order is seen here, or the bell has rung
      // since.
      if (!orders_.load(std::memory_order_acquire)) transport_->wait(seen, kLongestSleepNs);
    } else {
      const bool deaf = role_ != ExecutorRole::commands && !gates_.empty();
      static_cast<void>(sleeper_.sleep(deaf ? kDeafSleepNs : -1));
    }
  }
  for (OffloadGate* gate : gates_) gate->end_sleep(role_);
}

// At least one gate stands aside, and none has work. Producers of the others wake this thread.
void ExecutorLoop::sleep_aside(std::int64_t ns) {
  bool may = true;
  for (OffloadGate* gate : gates_) may = gate->aside() || gate->prepare_sleep(ExecutorRole::commands) ? may : false;
  if (may) static_cast<void>(sleeper_.sleep(ns));
  for (OffloadGate* gate : gates_) {
    if (!gate->aside()) gate->end_sleep(ExecutorRole::commands);
  }
}

// True: whatever any of the gates wants from now on wakes this thread.
bool ExecutorLoop::prepare_sleep() {
  for (OffloadGate* gate : gates_) {
    if (!gate->prepare_sleep(role_)) return false;
  }
  if (role_ == ExecutorRole::commands) return true;
  if (on_bell_ && !gates_.empty()) transport_->settle();
  return std::all_of(gates_.begin(), gates_.end(), [](OffloadGate* gate) { return gate->is_quiet(); });
}

Executor::Executor(CompleterThread completer, transport::Transport& transport, std::uint32_t number,
                   const std::vector<int>& cores)
    : own_(std::make_unique<ExecutorLoop>(
          completer == CompleterThread::together ? ExecutorRole::both : ExecutorRole::commands, &transport, number,
          cores)),
      commands_(own_.get()) {
  if (completer == CompleterThread::together) return;
  completions_ = std::make_unique<ExecutorLoop>(ExecutorRole::completions, &transport, number, cores);
}

void Executor::add(OffloadGate* gate) {
  commands_->add(gate);
  if (completions_ == nullptr) return;
  try {
    completions_->add(gate);
  } catch (...) {
    commands_->remove(gate);
    throw;
  }
}

void Executor::remove(OffloadGate* gate) {
  commands_->remove(gate);
  if (completions_ != nullptr) completions_->remove(gate);
}

Executor& Executors::of(std::uint32_t worker) {
  const std::lock_guard lock(mutex_);
  const std::size_t index = worker % executors_.size();
  std::unique_ptr<Executor>& executor = executors_[index];
  if (executor == nullptr) {
    executor = std::make_unique<Executor>(completer_, *transport_, static_cast<std::uint32_t>(index), place(index));
  }
  return *executor;
}

// Several executors divide the cores among them, neighbours together, so that the workers of one
// stay in one part of the machine. Where that would leave one a single core, which a thread of the
// program may want for itself, the system places them.
std::vector<int> Executors::place(std::size_t index) const {
  const std::size_t count = executors_.size();
  if (count == 1) return {};
  const auto topology = base::read_topology();
  if (!topology || topology->cores.size() < 2 * count) return {};
  const std::size_t cores = topology->cores.size();
  std::vector<int> mine;
  for (std::size_t core = index * cores / count; core < (index + 1) * cores / count; ++core) {
    mine.insert(mine.end(), topology->cores[core].begin(), topology->cores[core].end());
  }
  return mine;
}

}  // namespace heddle::engine
