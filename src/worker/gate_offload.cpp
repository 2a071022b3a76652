#include "worker/gate_offload.hpp"

namespace heddle::engine {

class OffloadGate::Side {
 public:
  explicit Side(OffloadGate& gate) : gate_(gate), completer_(gate.worker().completer()) {}

  bool enter() { return gate_.enter(); }
  void leave() { gate_.leave(); }
  std::size_t drain() { return gate_.drain(); }
  std::size_t poll() {
    gate_.count_poll();
    return static_cast<std::size_t>(completer_.progress());
  }
  [[nodiscard]] std::uint64_t polls() const { return gate_.polls(); }
  [[nodiscard]] bool stalled() const { return gate_.inbox().stalled(); }
  [[nodiscard]] bool under_way() const { return completer_.under_way(); }
  [[nodiscard]] bool can_ring() const { return gate_.worker().core().can_ring(); }
  bool arm() { return completer_.arm(); }
  [[nodiscard]] bool has_arrivals() const { return gate_.worker().core().transport.has_arrivals(); }
  bool prepare_queue() { return gate_.inbox().prepare_sleep(); }
  bool wake_queue() { return gate_.inbox().wake_up(); }
  [[nodiscard]] bool crowded() const { return gate_.worker().context().crowd().crowded(); }
  [[nodiscard]] bool apart() const { return gate_.executor_->apart(); }

 private:
  OffloadGate& gate_;
  Completer& completer_;
};

OffloadGate::OffloadGate(Worker& worker, std::unique_ptr<Inbox> inbox)
    : CoreGate(worker, std::move(inbox), true), one_thread_(worker.context().one_thread()) {}

void OffloadGate::begin() {
  executor_ = &worker().context().executors().of(worker().index());
  inbox().set_executor(executor_);
  executor_->add(this);
}

void OffloadGate::end() {
  if (executor_ != nullptr) executor_->remove(this);
  Gate::end();
}

// Handlers and callbacks of this worker. Tagged messages keep the order of the calls.
base::Status OffloadGate::post_from_inside(transport::Command& command, const Completion& completion) {
  return is_tagged(command) && queued() ? inbox().put(command, completion) : worker().post(command, completion);
}

// An executor that sleeps would not poll for the operations that a handler has posted here.
void OffloadGate::let_out() {
  Side side(*this);
  const bool wake = standby_.must_wake_poller(side);
  CoreGate::let_out();
  if (wake) executor_->wake_completer();
}

Round OffloadGate::execute_round(ExecutorRole role) {
  Side side(*this);
  return standby_.round(side, role);
}

bool OffloadGate::prepare_sleep(ExecutorRole role) {
  Side side(*this);
  return standby_.prepare_sleep(side, role);
}

bool OffloadGate::is_quiet() {
  Side side(*this);
  return standby_.is_quiet(side);
}

void OffloadGate::end_sleep(ExecutorRole role) {
  Side side(*this);
  standby_.end_sleep(side, role);
}

}  // namespace heddle::engine
