// delegate: a thread that posts and finds another one inside leaves its command in the queue, and
// the thread inside executes the command before it leaves.
//
// Invariant: a command that is visible in the queue is executed by its producer, or by the thread
// that was inside when the producer looked (queue/locks.hpp), or by the next thread that makes
// progress: where the transport took no more (Inbox::stalled()), and where others went on queueing
// until the thread inside had done its share (Delegation::kRounds).
#pragma once

#include <memory>
#include <utility>

#include "worker/gate_core.hpp"

namespace heddle::engine {

class DelegateGate : public CoreGate {
 public:
  DelegateGate(Worker& worker, std::unique_ptr<Inbox> inbox) : CoreGate(worker, std::move(inbox)) {}

 protected:
  base::Status post_now(transport::Command& command, const Completion& completion) override {
    // Commands that this thread has queued go first.
    if (queued() || !door().try_enter()) [[unlikely]]
      return post_or_queue(command, completion);
    bool wake = false;
    const base::Status status = post_inside(command, completion, &wake);
    if (door().exit_unless([this] { return inbox().ready(); }, 0)) [[unlikely]]
      stay();
    if (wake) [[unlikely]]
      wake_helpers();
    return status;
  }
  void let_out() override {
    for (int looks = 0;; ++looks) {
      const bool stalled = inbox().stalled();  // no use in trying again at once
      mark_outside();
      if (stalled) return door().exit();
      if (!door().exit_unless([this] { return inbox().ready(); }, looks)) return;
      mark_inside();
      // helpers see the commands of others that it leaves under way, though it may be a helper
      // itself
      count_entry();
      drain();
    }
  }
  [[nodiscard]] bool queues() const override { return true; }
  void after_queueing() override {
    if (door().help()) stay();
  }
  [[nodiscard]] bool leaves_others_commands() const override { return true; }

  // Inside, for what others have queued.
  void stay() {
    mark_inside();
    count_entry();
    drain();
    leave();
  }
};

}  // namespace heddle::engine
