// The threads of the offload mode: an executor takes the commands of its workers from their queues
// in batches and hands them to the transport; a completer polls, and runs handlers and callbacks.
// They are one thread (together) or two (apart). A context has HEDDLE_EXECUTORS of them; its
// offload workers are distributed over them by their numbers. Decision 0021.
//
// With nothing to do a thread looks a little longer, then sleeps: on the transport's bell if it
// polls (each worker armed, so that what arrives wakes it), else on a word of its own. A producer
// that finds the sleeping bit of its queue wakes the executor. A thread that leaves something under
// way inside a worker wakes the completer.
//
// Gates are added and removed by orders, which the thread takes between two rounds: remove()
// returns when the thread has released the gate. rounds.hpp has the rounds, the sleep and the
// orders.
//
// If the transport's library takes calls of one thread only (Capabilities::one_thread), one loop of
// the process serves all workers of all its contexts. This loop makes the other calls of these
// transports, too (call(); one_thread.hpp). Decision 0028.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "transport/transport.hpp"
#include "worker/rounds.hpp"

namespace heddle::engine {

class OffloadGate;

// HEDDLE_COMPLETER.
enum class CompleterThread : std::uint8_t { together, apart };
inline std::optional<CompleterThread> completer_named(std::string_view name) {
  if (name == "together") return CompleterThread::together;
  if (name == "apart") return CompleterThread::apart;
  return std::nullopt;
}

// One thread that visits its gates in turn.
class ExecutorLoop {
 public:
  // `cores`: where it may run; empty: anywhere. Throws std::system_error if there can be no more
  // threads. `transport`: on whose bell it may sleep; null: it looks now and then.
  ExecutorLoop(ExecutorRole role, transport::Transport* transport, std::uint32_t number, const std::vector<int>& cores);
  ~ExecutorLoop();  // within one round
  ExecutorLoop(const ExecutorLoop&) = delete;
  ExecutorLoop& operator=(const ExecutorLoop&) = delete;

  // The loop that makes all calls of libraries that allow one thread only. It is started at the
  // first call and runs until the process ends, since a restarted thread would be a second one.
  // Throws std::system_error.
  static ExecutorLoop& of_process();

  // Runs function() on the thread, inside no gate, and waits for it to return; called on that
  // thread, runs it directly. Exceptions of function() reach the caller. The caller must hold
  // nothing that the thread might wait for.
  template <class Function>
  void call(Function&& function) {
    if (is_calling_thread()) return function();
    ExecutorCall call;
    call.function = &function;
    call.run = [](void* what) { (*static_cast<std::remove_reference_t<Function>*>(what))(); };
    rounds_.call(call);
    if (call.thrown) std::rethrow_exception(call.thrown);
  }

  void add(OffloadGate* gate) { rounds_.add(gate); }
  // Afterwards the thread does not touch the gate. Must not be called from inside a handler.
  void remove(OffloadGate* gate) { rounds_.remove(gate); }
  // Any thread.
  void wake() { rounds_.wake(); }
  [[nodiscard]] bool is_calling_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  ExecutorRounds<OffloadGate, transport::Transport> rounds_;
  std::thread thread_;  // the last: it uses the rounds
};

class Executor {
 public:
  Executor(CompleterThread completer, transport::Transport& transport, std::uint32_t number,
           const std::vector<int>& cores);
  // Everything runs on this loop, which other executors use as well.
  explicit Executor(ExecutorLoop& shared) : commands_(&shared) {}

  // Throws std::bad_alloc.
  void add(OffloadGate* gate);
  void remove(OffloadGate* gate);
  // Called by a producer that the Inbox's queue tells to wake the consumer.
  void wake() { commands_->wake(); }
  // Called when something was left under way.
  void wake_completer() { (completions_ != nullptr ? completions_.get() : commands_)->wake(); }
  [[nodiscard]] bool apart() const { return completions_ != nullptr; }
  // The calling thread is the one that starts commands.
  [[nodiscard]] bool starts_here() const { return commands_->is_calling_thread(); }
  // ExecutorLoop::call() of that thread.
  template <class Function>
  void call(Function&& function) {
    commands_->call(std::forward<Function>(function));
  }

 private:
  std::unique_ptr<ExecutorLoop> own_;  // null: it is a shared one
  ExecutorLoop* commands_;
  std::unique_ptr<ExecutorLoop> completions_;
};

// The executors of a context. Each starts with the first worker that is assigned to it.
class Executors {
 public:
  Executors(std::uint64_t count, CompleterThread completer, transport::Transport& transport)
      : completer_(completer), transport_(&transport), executors_(count) {}
  // One executor, on this loop.
  explicit Executors(ExecutorLoop& shared) : completer_(CompleterThread::together), transport_(nullptr), executors_(1) {
    executors_[0] = std::make_unique<Executor>(shared);
  }

  // The executor of the worker with this number. Throws as Executor's constructor does.
  Executor& of(std::uint32_t worker);

 private:
  [[nodiscard]] std::vector<int> place(std::size_t index) const;

  const CompleterThread completer_;
  transport::Transport* const transport_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<Executor>> executors_;
};

}  // namespace heddle::engine
