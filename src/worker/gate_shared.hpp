// shared: a thread that posts and finds another one inside waits for about as long as a short post
// takes, then gets AGAIN.
#pragma once

#include <memory>
#include <utility>

#include "base/wait.hpp"
#include "worker/gate_core.hpp"

namespace heddle::engine {

class SharedGate : public CoreGate {
 public:
  SharedGate(Worker& worker, std::unique_ptr<Inbox> inbox) : CoreGate(worker, std::move(inbox)) {}

 protected:
  base::Status post_now(transport::Command& command, const Completion& completion) override {
    if (!door().try_enter()) [[unlikely]]
      return post_or_queue(command, completion);
    bool wake = false;
    const base::Status status = post_inside(command, completion, &wake);
    door().exit();
    if (wake) [[unlikely]]
      wake_helpers();
    return status;
  }

 private:
  // Looks at a busy worker: a holder that was descheduled, or runs handlers, is not waited for.
  static constexpr int kLooks = 64;

  bool try_enter() override {
    if (door().try_enter()) return true;
    for (int i = 0; i < kLooks; ++i) {
      base::cpu_relax();
      if (door().try_enter()) return true;
    }
    return false;
  }
};

}  // namespace heddle::engine
