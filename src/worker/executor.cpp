#include "worker/executor.hpp"

#include <pthread.h>

#include "base/threads.hpp"
#include "engine/handlers.hpp"
#include "worker/gate_modes.hpp"

namespace heddle::worker {
namespace {

bool rings(const transport::Transport* transport) {
  return transport != nullptr && transport->capabilities().sleeping != transport::Sleeping::impossible;
}

}  // namespace

Executor::Executor(transport::Transport* transport) : rounds_(rings(transport) ? transport : nullptr) {
  // The thread reads thread_ only when it has a gate, which is after this assignment.
  thread_ = base::start_quiet_thread([this] {
    engine::look_at_this_thread();  // it may run handlers
    base::prepare_thread();
    rounds_.run();
  });
  pthread_setname_np(thread_.native_handle(), "heddle-exec");
}

// Never destroyed: it may still be in a call of the library when the process ends.
Executor& Executor::of_process() {
  static Executor* const executor = new Executor(nullptr);  // NOLINT(cppcoreguidelines-owning-memory)
  return *executor;
}

Executor::~Executor() {
  rounds_.stop();
  thread_.join();
}

}  // namespace heddle::worker
