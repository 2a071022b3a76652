#include "worker/executor.hpp"

#include <pthread.h>
#include <sched.h>

#include <cstdio>

#include "base/threads.hpp"
#include "base/topology.hpp"
#include "engine/handlers.hpp"
#include "worker/gate_modes.hpp"

namespace heddle::worker {
namespace {

bool rings(const transport::Transport* transport) {
  return transport != nullptr && transport->capabilities().sleeping != transport::Sleeping::impossible;
}

}  // namespace

ExecutorLoop::ExecutorLoop(ExecutorRole role, transport::Transport* transport, std::uint32_t number,
                           const std::vector<int>& cores)
    : rounds_(role, role != ExecutorRole::commands && rings(transport) ? transport : nullptr) {
  // The thread reads thread_ only when it has a gate, which is after this assignment.
  thread_ = base::start_quiet_thread([this] {
    engine::look_at_this_thread();  // it may run handlers
    base::prepare_thread();
    rounds_.run();
  });
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
  rounds_.stop();
  thread_.join();
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
// executor stay in one part of the machine. If an executor would get a single core, which a thread
// of the program may want for itself, the system places the executors.
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

}  // namespace heddle::worker
